//! What the machine's processors have done, from /proc/stat.

use control_api::{CounterKind, ObjectCounters, ProcessorCounters};

/// Nanoseconds of a tick of /proc/stat: programs see 100 of them in a second on every machine that we run on.
const TICK: u64 = 10_000_000;

/// All processors now; none when the system does not say.
pub(super) fn processors() -> Vec<ObjectCounters> {
    // The kernel makes the text from memory: no disk is waited for.
    std::fs::read_to_string("/proc/stat").map(|text| parse(&text)).unwrap_or_default()
}

/// Lines `cpuN user nice system idle iowait irq softirq steal ...`.
fn parse(text: &str) -> Vec<ObjectCounters> {
    let of = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        // The line without a number is the sum of all.
        let number: u32 = fields.next()?.parse().ok()?;
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let nanos = |parts: &[usize]| {
            parts
                .iter()
                .filter_map(|part| ticks.get(*part))
                .fold(0u64, |sum, ticks| sum.saturating_add(*ticks))
                .saturating_mul(TICK)
        };
        let processor = ProcessorCounters {
            user_ns: nanos(&[0, 1]),
            privileged_ns: nanos(&[2, 5, 6]),
            interrupt_ns: nanos(&[5]),
            deferred_ns: nanos(&[6]),
            idle_ns: nanos(&[3, 4, 7]),
        };
        let object = ObjectCounters::new(CounterKind::Processor, number.to_string());
        Some(ObjectCounters { processor: Some(processor), ..object })
    };
    text.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_line() {
        let text = "cpu  1 2 3 4 5 6 7 8 9 9\ncpu0 10 1 20 300 4 5 6 7 8 9\ncpu11 1 2\ncpux 1\nintr 5 0\n";
        let found = parse(text);
        let names: Vec<&str> = found.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(names, ["0", "11"]);
        let want = ProcessorCounters {
            user_ns: 11 * TICK,
            privileged_ns: 31 * TICK,
            interrupt_ns: 5 * TICK,
            deferred_ns: 6 * TICK,
            idle_ns: 311 * TICK,
        };
        assert_eq!(found[0].processor, Some(want));
        assert_eq!(found[1].processor.map(|cpu| cpu.user_ns), Some(3 * TICK));
    }

    #[test]
    fn this_machine_tells() {
        assert!(!processors().is_empty());
    }
}
