//! When pools will be full, by how they have filled up in the last week.
//!
//! The growth is the median of the slopes between all pairs of hours (Theil 1950, Sen 1968): an image that was copied in once is a step, not a
//! trend, and the mean of a line through all points would take it for one.

use std::collections::BTreeMap;

use control_api::PoolForecast;
use parking_lot::Mutex;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// Less than this says nothing: a night is not like a day.
const LEAST: u64 = DAY;

/// What is known of pools, by name.
#[derive(Debug, Default)]
pub(crate) struct Forecasts(Mutex<BTreeMap<String, Growth>>);

/// How a pool grows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Growth {
    /// Bytes in a second; below zero when it empties.
    slope: f64,
    /// Seconds that were looked at.
    over: u64,
}

/// The growth of what was used at some seconds; `None` where they are too close to each other to tell.
fn growth(points: &[(u64, u64)]) -> Option<Growth> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let over = last.checked_sub(first).filter(|over| *over >= LEAST)?;
    let mut slopes = Vec::new();
    for (place, (earlier, used_then)) in points.iter().enumerate() {
        for (later, used) in points.get(place + 1..).unwrap_or_default() {
            if later > earlier {
                slopes.push((*used as f64 - *used_then as f64) / (later - earlier) as f64);
            }
        }
    }
    let middle = slopes.len() / 2;
    if slopes.is_empty() {
        return None;
    }
    let (_, slope, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    Some(Growth { slope: *slope, over })
}

/// What that means for a pool.
fn forecast(growth: Growth, free: u64) -> PoolForecast {
    let days = free as f64 / (growth.slope * DAY as f64);
    PoolForecast {
        growth_bytes_per_day: (growth.slope * DAY as f64) as i64,
        over_hours: growth.over / HOUR,
        // In a hundred years everything is different.
        full_in_days: (growth.slope > 0.0 && days < 36_500.0).then_some(days as u64),
    }
}

impl Forecasts {
    /// Replaces what is known by what follows from how much pools used at some seconds.
    pub(crate) fn learn(&self, points: BTreeMap<String, Vec<(u64, u64)>>) {
        let known = points.into_iter().filter_map(|(pool, points)| Some((pool, growth(&points)?)));
        *self.0.lock() = known.collect();
    }

    /// When a pool with so many bytes free will be full, as far as that can be told.
    pub(crate) fn of(&self, pool: &str, free: u64) -> Option<PoolForecast> {
        let growth = self.0.lock().get(pool).copied()?;
        Some(forecast(growth, free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn hours(count: u64, used: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        (0..=count).map(|hour| (hour * HOUR, used(hour))).collect()
    }

    #[test]
    fn steady_growth_is_told_in_days() {
        let growth = growth(&hours(72, |hour| 100 * GIB + hour * GIB)).expect("three days");
        let told = forecast(growth, 240 * GIB);
        assert_eq!((told.full_in_days, told.over_hours), (Some(10), 72));
        assert_eq!(told.growth_bytes_per_day, 24 << 30);
    }

    #[test]
    fn one_large_copy_is_no_trend() {
        let step = growth(&hours(72, |hour| if hour < 70 { GIB } else { 500 * GIB })).expect("three days");
        assert_eq!(forecast(step, 100 * GIB).full_in_days, None);
    }

    #[test]
    fn what_shrinks_or_stays_is_never_full() {
        for used in [|hour: u64| 100 * GIB - hour * GIB, |_| 7] {
            let growth = growth(&hours(48, used)).expect("two days");
            assert_eq!(forecast(growth, 0).full_in_days, None, "{growth:?}");
        }
    }

    #[test]
    fn less_than_a_day_says_nothing() {
        assert_eq!(growth(&hours(23, |hour| hour * GIB)), None);
        assert_eq!(growth(&[]), None);
        // Two moments that a clock that was set made one.
        assert_eq!(growth(&[(5, 1), (5, 2)]), None);
        assert!(growth(&[(0, 1), (0, 9), (DAY, 1)]).is_some());
    }
}
