//! The shared state in etcd (3.4 and later).
//!
//! ```text
//!   EtcdStore: ClusterStore
//!      │ convert    transactions, conditions, keys  ◄──►  messages (the part of etcd's API that is used)
//!      │ endpoints  one connection to each etcd, made when it is needed; the next one when an answer is late or missing
//!      │ call       gRPC over HTTP/2 and TLS 1.3: one request and its answer, or a stream
//!      │ verdict    what an error means for a transaction: not done, unknown, or never to be done
//!      ├ watch      whole revisions, each once; silence is noticed
//!      ├ members    which machines etcd itself is made of
//!      └ health     how each of them is
//! ```
//! # Why not the crate etcd-client
//!
//! It compiles etcd's protocol files when it is built, for which every machine that builds would need `protoc`; it brings thirty crates
//! along; and its channel hides whether a request has left the machine, which is what [`StoreError::NotDone`] is about. So hyper speaks
//! HTTP/2 and gives a request back that it has not sent, prost codes the dozen messages, and gRPC's framing between them is one file.
//!
//! # What is certain
//!
//! * A request for which there is no connection, or that hyper gives back, was not sent: it goes to the next endpoint, and is
//!   [`StoreError::NotDone`] when there is none left.
//! * After that only an answer helps. etcd's own errors are looked at one by one (`verdict`); all others are
//!   [`StoreError::Unknown`]. Among them is "database space exceeded", which etcd also answers to transactions that it has done.
//! * A late answer still counts: an endpoint that is silent for [`Patience::rotate_after`] loses the requests that come next, and the
//!   request itself goes on waiting, for [`Patience::request`].
//!
//! # What is trusted
//!
//! etcd is: whoever can write there can take pools away. It shows a certificate of the cluster's authority, and so does the node. Still
//! its answers are bounded, and an endpoint of another cluster (a wrong address, an etcd that was set up anew) is refused by
//! [`EtcdStore::cluster_id`] before it is asked anything.
//!
//! Deliberately absent: leases, users of etcd (certificates decide), and any retry of a request that was sent.

mod call;
mod convert;
mod endpoints;
mod health;
mod members;
mod messages;
mod options;
mod verdict;
mod watch;

use std::sync::Arc;

use cluster_store::{
    ClusterStore, Found, Outcome, Range, Revision, Snapshot, StoreError, StoreFuture, Transaction, Watch,
};
use tokio::runtime::Handle;

use crate::call::CallError;
use crate::endpoints::Endpoints;
pub use crate::health::{Alarm, AlarmKind, EtcdHealth, EtcdTold};
pub use crate::members::EtcdMember;
pub use crate::options::{Options, OptionsError, Patience, Tls};

/// Keys that are asked for at once; fewer when they are long.
const PAGE: i64 = 256;
/// The most bytes that one read brings together.
const MAX_SNAPSHOT: usize = 128 << 20;
/// A read of several pages begins again so often when its first page is forgotten meanwhile.
const READ_ATTEMPTS: usize = 3;

/// The shared state in etcd. Clones are the same store.
#[derive(Clone, Debug)]
pub struct EtcdStore(Arc<Endpoints>);

impl EtcdStore {
    /// A store that connects when it is asked for something. Its connections live on `runtime`, which has to have I/O and time.
    ///
    /// # Errors
    /// What is wrong with an endpoint or a certificate.
    pub fn new(options: Options, runtime: Handle) -> Result<Self, OptionsError> {
        Ok(Self(Arc::new(Endpoints::new(options, runtime)?)))
    }

    /// Which etcd this is, once one has answered; [`Options::cluster_id`] holds a later store to it.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u64> {
        self.0.cluster_id()
    }

    /// From now on these are asked, in this order; connections to those that stay go on.
    ///
    /// # Errors
    /// What is wrong with one of them: nothing is changed then.
    pub fn set_endpoints(&self, endpoints: &[String]) -> Result<(), OptionsError> {
        self.0.set_endpoints(endpoints)
    }

    /// New connections show and ask for these certificates; those that are there go on.
    ///
    /// # Errors
    /// What is wrong with a certificate: nothing is changed then.
    pub fn set_tls(&self, tls: &Tls) -> Result<(), OptionsError> {
        self.0.set_tls(tls)
    }

    /// Makes etcd forget the changes up to a revision; what is there now stays. Somebody has to do it from time to time, etcd by its
    /// `--auto-compaction-retention` or this: each beat is a change that is remembered.
    ///
    /// # Errors
    /// When there is no answer, or the revision is none that can be forgotten.
    pub async fn compact(&self, through: Revision) -> Result<(), StoreError> {
        let revision = convert::revision_out(through)?;
        let request = messages::CompactionRequest { revision, physical: false };
        let answer: Result<messages::CompactionResponse, _> = self.0.call(call::COMPACT, &request).await;
        answer.map(|_| ()).map_err(verdict::of_transaction)
    }

    async fn read(&self, range: &Range) -> Result<Snapshot, StoreError> {
        let mut forgotten = None;
        for _ in 0..READ_ATTEMPTS {
            match self.read_once(range).await {
                Err(CallError::Status(status)) if verdict::is_compacted(&status) => {
                    forgotten = Some(CallError::Status(status));
                }
                other => return other.map_err(verdict::of_read),
            }
        }
        Err(forgotten.map_or_else(|| StoreError::NotDone("no answer".into()), verdict::of_read))
    }

    /// All pages, at the revision of the first one.
    async fn read_once(&self, range: &Range) -> Result<Snapshot, CallError> {
        let (mut key, end) = convert::bounds(range);
        let (mut limit, mut revision, mut bytes) = (PAGE, 0_i64, 0_usize);
        let mut found: Vec<Found> = Vec::new();
        loop {
            let request = messages::RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit,
                revision,
                ..Default::default()
            };
            let page: messages::RangeResponse = match self.0.call(call::RANGE, &request).await {
                Err(CallError::TooLong) if limit > 1 => {
                    limit /= 4;
                    continue;
                }
                other => other?,
            };
            let told = page.header.as_ref().map_or(0, |header| header.revision);
            revision = if revision == 0 { told } else { revision };
            let Some(last) = page.kvs.last() else { break };
            // The key after the last one.
            key = last.key.clone();
            key.push(0);
            bytes += page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum::<usize>();
            if bytes > MAX_SNAPSHOT {
                return Err(CallError::NotSent(format!("more than {MAX_SNAPSHOT} bytes are there")));
            }
            let more = page.more;
            found.extend(page.kvs.into_iter().filter_map(convert::found));
            if !more {
                break;
            }
        }
        Ok(Snapshot { revision: convert::revision_in(revision)?, found })
    }

    async fn change(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        transaction.check()?;
        let request = convert::transaction(&transaction)?;
        let answer: messages::TxnResponse =
            self.0.call(call::TXN, &request).await.map_err(verdict::of_transaction)?;
        convert::outcome(&transaction, answer)
    }
}

impl ClusterStore for EtcdStore {
    fn get(&self, range: Range) -> StoreFuture<'_, Snapshot> {
        Box::pin(async move { self.read(&range).await })
    }

    fn transact(&self, transaction: Transaction) -> StoreFuture<'_, Outcome> {
        Box::pin(self.change(transaction))
    }

    fn watch(&self, prefix: String, after: Revision) -> StoreFuture<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let watch = watch::EtcdWatch::begin(&self.0, &prefix, after).await?;
            Ok(Box::new(watch) as Box<dyn Watch>)
        })
    }
}
