//! Tokens: made by a member, kept as a hash, gone when they are used.

use cluster_identity::{ClusterIdentity, JoinToken, TOKEN_SECONDS};
use cluster_store::keys::Key;
use cluster_store::values::{TokenEntry, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Step, Transaction};

use crate::error::{JoinError, Kind};

/// The most tokens that wait to be used.
const MAX_TOKENS: usize = 100;

/// Makes a token that counts from `now` (seconds since 1970) on; also until when. Those that have ended are taken away.
///
/// # Errors
/// When etcd does not answer, or there are too many tokens already.
pub async fn make_token(
    store: &dyn ClusterStore,
    identity: &ClusterIdentity,
    now: u64,
) -> Result<(JoinToken, u64), JoinError> {
    let record = &identity.record;
    let prefix = format!("{}tokens/", record.cluster.root());
    let found = store.get(Range::Prefix(prefix)).await?.found;
    let (ended, counting): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| TokenEntry::decode(&found.value).map_or(true, |entry| entry.expires <= now));
    if counting.len() >= MAX_TOKENS {
        return Err(JoinError::new(
            Kind::State,
            format!("There are {MAX_TOKENS} tokens that nobody has used."),
            "Use one of them, or wait: each ends after 24 hours.",
        ));
    }
    let authority = identity.authority().map_err(JoinError::damaged)?;
    let token = JoinToken::new(authority.fingerprint(), record.api_address)
        .map_err(|why| JoinError::new(Kind::State, why.to_string(), "Try again."))?;
    let expires = now.saturating_add(TOKEN_SECONDS);
    let entry = TokenEntry { expires, made_by: record.node };
    let key = Key::Token(token.key()).path(&record.cluster);
    let mut steps = vec![Step::Put(key.clone(), entry.encode().map_err(JoinError::damaged)?)];
    // As many as one transaction may change.
    steps.extend(ended.into_iter().take(50).map(|found| Step::Delete(found.key)));
    let conditions = vec![Condition::Absent(key)];
    store.transact(Transaction { conditions, steps, reads: Vec::new() }).await?;
    Ok((token, expires))
}
