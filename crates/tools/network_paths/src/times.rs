//! Requests of one kind, and how long their answers took.

use std::time::Duration;

use serde::Serialize;

/// Requests of one kind, and how long their answers took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tries {
    /// How many were made.
    pub made: u32,
    /// How many were answered.
    pub answered: u32,
    /// The shortest time, in microseconds; 0 without an answer, as the next two.
    pub least_us: u64,
    /// The time that half of them did not exceed.
    pub median_us: u64,
    /// The longest time.
    pub most_us: u64,
    /// What the last one without an answer ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Tries {
    /// Of each request: how long it took, or why it has no answer.
    pub(crate) fn of(results: Vec<Result<Duration, String>>) -> Self {
        let made = results.len() as u32;
        let mut problem = None;
        let mut times = Vec::new();
        for result in results {
            match result {
                Ok(time) => times.push(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
                Err(why) => problem = Some(why),
            }
        }
        times.sort_unstable();
        let at = |place: usize| times.get(place).copied().unwrap_or(0);
        Self {
            made,
            answered: times.len() as u32,
            least_us: at(0),
            median_us: at(times.len().saturating_sub(1) / 2),
            most_us: at(times.len().saturating_sub(1)),
            problem,
        }
    }

    /// Hundredths that were not answered.
    #[must_use]
    pub fn lost_percent(&self) -> u32 {
        (self.made.saturating_sub(self.answered) * 100).checked_div(self.made).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_summed_up() {
        let us = |count| Ok(Duration::from_micros(count));
        let tries = Tries::of(vec![us(30), Err("lost".into()), us(10), us(20)]);
        assert_eq!((tries.made, tries.answered, tries.lost_percent()), (4, 3, 25));
        assert_eq!((tries.least_us, tries.median_us, tries.most_us), (10, 20, 30));
        assert_eq!(tries.problem.as_deref(), Some("lost"));
        assert_eq!(Tries::of(Vec::new()).lost_percent(), 0);
        assert_eq!(Tries::of(vec![Err("no".into())]).median_us, 0);
    }
}
