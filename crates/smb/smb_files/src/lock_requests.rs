//! LOCK (MS-FSA 2.1.5.8, 2.1.5.9, MS-SMB2 3.3.5.14).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::lock::{LockElement, LockFlags};

use crate::error::{Result, refuse};
use crate::file_system::Open;
use crate::locks::{ByteRange, Lock, NotTaken};

/// Rights of which locking needs one.
const DATA: AccessMask = AccessMask(
    AccessMask::READ_DATA.0 | AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0 | AccessMask::EXECUTE.0,
);

/// What an element asks for.
enum Asked {
    Lock { exclusive: bool, wait: bool },
    Unlock,
    Nonsense,
}

fn asked(element: &LockElement) -> Asked {
    let now = element.flags.contains(LockFlags::FAIL_IMMEDIATELY);
    match element.flags.without(LockFlags::FAIL_IMMEDIATELY) {
        LockFlags::SHARED => Asked::Lock { exclusive: false, wait: !now },
        LockFlags::EXCLUSIVE => Asked::Lock { exclusive: true, wait: !now },
        LockFlags::UNLOCK if !now => Asked::Unlock,
        _ => Asked::Nonsense,
    }
}

fn range(element: &LockElement) -> ByteRange {
    ByteRange { offset: element.offset, length: element.length }
}

impl Open {
    /// Locks or unlocks ranges (MS-SMB2 3.3.5.14): all locks of a request or none; unlocks up to the first that fails.
    /// Waits where the only element does not fail immediately; dropping the future is CANCEL, while `on_wait` has said that it waits.
    ///
    /// # Errors
    /// LOCK_NOT_GRANTED, RANGE_NOT_LOCKED, INVALID_LOCK_RANGE, INVALID_PARAMETER, ACCESS_DENIED, FILE_CLOSED;
    /// RANGE_NOT_LOCKED also ends a wait whose open is closed.
    pub async fn lock(self: &Arc<Self>, elements: &[LockElement], on_wait: &dyn Fn(bool)) -> Result<()> {
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory has no bytes to lock");
        }
        self.needs_any(DATA, "the open neither reads nor writes")?;
        match elements.first().map(asked) {
            None | Some(Asked::Nonsense) => {
                refuse(NtStatus::INVALID_PARAMETER, "the flags of a lock make no sense")
            }
            Some(Asked::Unlock) => self.unlock_all(elements),
            Some(Asked::Lock { .. }) => self.lock_all(elements, on_wait).await,
        }
    }

    fn unlock_all(&self, elements: &[LockElement]) -> Result<()> {
        let mut result = Ok(());
        {
            let mut state = self.node.state.lock();
            let locks = &mut state.stream(&self.stream).locks;
            for element in elements {
                if !matches!(asked(element), Asked::Unlock) {
                    result = refuse(NtStatus::INVALID_PARAMETER, "a lock among unlocks");
                    break;
                }
                if !locks.unlock(self.id, range(element)) {
                    result = refuse(NtStatus::RANGE_NOT_LOCKED, "no such range is locked");
                    break;
                }
                self.node.locked.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.node.unlocked.notify_waiters();
        result
    }

    async fn lock_all(self: &Arc<Self>, elements: &[LockElement], on_wait: &dyn Fn(bool)) -> Result<()> {
        let mut wanted = Vec::with_capacity(elements.len().min(smb_protocol::lock::MAX_LOCKS));
        let mut may_wait = false;
        for element in elements {
            let Asked::Lock { exclusive, wait } = asked(element) else {
                return refuse(NtStatus::INVALID_PARAMETER, "something else among locks");
            };
            // Only a request of one element can wait: others would have to be held meanwhile.
            if wait && elements.len() > 1 {
                return refuse(NtStatus::INVALID_PARAMETER, "one of several locks that waits");
            }
            may_wait |= wait;
            let range = range(element);
            if !range.is_valid() {
                return refuse(NtStatus::INVALID_LOCK_RANGE, "the range ends beyond the last offset");
            }
            wanted.push(Lock { open: self.id, range, exclusive });
        }
        // Cached reads of others would not see that the range is locked (MS-FSA 2.1.5.8).
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        loop {
            let unlocked = self.node.unlocked.notified();
            if self.is_closed() {
                return refuse(NtStatus::RANGE_NOT_LOCKED, "the open was closed while it waited for a lock");
            }
            match self.try_all(&wanted) {
                Ok(()) => return Ok(()),
                Err(NotTaken::Full) => {
                    return refuse(NtStatus::INSUFFICIENT_RESOURCES, "the file has too many locks");
                }
                Err(NotTaken::Conflict) if !may_wait => {
                    return refuse(NtStatus::LOCK_NOT_GRANTED, "the range is locked");
                }
                Err(NotTaken::Conflict) => {}
            }
            on_wait(true);
            unlocked.await;
            on_wait(false);
        }
    }

    fn try_all(&self, wanted: &[Lock]) -> std::result::Result<(), NotTaken> {
        let mut state = self.node.state.lock();
        if self.is_closed() {
            // Its locks have been released: no new ones.
            return Err(NotTaken::Conflict);
        }
        let locks = &mut state.stream(&self.stream).locks;
        for (at, lock) in wanted.iter().enumerate() {
            if let Err(error) = locks.lock(*lock) {
                for taken in wanted.iter().take(at).rev() {
                    locks.undo(taken);
                }
                return Err(error);
            }
        }
        self.node.locked.fetch_add(wanted.len(), Ordering::AcqRel);
        Ok(())
    }
}
