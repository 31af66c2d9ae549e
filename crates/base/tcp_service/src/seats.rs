//! Who may hold how many connections.
//!
//! Whoever has not logged in, or has only said who it is (a service knows), holds a login seat. When there are none left, the one who has waited longest with one loses it,
//! and the connection: of the same address, or of the address that has most. So strangers who open connections and say nothing
//! keep nobody out, also not from behind the same gateway; a login takes less time than it takes them to open as many again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Tells a connection that it has lost its login seat.
pub(crate) type Lost = Arc<Notify>;

#[derive(Debug)]
struct Held {
    listener: u64,
    lost: Lost,
}

#[derive(Debug, Default)]
struct Lists {
    next: u64,
    count: usize,
    /// By address, oldest first.
    held: BTreeMap<IpAddr, BTreeMap<u64, Held>>,
}

impl Lists {
    fn take(&mut self, address: IpAddr, number: u64) -> Option<Held> {
        let seats = self.held.get_mut(&address)?;
        let held = seats.remove(&number)?;
        if seats.is_empty() {
            self.held.remove(&address);
        }
        self.count -= 1;
        Some(held)
    }

    fn oldest(&self, address: IpAddr) -> Option<u64> {
        self.held.get(&address)?.keys().next().copied()
    }
}

/// Connections that have not logged in, by where they came from.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Lists>);

impl Logins {
    /// A seat for a connection of `listener`, and who lost one for it: where there were `all` already, or `per_address` from
    /// there.
    pub(crate) fn seat(
        self: &Arc<Self>,
        listener: u64,
        address: IpAddr,
        all: usize,
        per_address: usize,
    ) -> (LoginSeat, Lost, Option<IpAddr>) {
        let mut lists = self.0.lock();
        let here = lists.held.get(&address).map_or(0, BTreeMap::len);
        let from = if here >= per_address {
            Some(address)
        } else if lists.count >= all {
            lists.held.iter().max_by_key(|(_, seats)| seats.len()).map(|(address, _)| *address)
        } else {
            None
        };
        let loser = from.and_then(|from| Some((from, lists.oldest(from)?)));
        if let Some((from, number)) = loser
            && let Some(held) = lists.take(from, number)
        {
            held.lost.notify_one();
        }
        let number = lists.next;
        lists.next += 1;
        lists.count += 1;
        let lost = Lost::default();
        let held = Held { listener, lost: Arc::clone(&lost) };
        lists.held.entry(address).or_default().insert(number, held);
        (LoginSeat { logins: Arc::clone(self), address, number }, lost, loser.map(|(from, _)| from))
    }

    /// Ends the connection of `listener` that has gone longest without a login; `None` where all have logged in.
    pub(crate) fn end_oldest(&self, listener: u64) -> Option<IpAddr> {
        let mut lists = self.0.lock();
        let all =
            lists.held.iter().flat_map(|(address, seats)| seats.iter().map(move |seat| (*address, seat)));
        let (address, number) = all
            .filter(|(_, (_, held))| held.listener == listener)
            .map(|(address, (number, _))| (address, *number))
            .min_by_key(|(_, number)| *number)?;
        lists.take(address, number)?.lost.notify_one();
        Some(address)
    }
}

/// Counts a connection among those that have not logged in. To be dropped when it has, to work.
#[derive(Debug)]
pub struct LoginSeat {
    logins: Arc<Logins>,
    address: IpAddr,
    number: u64,
}

impl Drop for LoginSeat {
    fn drop(&mut self) {
        // It may have been lost already.
        let _ = self.logins.0.lock().take(self.address, self.number);
    }
}

/// Counts a connection of a listener while it lives.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// A seat; `None` when there are `most` already.
    pub(crate) fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |now| (now < most).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(count)))
    }

    /// A seat in the place of one that is being given up.
    pub(crate) fn instead(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
