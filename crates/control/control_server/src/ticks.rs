//! Looks that are taken equally often are taken together: an idle node wakes up once for all of them, as waking up is most of what it does.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// Waits for the next multiple of `every` since the process began to tick.
pub(crate) async fn tick(every: Duration) {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let passed = BEGAN.get_or_init(Instant::now).elapsed();
    tokio::time::sleep(until_next(passed, every)).await;
}

/// How long it is from `passed` to the next multiple of `every`; never nothing.
fn until_next(passed: Duration, every: Duration) -> Duration {
    let over = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or(0);
    every.saturating_sub(Duration::from_nanos(u64::try_from(over).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_meet() {
        let ms = Duration::from_millis;
        assert_eq!(until_next(ms(0), ms(100)), ms(100));
        assert_eq!(until_next(ms(1), ms(100)), ms(99));
        assert_eq!(until_next(ms(199), ms(100)), ms(1));
        // The slower one meets the faster one.
        assert_eq!(until_next(ms(1_150), ms(200)), ms(50));
        assert_eq!(until_next(ms(1_150), ms(100)), ms(50));
        assert_eq!(until_next(ms(7), ms(0)), ms(0));
    }
}
