//! When the next operation may begin: at once, when a limit allows it, after thinking, or at its intended time.

use spd_profile::{Arrival, Target, Throughput};

use crate::random::Random;

/// The pace of one thread on one target; times are nanoseconds of the run's clock.
pub(crate) enum Pacing {
    /// As soon as a slot is free.
    Closed,
    /// No faster than this on average since the beginning (`-g`).
    Throttled { nanos_per_op: f64, begun: u64, start: u64 },
    /// A burst of this many operations, then a pause (`-i`, `-j`).
    Bursts { size: u32, think: u64, left: u32, resume: u64 },
    /// At intended times (`--rate`).
    Open(Open),
}

/// The schedule of an open loop.
pub(crate) struct Open {
    /// Mean distance of operations in nanoseconds.
    mean: f64,
    arrival: Arrival,
    /// The time of the next operation; a fraction, so that rounding does not change the rate.
    next: f64,
    /// Until when all slots were taken while an operation was due.
    starved_until: u64,
    /// Operations of the window that were due while all slots were taken.
    pub(crate) late: u64,
    /// Operations of the window.
    pub(crate) intended: u64,
}

impl Pacing {
    /// The pace of a target in a closed loop; `start` is when the run begins.
    pub(crate) fn closed(target: &Target, start: u64) -> Self {
        if let Some(throughput) = target.throughput {
            let nanos_per_op = match throughput {
                Throughput::Iops(iops) => 1e9 / f64::from(iops.max(1)),
                Throughput::BytesPerMillisecond(bytes) => {
                    f64::from(target.block) * 1e6 / f64::from(bytes.max(1))
                }
            };
            return Self::Throttled { nanos_per_op, begun: 0, start };
        }
        match (target.burst, target.think_ms) {
            (Some(size), Some(think)) => {
                Self::Bursts { size, think: u64::from(think) * 1_000_000, left: size, resume: start }
            }
            _ => Self::Closed,
        }
    }

    /// One of `parts` equal parts of an open loop with `rate` operations per second; even arrivals of the parts
    /// alternate.
    pub(crate) fn open(
        rate: f64,
        arrival: Arrival,
        part: u64,
        parts: u64,
        start: u64,
        random: &mut Random,
    ) -> Self {
        let mean = 1e9 * parts as f64 / rate;
        let first = match arrival {
            Arrival::Even => mean * part as f64 / parts as f64,
            Arrival::Poisson => -random.unit().ln() * mean,
        };
        let next = start as f64 + first;
        Self::Open(Open { mean, arrival, next, starved_until: 0, late: 0, intended: 0 })
    }

    /// When the next operation may begin; `None`: now.
    #[inline]
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        let due = match self {
            Self::Closed => return None,
            Self::Throttled { nanos_per_op, begun, start } => {
                start.saturating_add((*begun as f64 * nanos_per_op) as u64)
            }
            Self::Bursts { resume, .. } => *resume,
            Self::Open(open) => open.next as u64,
        };
        (due > now).then_some(due)
    }

    /// An operation was due at `now`, and no slot is free.
    pub(crate) fn starve(&mut self, now: u64) {
        if let Self::Open(open) = self {
            open.starved_until = now;
        }
    }

    /// An operation begins; returns its intended time if it has one. `window` is the measured time.
    #[inline]
    pub(crate) fn begin(&mut self, now: u64, window: (u64, u64), random: &mut Random) -> Option<u64> {
        match self {
            Self::Closed => None,
            Self::Throttled { begun, .. } => {
                *begun += 1;
                None
            }
            Self::Bursts { size, think, left, resume } => {
                *left -= 1;
                if *left == 0 {
                    *left = *size;
                    *resume = now.saturating_add(*think);
                }
                None
            }
            Self::Open(open) => {
                let intended = open.next as u64;
                open.next += match open.arrival {
                    Arrival::Even => open.mean,
                    Arrival::Poisson => -random.unit().ln() * open.mean,
                };
                if (window.0..window.1).contains(&intended) {
                    open.intended += 1;
                    open.late += u64::from(intended <= open.starved_until);
                }
                Some(intended)
            }
        }
    }
}

impl Open {
    /// The load begins at `start`: the schedule, which was made from 0 on, moves there.
    pub(crate) fn begin_at(&mut self, start: u64) {
        self.next += start as f64;
    }

    /// Operations whose time had come by `end` and that did not begin: their number for even arrivals, the expected one
    /// for random ones.
    pub(crate) fn never_begun(&self, end: u64) -> u64 {
        let behind = end as f64 - self.next;
        if behind <= 0.0 { 0 } else { (behind / self.mean) as u64 + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (u64, u64) = (0, u64::MAX);

    #[test]
    fn a_throttle_spreads_operations() {
        let target = Target { throughput: Some(Throughput::Iops(1000)), ..Target::new("a") };
        let mut pacing = Pacing::closed(&target, 5_000_000);
        let mut random = Random::new(0, 0);
        assert_eq!(pacing.due(4_999_999), Some(5_000_000));
        assert_eq!(pacing.due(5_000_000), None);
        pacing.begin(5_000_000, ALL, &mut random);
        assert_eq!(pacing.due(5_000_001), Some(6_000_000));
        let target = Target {
            block: 4096,
            throughput: Some(Throughput::BytesPerMillisecond(2048)),
            ..Target::new("a")
        };
        let mut pacing = Pacing::closed(&target, 0);
        pacing.begin(0, ALL, &mut random);
        assert_eq!(pacing.due(0), Some(2_000_000));
    }

    #[test]
    fn bursts_think() {
        let target = Target { burst: Some(2), think_ms: Some(3), ..Target::new("a") };
        let mut pacing = Pacing::closed(&target, 0);
        let mut random = Random::new(0, 0);
        pacing.begin(10, ALL, &mut random);
        assert_eq!(pacing.due(11), None);
        pacing.begin(20, ALL, &mut random);
        assert_eq!(pacing.due(21), Some(3_000_020));
        assert_eq!(pacing.due(3_000_020), None);
    }

    #[test]
    fn an_open_loop_keeps_its_schedule_whatever_happens() {
        let mut random = Random::new(0, 0);
        let mut pacing = Pacing::open(1_000_000.0, Arrival::Even, 0, 2, 0, &mut random);
        // Every 2 microseconds; nothing begins for a millisecond.
        pacing.starve(1_000_000);
        let times: Vec<u64> = (0..3).map(|_| pacing.begin(1_000_000, ALL, &mut random).unwrap()).collect();
        assert_eq!(times, [0, 2000, 4000]);
        let Pacing::Open(open) = &pacing else { panic!("open") };
        assert_eq!((open.late, open.intended), (3, 3));
        assert_eq!(open.never_begun(1_000_000), 498);
        assert_eq!(open.never_begun(5000), 0);
    }

    #[test]
    fn random_arrivals_have_the_rate() {
        let mut random = Random::new(3, 0);
        let mut pacing = Pacing::open(1000.0, Arrival::Poisson, 0, 1, 0, &mut random);
        let mut last = 0;
        for _ in 0..100_000 {
            last = pacing.begin(0, ALL, &mut random).unwrap();
        }
        let seconds = last as f64 / 1e9;
        assert!((98.0..102.0).contains(&seconds), "{seconds}");
    }
}
