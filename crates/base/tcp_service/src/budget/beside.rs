//! Memory of the budget that is no connection's: of whatever else grows with what clients use, and can do with less.

use std::sync::atomic::Ordering;

use super::Budget;

impl Budget {
    /// Takes memory that is no connection's, as for images that are open: while half of the budget is free, so that requests have the
    /// other half. `false` when it is not there; nobody waits for it. Who has some gives it back when others need it
    /// ([`Budget::is_tight`]).
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let shared = &self.shared;
        if shared.waiting.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let most =
            (shared.limit.load(Ordering::SeqCst) / 2).saturating_sub(shared.small.load(Ordering::SeqCst));
        let fits = |used: usize| used.checked_add(bytes).filter(|after| *after <= most);
        let fits = shared.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok();
        if fits {
            shared.beside.fetch_add(bytes, Ordering::SeqCst);
        }
        fits
    }

    /// Gives back what [`Budget::take`] gave.
    pub fn give_back(&self, bytes: usize) {
        self.shared.beside.fetch_sub(bytes, Ordering::SeqCst);
        self.shared.used.fetch_sub(bytes, Ordering::SeqCst);
        self.shared.wake_first();
    }
}
