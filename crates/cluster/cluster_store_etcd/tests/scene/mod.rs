//! What the tests against the real etcd share.
#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(clippy::expect_used, reason = "the scene of a test")]

use std::sync::Arc;

use cluster_store::{ClusterStore, Range, Revision, Step, Transaction};
use cluster_store_conformance::{Bench, Work};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use test_etcd::{Etcd, LIMIT};
use tokio::runtime::Runtime;

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Waits for an end, but not for ever.
pub(crate) fn block_on<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(async { tokio::time::timeout(LIMIT, work).await.expect("it ends") })
}

pub(crate) fn options(etcd: &Etcd) -> Options {
    let identity = etcd.authority().issue(&["node-1.holdfast"]);
    let tls = Tls {
        ca: etcd.authority().pem().clone().into(),
        certificate: identity.certificate.into(),
        key: identity.key.into(),
    };
    Options { endpoints: etcd.endpoints(), tls: Some(tls), patience: Patience::default(), cluster_id: None }
}

pub(crate) fn store(etcd: &Etcd, runtime: &Runtime) -> EtcdStore {
    EtcdStore::new(options(etcd), runtime.handle().clone()).expect("options")
}

pub(crate) fn put(key: &str, value: &str) -> Transaction {
    Transaction { steps: vec![Step::Put(key.into(), value.into())], ..Transaction::default() }
}

/// A client that sees nothing under `/conformance/` at first.
pub(crate) struct Real {
    etcd: Arc<Etcd>,
    runtime: Runtime,
}

impl Real {
    pub(crate) fn new(etcd: Arc<Etcd>) -> Self {
        let real = Self { etcd, runtime: runtime() };
        let store = store(&real.etcd, &real.runtime);
        let there = block_on(&real.runtime, store.get(Range::Prefix("/conformance/".into()))).expect("read");
        for keys in there.found.chunks(100) {
            let steps = keys.iter().map(|found| Step::Delete(found.key.clone())).collect();
            let empty = Transaction { steps, ..Transaction::default() };
            block_on(&real.runtime, store.transact(empty)).expect("emptied");
        }
        real
    }
}

impl Bench for Real {
    fn store(&self, _client: usize) -> Arc<dyn ClusterStore> {
        Arc::new(store(&self.etcd, &self.runtime))
    }

    fn run(&self, work: Work<'_>) {
        block_on(&self.runtime, work);
    }

    fn compact(&self, through: Revision) -> bool {
        // A runtime of its own: this is asked for in the middle of a test.
        std::thread::scope(|scope| {
            let compacted = scope.spawn(move || {
                let runtime = runtime();
                let store = EtcdStore::new(options(&self.etcd), runtime.handle().clone()).expect("options");
                block_on(&runtime, store.compact(through))
            });
            compacted.join().expect("it ends").expect("compacted");
        });
        true
    }
}
