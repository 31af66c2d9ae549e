//! How a boot ends.

use sim::Dice;

/// How a boot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The power goes after so many events, counted from before the opening.
    CutFromStart(u64),
    /// The power goes after so many events, counted from the beginning of the workload.
    Cut(u64),
    /// The process is killed after so many milliseconds of workload.
    Kill(u64),
    /// The pool is closed, then the power goes.
    Close,
}

impl End {
    /// One of them; `opening` is about how many events an opening takes.
    pub(crate) fn choose(dice: &Dice, opening: u64) -> Self {
        match dice.below(16) {
            0..=2 => Self::CutFromStart(dice.below(opening)),
            3 | 4 => Self::CutFromStart(dice.below(opening * 15)),
            5 | 6 => Self::Kill(dice.below(8_000)),
            7 => Self::Close,
            8..=10 => Self::Cut(dice.below(opening * 4)),
            _ => Self::Cut(dice.below(opening * 50)),
        }
    }
}
