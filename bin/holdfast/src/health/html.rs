//! The report as one page that needs nothing else: the same words, and a chart of each volume's seconds.

use std::fmt::Write as _;

use super::report::Report;
use super::samples::{Sample, together};
use super::section::Section;
use super::text::cell;
use crate::finding::mark;
use crate::units::{many, time};

/// The chart's picture, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 120.0;

/// Charts at most: those of the busiest volumes.
const CHARTS: usize = 24;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --iops: #2563eb; --ms: #d97706 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } .summary { font-size: 1.1rem; font-weight: 600 }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; white-space: nowrap }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line) } td.n, th.n { text-align: right }
.finding { border-left: .3rem solid #888; padding: .2rem .8rem; margin: .6rem 0 }
.CRITICAL, .ERROR { border-color: #dc2626 } .warning { border-color: #d97706 } .todo { opacity: .8 }
svg { width: 100%; max-width: 720px; height: auto; display: block; border-bottom: 1px solid var(--line) }
figure { margin: 1rem 0 } figcaption { font-size: .9rem }";

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            other => out.push(other),
        }
    }
    out
}

/// The reports as a page.
pub(super) fn page(reports: &[Report]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Health</title><style>{STYLE}</style>\n<main>\n"
    );
    for report in reports {
        one(&mut page, report);
    }
    page + "</main></html>\n"
}

fn one(page: &mut String, report: &Report) {
    let _ = writeln!(
        page,
        "<h1>Health of {}</h1><p>{} {} UTC, Holdfast {}</p><p class=\"summary\">{}</p>",
        escaped(&report.source),
        escaped(&report.node),
        time(report.made_unix),
        escaped(&report.version),
        escaped(&report.summary)
    );
    for finding in &report.findings {
        let mark = mark(finding.severity);
        let _ = writeln!(
            page,
            "<div class=\"finding {mark}\"><b>{mark}</b> {}: {}<div class=\"todo\">{}</div></div>",
            escaped(&finding.subject),
            escaped(&finding.detail),
            escaped(&finding.todo)
        );
    }
    report.sections.iter().for_each(|each| section(page, each));
    performance(page, report);
    if !report.missing.is_empty() {
        *page += "<h2>Not looked at</h2><ul>";
        for (what, why) in &report.missing {
            let _ = write!(page, "<li>{}: {}</li>", escaped(what), escaped(why));
        }
        *page += "</ul>\n";
    }
}

fn section(page: &mut String, section: &Section) {
    let _ = writeln!(page, "<h2>{}</h2><p>{}</p>", escaped(section.title), escaped(&section.summary));
    if section.rows.is_empty() {
        return;
    }
    let rows =
        section.rows.iter().map(|row| row.iter().map(|value| (cell(value), value.is_number())).collect());
    table(page, &section.columns, rows.collect());
}

/// A table; each cell says whether it is a number, and a column of numbers is set to the right with its heading.
fn table(page: &mut String, columns: &[&str], rows: Vec<Vec<(String, bool)>>) {
    let class = |number: bool| if number { " class=\"n\"" } else { "" };
    *page += "<div class=\"scroll\"><table><tr>";
    for (at, column) in columns.iter().enumerate() {
        let numbers = rows.iter().any(|row| row.get(at).is_some_and(|(_, number)| *number));
        *page += &format!("<th{}>{}</th>", class(numbers), escaped(column));
    }
    *page += "</tr>\n";
    for row in rows {
        *page += "<tr>";
        for (text, number) in row {
            *page += &format!("<td{}>{}</td>", class(number), escaped(&text));
        }
        *page += "</tr>\n";
    }
    *page += "</table></div>\n";
}

fn performance(page: &mut String, report: &Report) {
    *page += "<h2>Performance</h2>";
    if report.performance.is_empty() {
        *page += "<p>Not measured.</p>\n";
        return;
    }
    let _ = writeln!(
        page,
        "<p>{} of one second; the volume with the highest latency first.</p>",
        many(report.samples, "sample")
    );
    let columns = [
        "POOL",
        "VOLUME",
        "SERVED AS",
        "READ IOPS",
        "WRITE IOPS",
        "TOTAL IOPS",
        "READ ms",
        "WRITE ms",
        "TOTAL ms",
    ];
    let rows = report.performance.iter().map(|line| {
        let iops =
            [line.read.iops, line.write.iops, line.total.iops].map(|value| (format!("{value:.0}"), true));
        let latencies =
            [line.read, line.write, line.total].map(|each| (format!("{:.3}", each.latency_ms), true));
        let names = [&line.pool, &line.volume, &line.served_as].map(|name| (name.clone(), false));
        names.into_iter().chain(iops).chain(latencies).collect()
    });
    table(page, &columns, rows.collect());
    for line in report.performance.iter().filter(|line| line.total.iops > 0.0).take(CHARTS) {
        let of_it = |sample: &&Sample| sample.pool == line.pool && sample.volume == line.volume;
        let seconds: Vec<&Sample> = report.seconds.iter().filter(of_it).collect();
        chart(page, &line.volume, &seconds);
    }
}

/// IOPS and latency over the seconds, each to its own scale, whose ends are written.
fn chart(page: &mut String, volume: &str, seconds: &[&Sample]) {
    let totals: Vec<_> = seconds.iter().map(|sample| together(sample.read, sample.write)).collect();
    let most = |of: fn(&super::samples::Operations) -> f64| totals.iter().map(of).fold(0.0, f64::max);
    let (iops, ms) = (most(|each| each.iops), most(|each| each.latency_ms));
    let line = |of: fn(&super::samples::Operations) -> f64, top: f64| {
        let step = WIDTH / (totals.len().max(2) - 1) as f64;
        let points = totals.iter().enumerate().map(|(at, each)| {
            let height = if top > 0.0 { of(each) / top } else { 0.0 };
            format!("{:.1},{:.1}", at as f64 * step, (HEIGHT - 2.0) * (1.0 - height) + 1.0)
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let name = escaped(volume);
    let _ = writeln!(
        page,
        "<figure><figcaption>{name}: <span style=\"color:var(--iops)\">IOPS, at most {iops:.0}</span>, <span style=\"color:var(--ms)\">latency, at most {ms:.3} ms</span></figcaption>\
<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"IOPS and latency of {name}\"><polyline fill=\"none\" stroke=\"var(--iops)\" stroke-width=\"2\" points=\"{}\"/>\
<polyline fill=\"none\" stroke=\"var(--ms)\" stroke-width=\"2\" points=\"{}\"/></svg></figure>",
        line(|each| each.iops, iops),
        line(|each| each.latency_ms, ms),
    );
}

#[cfg(test)]
mod tests {
    use super::super::bundle::Bundle;
    use super::*;

    #[test]
    fn names_are_text_whatever_they_hold() {
        let mut bundle = Bundle::new("1", 0);
        bundle.manifest.node = "<script>alert(1)</script>".into();
        let sample = Sample {
            sample: 1,
            volume: "\"><img src=x>".into(),
            read: super::super::samples::Operations { iops: 1.0, latency_ms: 1.0, bytes_per_second: 1.0 },
            ..Sample::default()
        };
        bundle.put_json("samples.json", &vec![sample]);
        let page = page(&[Report::of(&bundle, "x", &[])]);
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
        assert!(page.contains("<polyline"), "{page}");
    }
}
