//! Use of processors between two moments, from /proc/stat.

use spd_report::CpuTime;

/// Ticks of each processor at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTicks(Vec<(u32, [u64; 3])>);

impl CpuTicks {
    /// Reads them now; empty when the system does not say.
    pub(crate) fn now() -> Self {
        std::fs::read_to_string("/proc/stat").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Lines `cpuN user nice system idle iowait irq softirq steal ...`, as user, kernel and idle time.
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.strip_prefix("cpu"));
        let cpus = lines.filter_map(|line| {
            // The line without a number is the sum of all.
            let line = Some(line).filter(|line| !line.starts_with(' '))?;
            let mut fields = line.split_ascii_whitespace();
            let id = fields.next()?.parse().ok()?;
            let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
            let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
            // `user` holds guests' time already; stolen time was nobody's here.
            Some((id, [at(0) + at(1), at(2) + at(5) + at(6), at(3) + at(4) + at(7)]))
        });
        Self(cpus.collect())
    }

    /// Percents between `earlier` and now, for processors `ids`.
    pub(crate) fn since(&self, earlier: &Self, ids: &[u32]) -> Vec<CpuTime> {
        let of = |ticks: &Self, id: u32| {
            ticks.0.iter().find(|(other, _)| *other == id).map_or([0; 3], |(_, ticks)| *ticks)
        };
        ids.iter()
            .map(|id| {
                let (now, then) = (of(self, *id), of(earlier, *id));
                let spent: [f64; 3] = std::array::from_fn(|part| {
                    let now = now.get(part).copied().unwrap_or(0);
                    now.saturating_sub(then.get(part).copied().unwrap_or(0)) as f64
                });
                let [user, kernel, idle] = spent;
                let all = user + kernel + idle;
                if all <= 0.0 {
                    return CpuTime { user: 0.0, kernel: 0.0, idle: 100.0 };
                }
                CpuTime { user: user * 100.0 / all, kernel: kernel * 100.0 / all, idle: idle * 100.0 / all }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_between_two_moments() {
        let a = CpuTicks::parse("cpu  1 1 1 1\ncpu0 10 0 10 100 0 0 0 0 0 0\ncpu1 5 5 5 5\nintr 1\n");
        let b = CpuTicks::parse("cpu0 30 10 20 130 10 10 10 0 0 0\ncpu1 5 5 5 5\n");
        let found = b.since(&a, &[0, 1, 7]);
        assert_eq!(found[0], CpuTime { user: 30.0, kernel: 30.0, idle: 40.0 });
        assert_eq!(found[1].idle, 100.0);
        assert_eq!(found.len(), 3);
    }
}
