//! A campaign as one HTML page: charts as inline SVG, no script, nothing from the network; light and dark, wide and narrow.

use std::fmt::Write as _;

use spd_profile::xml::escape;

use crate::outcome::System;
use crate::sweep::{KNEE_RULE, Measured, knee_of, series, title};

/// Size of a chart's drawing in its own units, and the margins of its axes.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Classes of lines in their order, defined in [`STYLE`].
const CLASSES: usize = 6;

const STYLE: &str = "\
:root{--fg:#1b1f24;--bg:#fff;--dim:#59636e;--grid:#d8dee4;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;\
--c5:#6e5c00;--mark:#cf222e}\
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--dim:#9198a1;--grid:#30363d;--c0:#4493f8;--c1:#f0883e;\
--c2:#3fb950;--c3:#ab7df8;--c4:#db61a2;--c5:#d4b72f;--mark:#ff7b72}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:0 auto;padding:1rem;max-width:72rem}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:2rem 0 .5rem}code{overflow-wrap:anywhere}p{max-width:60rem}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}\
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto;display:block}\
text{fill:var(--dim);font:15px system-ui,sans-serif}.grid{stroke:var(--grid)}.axis{stroke:var(--dim)}\
.line{fill:none;stroke-width:2.2}.knee{stroke:var(--mark);stroke-dasharray:5 4;stroke-width:1.5}.kneetext{fill:var(--mark)}\
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}\
.d0{fill:var(--c0)}.d1{fill:var(--c1)}.d2{fill:var(--c2)}.d3{fill:var(--c3)}.d4{fill:var(--c4)}.d5{fill:var(--c5)}\
.legend{font-size:.9rem;color:var(--dim)}.legend b{display:inline-block;width:1.2em;height:.25em;margin:0 .4em .25em 1em}\
.l0{background:var(--c0)}.l1{background:var(--c1)}.l2{background:var(--c2)}.l3{background:var(--c3)}.l4{background:var(--c4)}\
.l5{background:var(--c5)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}\
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--grid)}tr.kneerow{font-weight:600}";

/// One line of a chart.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// The page.
#[must_use]
pub fn page(command_line: &str, system: &System, points: &[Measured]) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Sweep</title>\
         <style>{STYLE}</style></head><body>\n<h1>Load sweep</h1>\n<p><code>{}</code></p>\n<p>{}, {}, {} processors. \
         The knee is {KNEE_RULE}.</p>\n",
        escape(command_line),
        escape(&system.computer),
        system.start_text(),
        system.cpus.len()
    );
    for series in series(points) {
        section(&mut out, series);
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, series: &[Measured]) {
    let Some(first) = series.first() else { return };
    let knee = knee_of(series);
    let at = |point: &Measured| f64::from(point.depth);
    let line = |name: &str, figure: &dyn Fn(&Measured) -> f64| Line {
        name: name.into(),
        points: series.iter().map(|point| (at(point), figure(point))).collect(),
    };
    let percentile = |index: usize| {
        move |point: &Measured| point.mean(|run| run.percentiles_ms.get(index).copied().unwrap_or(0.0))
    };
    let _ = write!(out, "<h2>{}</h2>\n<div class=\"charts\">\n", escape(&title(first)));
    let mark = knee.and_then(|knee| series.get(knee)).map(at);
    let depth = "requests outstanding per thread";
    out.push_str(&chart(
        "IOPS by depth",
        depth,
        "I/O per s",
        &[line("mean of runs", &|point| point.mean(|run| run.iops))],
        mark,
        Scale::Doubling,
    ));
    out.push_str(&chart(
        "Latency by depth",
        depth,
        "milliseconds",
        &[
            line("mean", &|point| point.mean(|run| run.mean_ms)),
            line("50th", &percentile(0)),
            line("99th", &percentile(2)),
            line("99.9th", &percentile(3)),
        ],
        mark,
        Scale::Doubling,
    ));
    if let Some(point) = knee.and_then(|knee| series.get(knee)) {
        let quoted = point.runs.get(point.quoted());
        if let Some(run) = quoted.filter(|run| run.series.len() > 1) {
            let line = Line {
                name: format!("depth {}, run {}", point.depth, point.quoted() + 1),
                points: run
                    .series
                    .iter()
                    .enumerate()
                    .map(|(index, iops)| ((index + 1) as f64, *iops))
                    .collect(),
            };
            out.push_str(&chart(
                "IOPS over time at the knee",
                "interval",
                "I/O per s",
                &[line],
                None,
                Scale::Even,
            ));
        }
        if let Some(run) = quoted {
            let points = [50.0, 90.0, 99.0, 99.9].into_iter().zip(run.percentiles_ms);
            // Nines as even steps: 50 %, 90 %, 99 %, 99.9 %.
            let points = points.map(|(percent, ms): (f64, f64)| (-(1.0 - percent / 100.0).log10(), ms));
            let line = Line { name: format!("depth {}", point.depth), points: points.collect() };
            out.push_str(&chart(
                "Latency percentiles at the knee",
                "percentile",
                "milliseconds",
                &[line],
                None,
                Scale::Nines,
            ));
        }
    }
    out.push_str("</div>\n");
    table(out, series, knee);
}

fn table(out: &mut String, series: &[Measured], knee: Option<usize>) {
    out.push_str(
        "<div class=\"scroll\"><table><tr><th>depth</th><th>IOPS</th><th>MiB/s</th><th>mean ms</th><th>50th</th>\
         <th>99th</th><th>99.9th</th><th>CPU</th><th>spread</th><th>runs (outliers)</th></tr>\n",
    );
    for (index, point) in series.iter().enumerate() {
        let percentile = |at: usize| point.mean(|run| run.percentiles_ms.get(at).copied().unwrap_or(0.0));
        let class = if Some(index) == knee { " class=\"kneerow\"" } else { "" };
        let mark = if Some(index) == knee { " (knee)" } else { "" };
        let _ = writeln!(
            out,
            "<tr{class}><td>{}{mark}</td><td>{:.0}</td><td>{:.2}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td>\
             <td>{:.3}</td><td>{:.1} %</td><td>{:.1} %</td><td>{} ({})</td></tr>",
            point.depth,
            point.mean(|run| run.iops),
            point.mean(|run| run.mib),
            point.mean(|run| run.mean_ms),
            percentile(0),
            percentile(2),
            percentile(3),
            point.mean(|run| run.cpu),
            point.spread_percent(),
            point.runs.len(),
            point.outliers().iter().filter(|out| **out).count()
        );
    }
    out.push_str("</table></div>\n");
}

/// How x runs.
#[derive(Clone, Copy, PartialEq)]
enum Scale {
    /// Evenly.
    Even,
    /// Each doubling takes the same room.
    Doubling,
    /// Values are nines of a percentile (1: 90th), named by the percentile.
    Nines,
}

/// A chart: y from 0 to a round number, x by `scale`, and a vertical mark.
fn chart(name: &str, x_name: &str, y_name: &str, lines: &[Line], mark: Option<f64>, scale: Scale) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let place = |x: f64| if scale == Scale::Doubling { x.max(1.0).log2() } else { x };
    let low = all().map(|(x, _)| place(*x)).fold(f64::MAX, f64::min);
    let high = all().map(|(x, _)| place(*x)).fold(low, f64::max);
    let top = round_up(all().map(|(_, y)| *y).fold(0.0, f64::max));
    let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x_of = |x: f64| {
        let part = if high > low { (place(x) - low) / (high - low) } else { 0.5 };
        LEFT + part * inner_width
    };
    let y_of = |y: f64| TOP + (1.0 - y / top) * inner_height;
    let mut out = format!(
        "<figure><figcaption>{name}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\">"
    );
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let y = y_of(value);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(value)
        );
    }
    for x in ticks(&all().map(|(x, _)| *x).collect::<Vec<_>>()) {
        let label = match scale {
            // Nines back to the percentile that they are of.
            Scale::Nines => format!("{}th", short((100.0 - 10f64.powf(2.0 - x)).max(0.0))),
            _ => short(x),
        };
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x_of(x),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\"/>\
         <text x=\"{2}\" y=\"{3}\" text-anchor=\"middle\">{x_name}</text>\
         <text x=\"14\" y=\"{4}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {4})\">{y_name}</text>",
        HEIGHT - BOTTOM,
        WIDTH - RIGHT,
        LEFT + inner_width / 2.0,
        HEIGHT - 6.0,
        TOP + inner_height / 2.0
    );
    if let Some(mark) = mark {
        let x = x_of(mark);
        // The word stands on the side where there is room.
        let (anchor, shift) = if x > WIDTH / 2.0 { ("end", -6.0) } else { ("start", 6.0) };
        let _ = write!(
            out,
            "<line class=\"knee\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{}\"/>\
             <text class=\"kneetext\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">knee: {}</text>",
            HEIGHT - BOTTOM,
            x + shift,
            TOP + 14.0,
            short(mark)
        );
    }
    for (index, line) in lines.iter().enumerate() {
        let class = index % CLASSES;
        let path: Vec<String> =
            line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
        let _ = write!(out, "<polyline class=\"line s{class}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in line.points.iter().filter(|_| line.points.len() <= 64) {
            let _ = write!(
                out,
                "<circle class=\"d{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                x_of(*x),
                y_of(*y)
            );
        }
    }
    out.push_str("</svg><div class=\"legend\">");
    for (index, line) in lines.iter().enumerate() {
        let _ = write!(out, "<b class=\"l{}\"></b>{}", index % CLASSES, escape(&line.name));
    }
    out.push_str("</div></figure>\n");
    out
}

/// At most nine values of an axis, the first and the last among them.
fn ticks(values: &[f64]) -> Vec<f64> {
    let mut ticks = values.to_vec();
    ticks.sort_unstable_by(f64::total_cmp);
    ticks.dedup();
    let every = ticks.len().div_ceil(8).max(1);
    let last = ticks.last().copied();
    let mut kept: Vec<f64> = ticks.iter().copied().step_by(every).collect();
    if let Some(last) = last.filter(|last| kept.last() != Some(last)) {
        // Not on top of its neighbour.
        if kept.len() > 8 {
            kept.pop();
        }
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
    let (value, unit) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::RunFigures;

    #[test]
    fn numbers_of_axes() {
        assert_eq!(
            [0.0, 0.25, 12.5, 999.0, 12_500.0, 3e6].map(short),
            ["0", "0.25", "12.5", "999", "12.5k", "3M"]
        );
        assert_eq!([0.0, 0.3, 7.0, 10.0, 2100.0].map(round_up), [1.0, 0.5, 10.0, 10.0, 2500.0]);
        assert_eq!(ticks(&[1.0, 2.0, 4.0]), [1.0, 2.0, 4.0]);
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!(ticks(&many).len() <= 9 && ticks(&many).last() == Some(&100.0));
    }

    #[test]
    fn the_page_stands_alone_and_escapes_what_it_is_given() {
        let run = RunFigures {
            iops: 5.0,
            mean_ms: 1.0,
            percentiles_ms: [1.0, 2.0, 3.0, 4.0],
            series: vec![1.0, 2.0],
            ..RunFigures::default()
        };
        let point = |depth| Measured {
            threads: 1,
            depth,
            block: 4096,
            runs: vec![run.clone()],
            ..Measured::default()
        };
        let page = page("spd <script>", &System::default(), &[point(1), point(2)]);
        assert!(page.contains("spd &lt;script&gt;") && !page.contains("<script"));
        assert!(!page.contains("http") && !page.contains("NaN") && !page.contains("inf"));
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("name=\"viewport\""));
        assert!(page.contains("knee: 1"));
    }
}
