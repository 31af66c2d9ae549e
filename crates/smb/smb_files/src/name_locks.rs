//! One change of a name at a time: making, removing and renaming `name` in `directory` take turns.
//!
//! Between making a file and having an open on it registered, nobody else may open it; between the last close of a file
//! and its removal, nobody may find it. Who only opens looks whether the name is being changed and waits if so. Only the
//! name is locked, for the time of a few metadata operations: never while a client is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use file_store::FileId;
use file_store::names::fold;
use parking_lot::Mutex;
use tokio::sync::Notify;

type Key = (FileId, String);

/// The names that are being changed.
#[derive(Default)]
pub(crate) struct NameLocks {
    held: Mutex<BTreeMap<Key, Arc<Notify>>>,
}

/// A name that its holder may change; released when dropped.
pub(crate) struct NameGuard<'a> {
    locks: &'a NameLocks,
    key: Key,
}

impl NameLocks {
    /// Waits for the name, then keeps it.
    pub(crate) async fn lock(&self, directory: FileId, name: &str) -> NameGuard<'_> {
        let key = (directory, fold(name));
        loop {
            let waiting = {
                let mut held = self.held.lock();
                match held.get(&key) {
                    None => {
                        held.insert(key.clone(), Arc::default());
                        return NameGuard { locks: self, key };
                    }
                    // Made under the lock, so that the release that follows is not missed.
                    Some(released) => Arc::clone(released).notified_owned(),
                }
            };
            waiting.await;
        }
    }

    /// Whether no name is being changed.
    pub(crate) fn is_free(&self) -> bool {
        self.held.lock().is_empty()
    }

    /// Two names, in an order that cannot deadlock. The second guard is missing when they are the same.
    pub(crate) async fn lock_two<'a>(
        &'a self,
        a: (FileId, &str),
        b: (FileId, &str),
    ) -> (NameGuard<'a>, Option<NameGuard<'a>>) {
        let (first, second) = if (a.0, fold(a.1)) <= (b.0, fold(b.1)) { (a, b) } else { (b, a) };
        let one = self.lock(first.0, first.1).await;
        if one.key == (second.0, fold(second.1)) {
            return (one, None);
        }
        let two = self.lock(second.0, second.1).await;
        (one, Some(two))
    }

    /// Waits until nobody changes the name; says whether somebody did.
    pub(crate) async fn wait(&self, directory: FileId, name: &str) -> bool {
        let mut waited = false;
        loop {
            let waiting = {
                let held = self.held.lock();
                if held.is_empty() {
                    return waited;
                }
                match held.get(&(directory, fold(name))) {
                    None => return waited,
                    Some(released) => Arc::clone(released).notified_owned(),
                }
            };
            waiting.await;
            waited = true;
        }
    }
}

impl Drop for NameGuard<'_> {
    fn drop(&mut self) {
        let released = self.locks.held.lock().remove(&self.key);
        if let Some(released) = released {
            released.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn names_in_any_case_take_turns() {
        let locks = NameLocks::default();
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(locks.lock(FileId(1), "a")).poll(&mut cx) else { panic!("free") };
        let mut second = pin!(locks.lock(FileId(1), "A"));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(pin!(locks.lock(FileId(2), "a")).poll(&mut cx).is_ready());
        let mut waiter = pin!(locks.wait(FileId(1), "a"));
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut cx).is_ready());
    }

    use std::future::Future;
}
