//! Where threads wait for each other before the load begins.
//!
//! Unlike a barrier it holds nobody for ever when a thread cannot be started, or ends before it has arrived.

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    arrived: usize,
    failed: bool,
    /// Whether the load begins, and when; `Some(None)`: it does not.
    opened: Option<Option<u64>>,
}

/// The gate.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// A thread on its way to the gate; dropped before it arrives, it has failed.
pub(crate) struct Coming<'a>(Option<&'a Gate>);

impl Gate {
    /// A thread is on its way.
    pub(crate) fn expect(&self) -> Coming<'_> {
        Coming(Some(self))
    }

    fn arrive(&self, well: bool) {
        let mut state = self.state.lock();
        state.arrived += 1;
        state.failed |= !well;
        self.changed.notify_all();
    }

    /// Waits until so many threads have arrived, or failed; whether all are well.
    pub(crate) fn gathered(&self, threads: usize) -> bool {
        let mut state = self.state.lock();
        while state.arrived < threads {
            self.changed.wait(&mut state);
        }
        !state.failed
    }

    /// Lets all threads go: the load begins at this time, or not at all.
    pub(crate) fn open(&self, start: Option<u64>) {
        self.state.lock().opened = Some(start);
        self.changed.notify_all();
    }
}

impl Coming<'_> {
    /// Arrives and waits; returns when the load begins, or `None` when it does not.
    pub(crate) fn wait(mut self, well: bool) -> Option<u64> {
        let gate = self.0.take()?;
        gate.arrive(well);
        let mut state = gate.state.lock();
        loop {
            if let Some(opened) = state.opened {
                return opened;
            }
            gate.changed.wait(&mut state);
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.arrive(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_on_the_way_keeps_nobody() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.expect().wait(true));
            scope.spawn(|| drop(gate.expect()));
            assert!(!gate.gathered(2));
            gate.open(None);
            assert_eq!(waits.join().unwrap(), None);
        });
    }

    #[test]
    fn all_go_at_the_same_time() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.expect().wait(true))).collect();
            assert!(gate.gathered(3));
            gate.open(Some(7));
            assert!(threads.into_iter().all(|thread| thread.join().unwrap() == Some(7)));
        });
    }
}
