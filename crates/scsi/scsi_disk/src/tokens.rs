//! The tokens for blocks of a unit (ODX), each of which ends with the first change of one of its blocks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Most tokens of a unit. The oldest gives way of the initiator that has most: nobody takes them from others by asking for many.
const MAX_TOKENS: usize = 256;

/// What a token stands for.
pub(crate) struct Token {
    /// The nexus that asked for it. Others that see the unit may use it, too: hosts of a cluster give tokens to each other.
    pub(crate) nexus: u64,
    pub(crate) id: [u8; 16],
    /// Offset and length in bytes, in order.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Used since the timer looked.
    pub(crate) used: bool,
}

/// The tokens for blocks of a unit.
#[derive(Default)]
pub(crate) struct Tokens {
    /// How many there are: writes look here first.
    count: AtomicUsize,
    list: Mutex<VecDeque<Token>>,
}

impl Tokens {
    /// Ends the tokens for any of these bytes; before they change.
    pub(crate) fn changing(&self, offset: u64, len: u64) {
        if self.count.load(Ordering::SeqCst) == 0 || len == 0 {
            return;
        }
        let end = offset.saturating_add(len);
        self.retain(|token| !token.ranges.iter().any(|(start, len)| *start < end && offset < start + len));
    }

    fn retain(&self, keep: impl FnMut(&Token) -> bool) {
        let mut list = self.list.lock();
        list.retain(keep);
        self.count.store(list.len(), Ordering::SeqCst);
    }

    /// One more; the oldest of who has most gives way where there are too many.
    pub(crate) fn add(&self, token: Token) {
        let mut list = self.list.lock();
        if list.len() >= MAX_TOKENS {
            let mut counts = BTreeMap::from([(token.nexus, 1)]);
            for other in &*list {
                *counts.entry(other.nexus).or_insert(0) += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(nexus, _)| nexus);
            let place = list.iter().position(|other| Some(other.nexus) == most);
            list.remove(place.unwrap_or(0));
        }
        list.push_back(token);
        self.count.store(list.len(), Ordering::SeqCst);
    }

    /// What a token stands for, if it still does.
    pub(crate) fn find(&self, id: &[u8]) -> Option<Vec<(u64, u64)>> {
        let mut list = self.list.lock();
        let token = list.iter_mut().find(|token| token.id == id)?;
        token.used = true;
        Some(token.ranges.clone())
    }

    /// Whether the token was used since the last look; forgets it otherwise.
    pub(crate) fn still_used(&self, id: &[u8; 16]) -> bool {
        self.retain(|token| token.id != *id || token.used);
        let mut list = self.list.lock();
        list.iter_mut().find(|token| token.id == *id).is_some_and(|token| std::mem::take(&mut token.used))
    }
}
