//! The text format of Prometheus, version 0.0.4: families with their help and type, samples with labels.

use std::fmt::Write as _;

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, until what it counts begins anew.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// Most samples of a family: 10,000 LUNs with reads, writes and the rest fit.
pub(super) const SAMPLES_MAX: usize = 40_000;
/// Bytes of a label's value after which it is cut.
const LABEL_MAX: usize = 256;

/// The text while it is written.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
    /// Samples that were left out, as their family had too many.
    left_out: u64,
}

/// A family while it is written.
pub(super) struct Family<'a> {
    text: &'a mut Text,
    name: &'static str,
    samples: usize,
}

impl Text {
    /// Begins a family. Its samples have to be added before the next one begins.
    pub(super) fn family(&mut self, kind: Kind, name: &'static str, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: self, name, samples: 0 }
    }

    /// One gauge without labels.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        self.family(Kind::Gauge, name, help).add(&[], value);
    }

    /// One counter without labels.
    pub(super) fn counter(&mut self, name: &'static str, help: &str, value: f64) {
        self.family(Kind::Counter, name, help).add(&[], value);
    }

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        let left_out = self.left_out as f64;
        self.gauge(
            "holdfast_metrics_left_out",
            "Samples that are not here because their family had too many.",
            left_out,
        );
        self.out
    }
}

impl Family<'_> {
    /// Adds a sample.
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        if self.samples >= SAMPLES_MAX {
            self.text.left_out += 1;
            return;
        }
        self.samples += 1;
        let out = &mut self.text.out;
        out.push_str(self.name);
        for (at, (label, value)) in labels.iter().enumerate() {
            out.push(if at == 0 { '{' } else { ',' });
            out.push_str(label);
            out.push_str("=\"");
            let cut = value.floor_char_boundary(LABEL_MAX);
            for letter in value[..cut].chars() {
                match letter {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    letter => out.push(letter),
                }
            }
            out.push('"');
        }
        if !labels.is_empty() {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_families_are_bounded() {
        let mut text = Text::default();
        text.family(Kind::Counter, "a_total", "Help.").add(&[("x", "q\"u\\o\nte"), ("y", "z")], 1.5);
        let mut many = text.family(Kind::Gauge, "b", "Help.");
        for _ in 0..SAMPLES_MAX + 2 {
            many.add(&[], 0.0);
        }
        let text = text.finish();
        assert!(
            text.starts_with(
                "# HELP a_total Help.\n# TYPE a_total counter\na_total{x=\"q\\\"u\\\\o\\nte\",y=\"z\"} 1.5\n"
            ),
            "{}",
            &text[..100]
        );
        assert_eq!(text.lines().filter(|line| line.starts_with("b ")).count(), SAMPLES_MAX);
        assert!(text.ends_with("holdfast_metrics_left_out 2\n"));
    }
}
