//! Of initiators that have used a unit and gone is remembered what they are to be told: one that comes back is told at its next
//! flush, like those that stayed, that writes it had cached may be lost.

use std::collections::VecDeque;

/// How many are remembered at most; those that have nothing to be told are forgotten first.
pub(crate) const MAX_DEPARTED: usize = 256;

/// Who has gone, longest ago first, and whether cached writes may have been lost since it was told last.
#[derive(Default)]
pub(crate) struct Departed {
    ports: VecDeque<(String, bool)>,
}

impl Departed {
    /// An initiator port goes.
    pub(crate) fn leaves(&mut self, port: String, lost_writes: bool) {
        let before = self.comes_back(&port);
        if self.ports.len() == MAX_DEPARTED {
            let harmless = self.ports.iter().position(|(_, lost)| !lost);
            self.ports.remove(harmless.unwrap_or(0));
        }
        self.ports.push_back((port, lost_writes || before));
    }

    /// An initiator port is there again; whether it is to be told that cached writes may be lost.
    pub(crate) fn comes_back(&mut self, port: &str) -> bool {
        let known = self.ports.iter().position(|(known, _)| known == port);
        known.and_then(|at| self.ports.remove(at)).is_some_and(|(_, lost)| lost)
    }

    /// Who is to be told that cached writes may be lost.
    pub(crate) fn to_be_told(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().filter(|(_, lost)| *lost).map(|(port, _)| port.as_str())
    }

    /// These ports are not to be told of what was lost until now. What they have cached since may be lost still, and is told then.
    pub(crate) fn forget(&mut self, is_of: impl Fn(&str) -> bool) {
        self.ports.iter_mut().filter(|(port, _)| is_of(port)).for_each(|(_, lost)| *lost = false);
    }

    /// Cached writes may be lost: each is to be told.
    pub(crate) fn lose_writes(&mut self) {
        self.ports.iter_mut().for_each(|(_, lost)| *lost = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was agreed to be forgotten is what was lost, not what will be.
    #[test]
    fn who_is_forgotten_is_told_of_what_is_lost_later() {
        let mut departed = Departed::default();
        departed.leaves("a".into(), true);
        departed.leaves("b".into(), true);
        departed.forget(|port| port == "a");
        assert_eq!(departed.to_be_told().collect::<Vec<_>>(), ["b"]);
        departed.lose_writes();
        assert!(departed.comes_back("a") && departed.comes_back("b"));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_losses_are_kept_longest() {
        let mut departed = Departed::default();
        departed.leaves("loser".into(), true);
        for n in 0..2 * MAX_DEPARTED {
            departed.leaves(format!("host {n}"), false);
        }
        assert_eq!(departed.ports.len(), MAX_DEPARTED);
        assert!(departed.comes_back("loser") && !departed.comes_back("loser"), "once");
        assert!(!departed.comes_back(&format!("host {}", 2 * MAX_DEPARTED - 1)));
    }
}
