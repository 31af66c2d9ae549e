//! A chart as SVG: lines over an axis of depths, times or percentiles, with units, ticks and a mark.

use std::fmt::Write as _;

/// Size of a chart's drawing in its own units.
pub(crate) const WIDTH: f64 = 640.0;
/// As above.
pub(crate) const HEIGHT: f64 = 312.0;
/// Margins of the axes. They hold the numbers in the size that telephones get, too.
const LEFT: f64 = 100.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 58.0;
/// Classes of lines in their order, defined in [`STYLE`].
pub(crate) const CLASSES: usize = 6;
/// Most decades that an axis of latencies has: below a thousandth of the greatest, nothing is told apart anyway.
const DECADES: i32 = 5;

/// Colours, light and dark, and what the elements of a drawing look like.
pub(crate) const STYLE: &str = "\
:root{--fg:#1b1f24;--bg:#fff;--dim:#59636e;--grid:#d8dee4;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;\
--c5:#6e5c00;--mark:#cf222e}\
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--dim:#9198a1;--grid:#30363d;--c0:#4493f8;--c1:#f0883e;\
--c2:#3fb950;--c3:#ab7df8;--c4:#db61a2;--c5:#d4b72f;--mark:#ff7b72}}\
text{fill:var(--dim);font:15px system-ui,sans-serif}.grid{stroke:var(--grid)}.axis{stroke:var(--dim)}\
.line{fill:none;stroke-width:2.2}.knee{stroke:var(--mark);stroke-dasharray:5 4;stroke-width:1.5}\
text.kneetext{fill:var(--mark)}text.name{fill:var(--fg);font-weight:600}\
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}\
.d0{fill:var(--c0)}.d1{fill:var(--c1)}.d2{fill:var(--c2)}.d3{fill:var(--c3)}.d4{fill:var(--c4)}.d5{fill:var(--c5)}";

/// One line of a chart.
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) name: String,
    /// x and y of its points, x rising.
    pub(crate) points: Vec<(f64, f64)>,
}

/// How x runs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Evenly.
    Even,
    /// Each doubling takes the same room.
    Doubling,
    /// Values are nines of a percentile (1: 90th), named by the percentile.
    Nines,
}

/// What is drawn.
pub(crate) struct Chart<'a> {
    /// Its heading.
    pub(crate) name: &'a str,
    /// What x is, with its unit.
    pub(crate) x_name: &'a str,
    /// What y is, with its unit.
    pub(crate) y_name: &'a str,
    /// The lines.
    pub(crate) lines: &'a [Line],
    /// Where the knee is on x.
    pub(crate) mark: Option<f64>,
    /// How x runs.
    pub(crate) scale: Scale,
    /// Whether each tenfold of y takes the same room; from 0 evenly otherwise.
    pub(crate) decades: bool,
}

/// An axis of y: its end, and where its numbers stand.
struct Height {
    top: f64,
    low: f64,
    decades: bool,
}

impl Height {
    fn of(chart: &Chart<'_>) -> Self {
        let values = || chart.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let high = values().fold(0.0, f64::max);
        let least = values().filter(|y| *y > 0.0).fold(high, f64::min);
        if !(chart.decades && high.is_finite() && high > 0.0) {
            return Self { top: round_up(high), low: 0.0, decades: false };
        }
        let top = high.log10().ceil();
        let low = least.log10().floor().max(top - f64::from(DECADES)).min(top - 1.0);
        Self { top: 10f64.powf(top), low: 10f64.powf(low), decades: true }
    }

    /// The part of the height at which `y` is, from below.
    fn part(&self, y: f64) -> f64 {
        if self.decades {
            let span = (self.top / self.low).log10();
            (y.max(self.low) / self.low).log10() / span
        } else {
            y / self.top
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.decades {
            let count = (self.top / self.low).log10().round() as i32;
            (0..=count).map(|step| self.low * 10f64.powi(step)).collect()
        } else {
            (0..=4).map(|step| self.top * f64::from(step) / 4.0).collect()
        }
    }

    fn label(&self, y: f64) -> String {
        if self.decades { short(y) } else { short_as(y, self.top) }
    }
}

impl Chart<'_> {
    /// The elements of the drawing, which is [`WIDTH`] by [`HEIGHT`].
    pub(crate) fn drawing(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let place = |x: f64| if self.scale == Scale::Doubling { x.max(1.0).log2() } else { x };
        let low = all().map(|(x, _)| place(*x)).fold(f64::MAX, f64::min);
        let high = all().map(|(x, _)| place(*x)).fold(low, f64::max);
        let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let x_of = |x: f64| {
            let part = if high > low { (place(x) - low) / (high - low) } else { 0.5 };
            LEFT + part * inner_width
        };
        let height = Height::of(self);
        let y_of = |y: f64| TOP + (1.0 - height.part(y)) * inner_height;
        let mut out = String::new();
        for value in height.ticks() {
            let y = y_of(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 5.0,
                height.label(value)
            );
        }
        for x in ticks(&all().map(|(x, _)| *x).collect::<Vec<_>>()) {
            let label = match self.scale {
                // Nines back to the percentile that they are of.
                Scale::Nines => format!("{}th", short((100.0 - 10f64.powf(2.0 - x)).max(0.0))),
                _ => short(x),
            };
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                x_of(x),
                HEIGHT - BOTTOM + 22.0
            );
        }
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\"/>\
             <text x=\"{2}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\
             <text x=\"20\" y=\"{5}\" text-anchor=\"middle\" transform=\"rotate(-90 20 {5})\">{6}</text>",
            HEIGHT - BOTTOM,
            WIDTH - RIGHT,
            LEFT + inner_width / 2.0,
            HEIGHT - 8.0,
            self.x_name,
            TOP + inner_height / 2.0,
            self.y_name
        );
        if let Some(mark) = self.mark {
            let x = x_of(mark);
            // The word stands on the side where there is room.
            let (anchor, shift) = if x > WIDTH / 2.0 { ("end", -6.0) } else { ("start", 6.0) };
            let _ = write!(
                out,
                "<line class=\"knee\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{}\"/>\
                 <text class=\"kneetext\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">knee: {}</text>",
                HEIGHT - BOTTOM,
                x + shift,
                TOP + 16.0,
                short(mark)
            );
        }
        for (index, line) in self.lines.iter().enumerate() {
            let class = index % CLASSES;
            let path: Vec<String> =
                line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
            let _ = write!(out, "<polyline class=\"line s{class}\" points=\"{}\"/>", path.join(" "));
            for (x, y) in line.points.iter().filter(|_| line.points.len() <= 64) {
                let (x, y) = (x_of(*x), y_of(*y));
                let _ = write!(out, "<circle class=\"d{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
            }
        }
        out
    }
}

/// At most ten values of an axis, the first and the last among them.
fn ticks(values: &[f64]) -> Vec<f64> {
    let mut ticks = values.to_vec();
    ticks.sort_unstable_by(f64::total_cmp);
    ticks.dedup();
    let every = ticks.len().div_ceil(10).max(1);
    let last = ticks.last().copied();
    let mut kept: Vec<f64> = ticks.iter().copied().step_by(every).collect();
    if let Some(last) = last.filter(|last| kept.last() != Some(last)) {
        // Not on top of its neighbour.
        kept.pop();
        kept.push(last);
    }
    kept
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is not below `value`.
fn round_up(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|step| step * unit).find(|top| *top >= value).unwrap_or(value)
}

/// A number in a few characters.
fn short(value: f64) -> String {
    short_as(value, value)
}

/// A number in a few characters, with the unit that `largest` has: numbers of one axis have one.
fn short_as(value: f64, largest: f64) -> String {
    let (value, unit) = match largest {
        _ if value == 0.0 => (0.0, ""),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_axes() {
        assert_eq!(
            [0.0, 0.25, 12.5, 999.0, 12_500.0, 3e6].map(short),
            ["0", "0.25", "12.5", "999", "12.5k", "3M"]
        );
        assert_eq!([0.0, 5e3, 1e4].map(|value| short_as(value, 2e4)), ["0", "5k", "10k"]);
        assert_eq!([0.0, 0.3, 7.0, 10.0, 2100.0].map(round_up), [1.0, 0.5, 10.0, 10.0, 2500.0]);
        assert_eq!(ticks(&[1.0, 2.0, 4.0]), [1.0, 2.0, 4.0]);
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!(ticks(&many).len() <= 10 && ticks(&many).last() == Some(&100.0));
        let twelve: Vec<f64> = (1..=12).map(f64::from).collect();
        assert_eq!(ticks(&twelve), [1.0, 3.0, 5.0, 7.0, 9.0, 12.0], "the last two do not touch");
    }

    fn chart<'a>(lines: &'a [Line], decades: bool) -> Chart<'a> {
        Chart { name: "n", x_name: "x", y_name: "y", lines, mark: None, scale: Scale::Even, decades }
    }

    #[test]
    fn decades_make_small_and_large_visible() {
        let line = |y: &[f64]| {
            let points = y.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
            [Line { name: String::new(), points }]
        };
        let lines = line(&[0.2, 3.0, 74.0]);
        let height = Height::of(&chart(&lines, true));
        assert_eq!(
            height.ticks().iter().map(|tick| short(*tick)).collect::<Vec<_>>(),
            ["0.1", "1", "10", "100"]
        );
        assert!((height.part(0.2) - 0.1).abs() < 0.01 && height.part(100.0) == 1.0);
        assert_eq!(height.part(0.0), 0.0, "below the axis is on it");
        let even = Height::of(&chart(&lines, false));
        assert_eq!(even.ticks(), [0.0, 25.0, 50.0, 75.0, 100.0]);
        for odd in [&[][..], &[0.0], &[1.0], &[f64::INFINITY], &[1e-9, 1e9]] {
            let drawn = chart(&line(odd), true).drawing();
            assert!(!drawn.contains("NaN") || odd == [f64::INFINITY], "{odd:?}: {drawn}");
        }
    }
}
