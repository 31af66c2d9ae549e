//! Tokens of offloaded transfers: a token stands for data as they were when it was made (`fsctl/offload.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use shard_runtime::{Entropy, Monotonic};
use smb_protocol::fsctl::copy::OffloadToken;
use smb_protocol::security::Sid;

use super::Open;
use crate::api::Caller;

/// Our type of token; the specification leaves all but a few values to vendors.
const TOKEN_KIND: u32 = 0x4846_0001;
/// Most tokens at a time: clients use each at once.
const TOKENS_MAX: usize = 4096;

/// What a token says: random bytes.
type TokenId = [u8; 24];

/// What a token stands for.
#[derive(Clone)]
pub(crate) struct Transfer {
    /// Not kept open, nor known, for the token: with the open it ends.
    pub(crate) source: Weak<Open>,
    pub(crate) user: Sid,
    pub(crate) root: file_store::FileId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) version: u64,
    pub(crate) expires: Monotonic,
}

impl Transfer {
    /// The source, if it is still open.
    pub(crate) fn source(&self) -> Option<Arc<Open>> {
        self.source.upgrade().filter(|source| !source.is_closed())
    }

    /// Whether this is who asked for the token, over the same share.
    fn is_for(&self, caller: &Caller) -> bool {
        self.user == caller.token.user && self.root == caller.share.root
    }
}

/// Tokens that were given out.
pub(crate) struct Tokens {
    entropy: Arc<dyn Entropy>,
    /// How many were ever given out: their order.
    count: u64,
    given: BTreeMap<TokenId, (u64, Transfer)>,
}

impl Tokens {
    /// None yet.
    pub(crate) fn new(entropy: Arc<dyn Entropy>) -> Self {
        Self { entropy, count: 0, given: BTreeMap::new() }
    }

    /// Gives a token out; what is returned besides must be dropped without the lock.
    pub(crate) fn give(&mut self, transfer: Transfer, now: Monotonic) -> (OffloadToken, Vec<Transfer>) {
        let is_dead = |transfer: &Transfer| transfer.expires <= now || transfer.source().is_none();
        let mut dead: Vec<TokenId> =
            self.given.iter().filter(|(_, (_, transfer))| is_dead(transfer)).map(|(id, _)| *id).collect();
        if self.given.len() - dead.len() >= TOKENS_MAX {
            dead.extend(self.one_too_many());
        }
        let spare =
            dead.iter().filter_map(|id| self.given.remove(id)).map(|(_, transfer)| transfer).collect();
        let mut id = TokenId::default();
        self.entropy.fill(&mut id);
        self.count += 1;
        self.given.insert(id, (self.count, transfer));
        (OffloadToken::new(TOKEN_KIND, &id), spare)
    }

    /// The oldest token of the user that has most: nobody takes others theirs by asking for many.
    fn one_too_many(&self) -> Option<TokenId> {
        let mut users: BTreeMap<Sid, (usize, u64, TokenId)> = BTreeMap::new();
        for (id, (order, transfer)) in &self.given {
            let (count, oldest, which) = users.entry(transfer.user).or_insert((0, *order, *id));
            *count += 1;
            if order < oldest {
                (*oldest, *which) = (*order, *id);
            }
        }
        users.into_values().max_by_key(|(count, ..)| *count).map(|(.., id)| id)
    }

    pub(crate) fn find(&self, token: &OffloadToken, caller: &Caller, now: Monotonic) -> Option<Transfer> {
        let id = token.id().filter(|_| token.kind() == TOKEN_KIND)?;
        let (_, transfer) = self.given.get(&TokenId::try_from(id).ok()?)?;
        (transfer.is_for(caller) && transfer.expires > now).then(|| transfer.clone())
    }
}
