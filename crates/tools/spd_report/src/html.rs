//! A campaign as one HTML page: charts as inline SVG, no script, nothing from the network; light and dark, wide and narrow.

use std::fmt::Write as _;

use spd_profile::xml::escape;

use crate::chart::{CLASSES, Chart, HEIGHT, Line, STYLE, Scale, WIDTH};
use crate::outcome::System;
use crate::sweep::{KNEE_RULE, Measured, knee_of, series, title};

/// The page's own, after what charts look like.
const PAGE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:0 auto;padding:1rem;max-width:72rem}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:2rem 0 .5rem}code{overflow-wrap:anywhere}p{max-width:60rem}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}\
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto;display:block}\
@media(max-width:34rem){text{font-size:23px}}\
.legend{font-size:.9rem;color:var(--dim)}.legend b{display:inline-block;width:1.2em;height:.25em;margin:0 .4em .25em 1em}\
.l0{background:var(--c0)}.l1{background:var(--c1)}.l2{background:var(--c2)}.l3{background:var(--c3)}.l4{background:var(--c4)}\
.l5{background:var(--c5)}\
.scroll{overflow-x:auto;margin-top:1rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}\
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--grid)}tr.kneerow{font-weight:600}\
th:first-child,td:first-child{position:sticky;left:0;background:var(--bg)}";

/// The page.
#[must_use]
pub fn page(command_line: &str, system: &System, points: &[Measured]) -> String {
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Sweep</title>\
         <style>{STYLE}{PAGE}</style></head><body>\n<h1>Load sweep</h1>\n<p><code>{}</code></p>\n<p>{}, {}, {} processors. \
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
    let _ = write!(out, "<h2>{}</h2>\n<div class=\"charts\">\n", escape(&title(first)));
    let mark = knee.and_then(|knee| series.get(knee)).map(at);
    let depth = "requests outstanding per thread";
    let iops = series.iter().map(|point| (at(point), point.mean(|run| run.iops))).collect();
    out.push_str(&figure(&Chart {
        name: "IOPS by depth",
        x_name: depth,
        y_name: "I/O per s",
        lines: &[Line { name: "mean of runs".into(), points: iops }],
        mark,
        scale: Scale::Doubling,
        decades: false,
    }));
    out.push_str(&figure(&Chart {
        name: "Latency by depth",
        x_name: depth,
        y_name: "milliseconds",
        lines: &latencies(series),
        mark,
        scale: Scale::Doubling,
        decades: true,
    }));
    if let Some(point) = knee.and_then(|knee| series.get(knee)) {
        let quoted = point.runs.get(point.quoted());
        if let Some(run) = quoted.filter(|run| run.series.len() > 1) {
            let seconds = f64::from(run.interval_ms.max(1)) / 1000.0;
            let points = run.series.iter().enumerate();
            let points = points.map(|(index, iops)| ((index + 1) as f64 * seconds, *iops)).collect();
            let name = format!("depth {}, run {}", point.depth, point.quoted() + 1);
            out.push_str(&figure(&Chart {
                name: "IOPS over time at the knee",
                x_name: "seconds",
                y_name: "I/O per s",
                lines: &[Line { name, points }],
                mark: None,
                scale: Scale::Even,
                decades: false,
            }));
        }
        if let Some(run) = quoted {
            let points = [50.0, 90.0, 99.0, 99.9].into_iter().zip(run.percentiles_ms);
            // Nines as even steps: 50 %, 90 %, 99 %, 99.9 %.
            let points = points.map(|(percent, ms): (f64, f64)| (-(1.0 - percent / 100.0).log10(), ms));
            let line = Line {
                name: format!("depth {}, run {}", point.depth, point.quoted() + 1),
                points: points.collect(),
            };
            out.push_str(&figure(&Chart {
                name: "Latency percentiles at the knee",
                x_name: "percentile",
                y_name: "milliseconds",
                lines: &[line],
                mark: None,
                scale: Scale::Nines,
                decades: false,
            }));
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

/// A chart with its heading and its legend.
fn figure(chart: &Chart<'_>) -> String {
    let name = chart.name;
    let mut out = format!(
        "<figure><figcaption>{name}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\">{}\
         </svg><div class=\"legend\">",
        chart.drawing()
    );
    for (index, line) in chart.lines.iter().enumerate() {
        let _ = write!(out, "<b class=\"l{}\"></b>{}", index % CLASSES, escape(&line.name));
    }
    out.push_str("</div></figure>\n");
    out
}

/// IOPS and latency by depth as one picture without a page around it. Several series share it, with the mean latency of
/// each; one alone has the knee and its percentiles.
#[must_use]
pub fn picture(points: &[Measured]) -> String {
    let all = series(points);
    let depth = "requests outstanding per thread";
    let line = |name: String, series: &[Measured], figure: &dyn Fn(&Measured) -> f64| Line {
        name,
        points: series.iter().map(|point| (f64::from(point.depth), figure(point))).collect(),
    };
    let iops = |series: &&[Measured]| {
        line(series.first().map(title).unwrap_or_default(), series, &|point| point.mean(|run| run.iops))
    };
    let iops: Vec<Line> = all.iter().map(iops).collect();
    let (latency, mark) = match all.as_slice() {
        [one] => {
            (latencies(one), knee_of(one).and_then(|knee| one.get(knee)).map(|point| f64::from(point.depth)))
        }
        _ => {
            let mean = |series: &&[Measured]| {
                let name = series.first().map(|first| format!("mean, {}", title(first))).unwrap_or_default();
                line(name, series, &|point| point.mean(|run| run.mean_ms))
            };
            (all.iter().map(mean).collect(), None)
        }
    };
    let charts = [
        Chart {
            name: "IOPS by depth",
            x_name: depth,
            y_name: "I/O per s",
            lines: &iops,
            mark,
            scale: Scale::Doubling,
            decades: false,
        },
        Chart {
            name: "Latency by depth",
            x_name: depth,
            y_name: "milliseconds",
            lines: &latency,
            mark,
            scale: Scale::Doubling,
            decades: true,
        },
    ];
    let (heading, entry) = (30.0, 22.0);
    let mut body = String::new();
    let mut y = 0.0;
    for chart in &charts {
        let _ = write!(
            body,
            "<text class=\"name\" x=\"8\" y=\"{}\">{}</text><g transform=\"translate(0 {})\">{}</g>",
            y + 20.0,
            chart.name,
            y + heading,
            chart.drawing()
        );
        y += heading + HEIGHT + 4.0;
        for (index, line) in chart.lines.iter().enumerate() {
            y += entry;
            let _ = write!(
                body,
                "<rect class=\"d{}\" x=\"90\" y=\"{}\" width=\"20\" height=\"4\"/><text x=\"118\" y=\"{y}\">{}</text>",
                index % CLASSES,
                y - 7.0,
                escape(&line.name)
            );
        }
        y += 14.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\">\
         <style>{STYLE}</style><rect width=\"{WIDTH}\" height=\"{y}\" style=\"fill:var(--bg)\"/>{body}</svg>\n"
    )
}

/// Mean and percentiles of a series by depth.
fn latencies(series: &[Measured]) -> Vec<Line> {
    let line = |name: &str, figure: &dyn Fn(&Measured) -> f64| Line {
        name: name.into(),
        points: series.iter().map(|point| (f64::from(point.depth), figure(point))).collect(),
    };
    let percentile = |index: usize| {
        move |point: &Measured| point.mean(|run| run.percentiles_ms.get(index).copied().unwrap_or(0.0))
    };
    vec![
        line("mean", &|point| point.mean(|run| run.mean_ms)),
        line("50th", &percentile(0)),
        line("99th", &percentile(2)),
        line("99.9th", &percentile(3)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::RunFigures;

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
        assert!(page.contains("knee: 1") && page.contains(">seconds<"));
    }

    #[test]
    fn a_picture_has_the_knee_of_one_series_or_a_line_of_each() {
        let run = RunFigures { iops: 5.0, mean_ms: 1.0, ..RunFigures::default() };
        let point = |threads, depth| Measured {
            threads,
            depth,
            block: 4096,
            runs: vec![run.clone()],
            ..Measured::default()
        };
        let one = picture(&[point(1, 1), point(1, 2)]);
        assert!(one.starts_with("<svg xmlns=") && one.contains("knee: 1") && one.contains(">99.9th<"));
        assert_eq!(one.matches("<polyline").count(), 5);
        let two = picture(&[point(1, 1), point(1, 2), point(2, 1), point(2, 2)]);
        assert_eq!(two.matches("<polyline").count(), 4);
        assert!(two.contains(">4KiB reads, 2 threads<") && !two.contains("knee: "));
        assert!(!picture(&[]).contains("NaN"));
    }
}
