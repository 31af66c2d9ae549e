//! The configuration that all nodes of a cluster have in common, in the store.
//!
//! ```text
//!   config/head            revision, number of chunks, length, checksum      changed by compare-and-swap only
//!   config/REVISION/I      JSON of `SharedConfig`, sealed, cut into chunks   written before the head, never changed
//! ```
//! It has secrets (CHAP): etcd, whoever runs it, has them sealed only. What an earlier release wrote plainly is read, and sealed with the next change.
//!
//! A change that fits one transaction is one. A longer one writes its chunks first, each only while the head is the one that was seen, under a
//! revision that nobody else has; the head comes last, and takes the chunks of the revision before with it. Whoever has read a head and does
//! not find its chunks reads the head again.

use std::time::Duration;

use byte_codec::xxh3;
use cluster_store::keys::{ClusterName, Key};
use cluster_store::values::{ConfigHead, Value as _};
use cluster_store::{
    ClusterStore, Condition, MAX_REQUEST, MAX_VALUE, Range, Revision, Step, StoreError, Transaction,
};
use control_api::{Code, Problem, SharedConfig};
use zeroize::Zeroizing;

use super::seal::ConfigSeal;

/// The store is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A head whose chunks are gone is read again so often.
const READS: u32 = 8;
/// Room in a transaction for keys, conditions and the head.
const OVERHEAD: usize = 8192;
/// Bits of a revision by which two nodes that write at once do not write the same chunks.
const CHANCE_BITS: u32 = 20;

/// What became of a change.
pub(crate) enum Written {
    /// It was made: this is the head now.
    Made((Revision, ConfigHead)),
    /// It was not made and never will be: somebody else's came first.
    Passed,
    /// No answer came: it may have been made, or may yet be. The head that it would have.
    Unknown(ConfigHead, Problem),
}

/// A configuration as it is in the store.
pub(crate) struct Stored {
    /// The head as it was when it was read.
    pub(crate) head: Option<(Revision, ConfigHead)>,
    /// What it says; none when nobody has written one yet.
    pub(crate) config: Option<SharedConfig>,
}

fn away(error: &StoreError) -> Problem {
    let todo = match error {
        StoreError::Unknown(_) => {
            "Whether the change was made is not known: look before you try again. `holdfast cluster status` says what is away."
        }
        _ => {
            "Nothing was changed. Try again when etcd can be reached; `holdfast cluster status` says what is away."
        }
    };
    Problem::new(Code::Unavailable, format!("the configuration of the cluster: {error}")).todo(todo)
}

fn damaged(why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Damaged, format!("the configuration of the cluster, in etcd: {why}"))
        .todo("This node goes on with the one that it knew last.")
}

async fn answer<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let answered = tokio::time::timeout(PATIENCE, asked).await;
    answered.unwrap_or_else(|_| Err(StoreError::Unknown(format!("no answer in {PATIENCE:?}"))))
}

async fn within<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, Problem> {
    answer(asked).await.map_err(|error| away(&error))
}

/// For what was asked before the transaction that makes a change: without an answer it is certain that the change was not made.
fn not_made(error: &StoreError) -> Problem {
    away(&StoreError::NotDone(error.to_string()))
}

async fn head(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
) -> Result<Option<(Revision, ConfigHead)>, Problem> {
    let found = within(store.get(Range::Key(Key::ConfigHead.path(cluster)))).await?.found.into_iter().next();
    let decoded = found.map(|found| Ok((found.modified, ConfigHead::decode(&found.value)?)));
    decoded.transpose().map_err(|why: cluster_store::values::ValueError| damaged(why))
}

/// Reads it. `known` is the head of what is known already: then there is nothing to read.
pub(crate) async fn read(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    seal: &ConfigSeal,
    known: Option<Revision>,
) -> Result<Option<Stored>, Problem> {
    for _ in 0..READS {
        let Some((at, head)) = head(store, cluster).await? else {
            return Ok(Some(Stored { head: None, config: None }));
        };
        if known == Some(at) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for index in 0..head.chunks {
            let key = Key::ConfigChunk(head.revision, index).path(cluster);
            let Some(chunk) = within(store.get(Range::Key(key))).await?.found.into_iter().next() else {
                break;
            };
            bytes.extend_from_slice(&chunk.value);
        }
        // Somebody has changed it meanwhile: its chunks are gone.
        if bytes.len() as u64 != head.length {
            continue;
        }
        if xxh3(&bytes) != head.checksum {
            return Err(damaged("its checksum is wrong"));
        }
        let bytes = seal.open(bytes).map_err(|why| damaged(format!("what is sealed {why}")))?;
        let config = serde_json::from_slice(&bytes).map_err(damaged)?;
        return Ok(Some(Stored { head: Some((at, head)), config: Some(config) }));
    }
    Err(damaged("parts of it are missing"))
}

/// What the head in the store says of a change that had no answer.
///
/// # Errors
/// When the store cannot be asked.
pub(crate) async fn became_of(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    seen: Option<&(Revision, ConfigHead)>,
    tried: &ConfigHead,
) -> Result<Fate, Problem> {
    let Some((at, now)) = head(store, cluster).await? else { return Ok(Fate::Open) };
    if now.revision == tried.revision {
        return Ok(Fate::Made((at, now)));
    }
    if seen.is_some_and(|(seen, _)| *seen == at) {
        return Ok(Fate::Open);
    }
    // Revisions count changes: another one with the same number was made in place of this one. Of a later one nobody knows
    // on what it was built.
    let same_number = now.revision >> CHANCE_BITS == tried.revision >> CHANCE_BITS;
    Ok(if same_number { Fate::Passed } else { Fate::Lost })
}

/// What became of a change that had no answer.
pub(crate) enum Fate {
    /// It was made.
    Made((Revision, ConfigHead)),
    /// Another one was made in its place.
    Passed,
    /// Neither it nor another one was made until now; it may still be on its way.
    Open,
    /// So much has happened since that it cannot be told.
    Lost,
}

/// Replaces it if its head is still what was seen.
///
/// # Errors
/// When it was certainly not made.
pub(crate) async fn write(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    seal: &ConfigSeal,
    seen: Option<&(Revision, ConfigHead)>,
    config: &SharedConfig,
) -> Result<Written, Problem> {
    let internal =
        |why: String| Problem::new(Code::Internal, format!("the configuration of the cluster: {why}"));
    let plain = Zeroizing::new(serde_json::to_vec(config).map_err(|error| internal(error.to_string()))?);
    let bytes = seal.seal(&plain).map_err(internal)?;
    let chance =
        getrandom::u64().map_err(|error| internal(format!("the system gives no random numbers: {error}")))?;
    let chance = chance & ((1 << CHANCE_BITS) - 1);
    let count = seen.map_or(0, |(_, head)| head.revision >> CHANCE_BITS) + 1;
    let revision = (count << CHANCE_BITS) | chance;
    let chunks: Vec<&[u8]> = bytes.chunks(MAX_VALUE).collect();
    let new = ConfigHead {
        revision,
        chunks: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
        length: bytes.len() as u64,
        checksum: xxh3(&bytes),
    };
    let value = new.encode().map_err(|why| internal(why.to_string()))?;
    let path = Key::ConfigHead.path(cluster);
    let is_seen = || Condition::Modified(path.clone(), seen.map_or(Revision(0), |(at, _)| *at));
    let chunk =
        |index: usize| Key::ConfigChunk(revision, u32::try_from(index).unwrap_or(u32::MAX)).path(cluster);
    let mut steps = vec![Step::Put(path.clone(), value)];
    if let Some((_, old)) = seen {
        steps.extend(
            (0..old.chunks).map(|index| Step::Delete(Key::ConfigChunk(old.revision, index).path(cluster))),
        );
    }
    let mut conditions = vec![is_seen()];
    if bytes.len() + OVERHEAD <= MAX_REQUEST && chunks.len() <= 1 {
        steps.extend(chunks.iter().enumerate().map(|(index, bytes)| Step::Put(chunk(index), bytes.to_vec())));
    } else {
        for (index, bytes) in chunks.iter().enumerate() {
            let part = Transaction {
                conditions: vec![is_seen(), Condition::Absent(chunk(index))],
                steps: vec![Step::Put(chunk(index), bytes.to_vec())],
                reads: Vec::new(),
            };
            let put = answer(store.transact(part)).await;
            if !put.as_ref().is_ok_and(|outcome| outcome.done) {
                remove(store, (0..=index).map(chunk)).await;
                return put.map(|_| Written::Passed).map_err(|error| not_made(&error));
            }
            conditions.push(Condition::Present(chunk(index)));
        }
    }
    match answer(store.transact(Transaction { conditions, steps, reads: Vec::new() })).await {
        Ok(outcome) if outcome.done => Ok(Written::Made((outcome.revision, new))),
        Err(error) if !error.is_certainly_not_done() => Ok(Written::Unknown(new, away(&error))),
        refused => {
            remove(store, (0..chunks.len()).map(chunk)).await;
            refused.map(|_| Written::Passed).map_err(|error| away(&error))
        }
    }
}

/// What was written for a change that was not made: nobody refers to it.
async fn remove(store: &dyn ClusterStore, keys: impl Iterator<Item = String>) {
    let steps: Vec<Step> = keys.map(Step::Delete).collect();
    if !steps.is_empty() {
        let _ = store.transact(Transaction { steps, ..Transaction::default() }).await;
    }
}

/// Others have changed it again and again while this change was tried.
pub(crate) fn passed() -> Problem {
    Problem::new(
        Code::WrongState,
        "The configuration was changed on other nodes at the same time, again and again.",
    )
    .todo("Nothing was changed. Try again.")
}

#[cfg(test)]
mod tests {
    use cluster_store::LocalStore;
    use control_api::{Config, GroupConfig};

    use super::*;

    fn shared(groups: usize, size: usize) -> SharedConfig {
        let group = |number: usize| GroupConfig {
            name: format!("g{number}"),
            initiators: vec!["i".repeat(size)],
            any: false,
        };
        let config = Config { groups: (0..groups).map(group).collect(), ..Config::default() };
        config.split().0
    }

    fn seal() -> ConfigSeal {
        ConfigSeal::new(b"secret", &ClusterName::new("c").expect("a name"))
    }

    fn made(written: Result<Written, Problem>) -> (Revision, ConfigHead) {
        match written.expect("an answer") {
            Written::Made(head) => head,
            Written::Passed => panic!("somebody else's came first"),
            Written::Unknown(_, problem) => panic!("{problem}"),
        }
    }

    fn is_passed(written: Result<Written, Problem>) -> bool {
        matches!(written, Ok(Written::Passed))
    }

    async fn keys(store: &LocalStore, cluster: &ClusterName) -> usize {
        let all = store.get(Range::Prefix(cluster.root() + "config/")).await.expect("readable");
        all.found.len()
    }

    #[tokio::test]
    async fn what_is_written_is_read_and_a_change_is_made_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = LocalStore::open(dir.path()).expect("a store");
        let cluster = ClusterName::new("c").expect("a name");
        let empty = read(&store, &cluster, &seal(), None).await.expect("readable").expect("news");
        assert!(empty.head.is_none() && empty.config.is_none());
        // Of one chunk, of three, and of one again.
        let (small, large) = (shared(2, 10), shared(30, 100_000));
        let first = made(write(&store, &cluster, &seal(), None, &small).await);
        assert!(is_passed(write(&store, &cluster, &seal(), None, &large).await), "somebody was first");
        assert_eq!(keys(&store, &cluster).await, 2);
        let second = made(write(&store, &cluster, &seal(), Some(&first), &large).await);
        assert_eq!(second.1.chunks, 3);
        assert_eq!(keys(&store, &cluster).await, 4, "what was before is gone");
        let stored = read(&store, &cluster, &seal(), Some(first.0)).await.expect("readable").expect("news");
        assert!(
            stored.config == Some(large.clone()) && stored.head.as_ref().map(|head| head.0) == Some(second.0)
        );
        assert!(
            read(&store, &cluster, &seal(), Some(second.0)).await.expect("readable").is_none(),
            "nothing new"
        );
        assert!(is_passed(write(&store, &cluster, &seal(), Some(&first), &large).await), "changed meanwhile");
        assert_eq!(keys(&store, &cluster).await, 4, "what was not taken leaves nothing");
        made(write(&store, &cluster, &seal(), Some(&second), &small).await);
        assert_eq!(keys(&store, &cluster).await, 2);
    }

    #[tokio::test]
    async fn of_a_change_without_an_answer_the_head_says_what_became() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = LocalStore::open(dir.path()).expect("a store");
        let cluster = ClusterName::new("c").expect("a name");
        let first = made(write(&store, &cluster, &seal(), None, &shared(1, 10)).await);
        let tried = |chance: u64| ConfigHead {
            revision: (((first.1.revision >> CHANCE_BITS) + 1) << CHANCE_BITS) | chance,
            ..first.1.clone()
        };
        let fate = async |tried: &ConfigHead| {
            became_of(&store, &cluster, Some(&first), tried).await.expect("an answer")
        };
        assert!(matches!(fate(&tried(1)).await, Fate::Open), "it may be on its way");
        let second = made(write(&store, &cluster, &seal(), Some(&first), &shared(2, 10)).await);
        assert!(matches!(fate(&second.1).await, Fate::Made(head) if head.0 == second.0));
        let other = tried((second.1.revision & 1) ^ 1);
        assert!(matches!(fate(&other).await, Fate::Passed), "another one has its number");
        made(write(&store, &cluster, &seal(), Some(&second), &shared(3, 10)).await);
        assert!(matches!(fate(&other).await, Fate::Lost));
        assert!(matches!(fate(&second.1).await, Fate::Lost), "it may be in what came after");
    }

    #[tokio::test]
    async fn damage_is_noticed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = LocalStore::open(dir.path()).expect("a store");
        let cluster = ClusterName::new("c").expect("a name");
        let (_, head) = made(write(&store, &cluster, &seal(), None, &shared(1, 5)).await);
        let key = Key::ConfigChunk(head.revision, 0).path(&cluster);
        for content in [vec![b' '; usize::try_from(head.length).expect("short")], Vec::new()] {
            let steps = vec![Step::Put(key.clone(), content)];
            store.transact(Transaction { steps, ..Transaction::default() }).await.expect("written");
            let problem = read(&store, &cluster, &seal(), None).await.err().expect("damaged");
            assert_eq!(problem.code, Code::Damaged, "{problem}");
        }
    }

    #[tokio::test]
    async fn it_is_sealed_in_the_store_and_what_an_earlier_release_wrote_is_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = LocalStore::open(dir.path()).expect("a store");
        let cluster = ClusterName::new("c").expect("a name");
        let config = shared(1, 5);
        let (at, head) = made(write(&store, &cluster, &seal(), None, &config).await);
        let key = Key::ConfigChunk(head.revision, 0).path(&cluster);
        let chunk = store.get(Range::Key(key.clone())).await.expect("readable").found.remove(0).value;
        assert!(!chunk.windows(5).any(|part| part == b"iiiii"), "nothing of it is in the store plainly");
        let other = ConfigSeal::new(b"another secret", &cluster);
        assert!(read(&store, &cluster, &other, None).await.is_err());
        let plain = serde_json::to_vec(&config).expect("JSON");
        let before = ConfigHead { length: plain.len() as u64, checksum: xxh3(&plain), ..head };
        let steps = vec![
            Step::Put(key, plain),
            Step::Put(Key::ConfigHead.path(&cluster), before.encode().expect("a head")),
        ];
        store.transact(Transaction { steps, ..Transaction::default() }).await.expect("written");
        let stored = read(&store, &cluster, &seal(), Some(at)).await.expect("readable").expect("news");
        assert!(stored.config == Some(config));
    }
}
