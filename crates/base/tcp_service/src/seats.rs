//! Who may hold how many connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Connections that have not logged in, by where they came from.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<BTreeMap<IpAddr, usize>>);

impl Logins {
    /// A seat; `None` when there are `all` already, or `per_address` from there.
    pub(crate) fn seat(
        self: &Arc<Self>,
        address: IpAddr,
        all: usize,
        per_address: usize,
    ) -> Option<LoginSeat> {
        let mut logins = self.0.lock();
        if logins.values().sum::<usize>() >= all {
            return None;
        }
        let count = logins.entry(address).or_insert(0);
        if *count >= per_address {
            return None;
        }
        *count += 1;
        Some(LoginSeat { logins: Arc::clone(self), address })
    }
}

/// Counts a connection among those that have not logged in. To be dropped when it has.
#[derive(Debug)]
pub struct LoginSeat {
    logins: Arc<Logins>,
    address: IpAddr,
}

impl Drop for LoginSeat {
    fn drop(&mut self) {
        let mut logins = self.logins.0.lock();
        if let Some(count) = logins.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                logins.remove(&self.address);
            }
        }
    }
}

/// Counts a connection of a listener while it lives.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    pub(crate) fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |now| (now < most).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
