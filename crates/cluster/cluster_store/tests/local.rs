//! The local store: the suite, restarts, damage.

use std::path::PathBuf;
use std::sync::Arc;

use cluster_store::{ClusterStore, LocalError, LocalStore, Range, Revision, Step, StoreError, Transaction};
use cluster_store_conformance::{Bench, Work, poll_to_end, run_all};

struct Files {
    store: LocalStore,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench for Files {
    fn store(&self, _client: usize) -> Arc<dyn ClusterStore> {
        Arc::new(self.store.clone())
    }

    fn run(&self, work: Work<'_>) {
        poll_to_end(work);
    }

    fn compact(&self, _through: Revision) -> bool {
        false
    }
}

#[expect(clippy::expect_used, reason = "the scene of a test")]
fn bench() -> Box<Files> {
    let folder = tempfile::tempdir().expect("temp dir");
    let path = folder.path().join("shared");
    Box::new(Files { store: LocalStore::open(&path).expect("opens"), path, _folder: folder })
}

fn put(key: &str, value: &str) -> Transaction {
    Transaction { steps: vec![Step::Put(key.into(), value.into())], ..Transaction::default() }
}

#[test]
fn files_do_what_every_store_does() {
    run_all(&|| bench());
}

#[test]
fn a_restart_keeps_everything_but_old_changes() {
    let bench = bench();
    for value in ["1", "2", "3"] {
        bench.store.transact_now(&put("/a", value)).expect("done");
    }
    let before = bench.store.get_now(&Range::Prefix("/".into())).expect("read");
    let again = LocalStore::open(&bench.path).expect("opens again");
    assert_eq!(again.get_now(&Range::Prefix("/".into())).expect("read"), before);
    let watch = poll_to_end(again.watch("/".into(), Revision(1)));
    assert_eq!(watch.err(), Some(StoreError::Compacted { oldest: Revision(3) }));
    assert!(poll_to_end(again.watch("/".into(), Revision(3))).is_ok());
}

#[test]
fn damage_is_noticed_and_the_older_copy_is_named_and_not_taken() {
    let bench = bench();
    for value in ["1", "2"] {
        bench.store.transact_now(&put("/a", value)).expect("done");
    }
    let state = bench.path.join("state");
    let sound = std::fs::read(&state).expect("there");
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&state, &bytes).expect("written");
        let error = LocalStore::open(&bench.path).err().expect("a changed bit is noticed");
        assert!(matches!(error, LocalError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("state.old is sound and of revision 1"), "{text}");
    }
    for length in 0..sound.len() {
        std::fs::write(&state, &sound[..length]).expect("written");
        assert!(LocalStore::open(&bench.path).is_err(), "a file cut to {length} bytes is noticed");
    }
    std::fs::remove_file(&state).expect("removed");
    assert!(LocalStore::open(&bench.path).is_err(), "a file that is gone is not an empty store");
    std::fs::write(&state, &sound).expect("written");
    assert!(LocalStore::open(&bench.path).is_ok());
}

/// A sound checksum makes no sound state.
#[test]
fn what_no_writer_makes_is_refused() {
    let sealed = |body: &[u8]| {
        let mut bytes = b"HFCSTORE\x01\0\0\0".to_vec();
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(body);
        let sum = byte_codec::xxh3(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    };
    let entry = |key: &str, created: u64, modified: u64| {
        let mut body = (key.len() as u16).to_le_bytes().to_vec();
        body.extend_from_slice(key.as_bytes());
        body.extend_from_slice(&0_u32.to_le_bytes());
        body.extend_from_slice(&created.to_le_bytes());
        body.extend_from_slice(&modified.to_le_bytes());
        body
    };
    let state = |revision: u64, count: u32, entries: &[Vec<u8>]| {
        let head = [&revision.to_le_bytes()[..], &count.to_le_bytes()].concat();
        sealed(&[head, entries.concat()].concat())
    };
    let folder = tempfile::tempdir().expect("temp dir");
    let decode = |bytes: &[u8]| {
        std::fs::write(folder.path().join("state"), bytes).expect("written");
        LocalStore::open(folder.path())
    };
    assert!(decode(&state(2, 2, &[entry("/a", 1, 2), entry("/b", 2, 2)])).is_ok());
    let wrong = [
        state(2, 2, &[entry("/b", 1, 2), entry("/a", 2, 2)]),
        state(2, 2, &[entry("/a", 1, 2), entry("/a", 2, 2)]),
        state(2, 1, &[entry("/a", 2, 1)]),
        state(2, 1, &[entry("/a", 1, 3)]),
        state(2, 1, &[entry("/a", 0, 1)]),
        state(2, 1, &[entry("a", 1, 1)]),
        state(2, u32::MAX, &[entry("/a", 1, 1)]),
        state(2, 0, &[entry("/a", 1, 1)]),
    ];
    for bytes in wrong {
        assert!(decode(&bytes).is_err());
    }
    let mut newer = state(2, 0, &[]);
    newer[8] = 2;
    let text = decode(&newer).err().expect("newer").to_string();
    assert!(text.contains("newer release"), "{text}");
}
