//! A tree, told and applied.

use std::collections::BTreeMap;
use std::sync::Mutex;

use diff_format::Parser;
use file_store::{MemoryStore, NewSnapshot};

use aligned_buffer::IoBuf;
use block_device::Durability;
use diff_format::Record;
use file_store::{Access, Attributes, FileId, FileKind, FileStore, NewFile, OpenOptions, SnapshotStore};

use super::apply::Applying;
use super::tell::{Sink, Telling, entries, runs};
use std::sync::Arc;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Sink for Kept {
    async fn take(&mut self, bytes: Vec<u8>) -> bool {
        self.0.lock().expect("lock").extend(bytes);
        true
    }
}

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, attributes: Attributes(0x20), security: vec![1, 2, 3] }
}

async fn write(store: &MemoryStore, file: FileId, stream: &str, offset: u64, bytes: &[u8]) {
    let options =
        OpenOptions { stream: stream.into(), create_stream: true, ..OpenOptions::shared(Access::READ_WRITE) };
    let open = store.open(file, options).await.expect("open");
    open.write(offset, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await.expect("write");
}

/// Everything that people can see of a tree.
async fn seen(store: &MemoryStore, root: FileId) -> Vec<String> {
    let (mut all, mut left) = (Vec::new(), vec![(String::new(), root)]);
    while let Some((path, file)) = left.pop() {
        let info = store.info(file).await.expect("info");
        let mut line = format!("{path} {:?} {:?} {:?}", info.kind, info.attributes, info.times.written);
        line += &format!("{:?}", store.security(file).await.expect("security"));
        let mut streams = store.streams(file).await.expect("streams");
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        for stream in streams {
            let options = OpenOptions { stream: stream.name.clone(), ..OpenOptions::shared(Access::READ) };
            let open = store.open(file, options).await.expect("open");
            let bytes = open.read(0, IoBuf::new(open.size() as usize)).await.expect("read");
            line += &format!(" {}={}:{:08x}", stream.name, bytes.len(), crc(&bytes));
        }
        all.push(line);
        if info.kind == FileKind::Directory {
            let entries = entries(store, file).await.expect("list");
            left.extend(entries.into_values().map(|entry| (format!("{path}/{}", entry.name), entry.file)));
        }
    }
    all.sort();
    all
}

/// Which paths of a tree are names of one file: those of each file that has several.
async fn linked(store: &MemoryStore, root: FileId) -> Vec<Vec<String>> {
    let (mut names, mut left) = (BTreeMap::<FileId, Vec<String>>::new(), vec![(String::new(), root)]);
    while let Some((path, file)) = left.pop() {
        if store.info(file).await.expect("info").kind == FileKind::Directory {
            let entries = entries(store, file).await.expect("list");
            left.extend(entries.into_values().map(|entry| (format!("{path}/{}", entry.name), entry.file)));
        } else {
            names.entry(file).or_default().push(path);
        }
    }
    let mut names: Vec<Vec<String>> = names.into_values().filter(|names| names.len() > 1).collect();
    names.iter_mut().for_each(|names| names.sort());
    names.sort();
    names
}

/// The stream that leads from one tree to the other.
async fn told(store: &MemoryStore, base: FileId, target: FileId) -> Vec<u8> {
    let kept = Kept::default();
    let begin = Record::Begin {
        volume: [0; 16],
        base: "a".into(),
        base_time: 0,
        target: "b".into(),
        target_time: 0,
        directory: true,
    };
    Telling::new(store, kept.clone()).expect("snapshots").tell(begin, base, target).await.expect("told");
    kept.0.lock().expect("lock").clone()
}

/// A copy of a tree that a stream was applied to, which comes in pieces.
async fn applied(store: &MemoryStore, base: FileId, stream: &[u8]) -> FileId {
    let copy = store.clone_tree(base, store.root(), "copy").await.expect("clone");
    let (mut parser, mut applying) = (Parser::default(), Applying::new(store, copy));
    for piece in stream.chunks(1000) {
        parser.push(piece);
        while let Some(record) = parser.next_record().expect("sound") {
            applying.apply(record).await.expect("applied");
        }
    }
    parser.finish().expect("whole");
    copy
}

/// Names of one file: changed, come, gone, moved apart and moved together.
#[test]
fn names_of_one_file_stay_names_of_one_file() {
    const SIZE: usize = 300_000;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(async {
        let store = MemoryStore::new(1 << 30);
        let top = store.create(store.root(), "top", new(FileKind::Directory)).await.expect("top");
        let inner = store.create(top, "inner", new(FileKind::Directory)).await.expect("inner");
        let mut files = BTreeMap::new();
        // Each file with one more name, in the other directory.
        for (number, name) in ["longer", "same-size", "apart", "apart2", "gone", "case"].iter().enumerate() {
            let file = store.create(top, name, new(FileKind::File)).await.expect("file");
            write(&store, file, "", 0, &vec![number as u8 + 1; SIZE]).await;
            store.link(file, (inner, &format!("{name}-too")), false).await.expect("link");
            files.insert(*name, file);
        }
        for name in ["one", "other", "alone"] {
            let file = store.create(inner, name, new(FileKind::File)).await.expect("file");
            write(&store, file, "", 0, &vec![name.len() as u8; SIZE]).await;
            files.insert(name, file);
        }
        let before = NewSnapshot {
            name: "before".into(),
            source: top,
            quiesce: false,
            maker: String::new(),
            path: String::new(),
        };
        let base = store.take_snapshot(before).await.expect("snapshot").root;

        write(&store, files["longer"], "", SIZE as u64, b"more").await;
        write(&store, files["same-size"], "", 5, b"changed").await;
        for (directory, name) in [(inner, "apart-too"), (top, "apart2")] {
            store.remove(directory, name).await.expect("remove");
            let apart = store.create(directory, name, new(FileKind::File)).await.expect("file");
            write(&store, apart, "", 0, &vec![0xee; SIZE]).await;
        }
        store.remove(inner, "gone-too").await.expect("remove");
        store.rename((top, "case"), (top, "CASE"), false).await.expect("rename");
        // Two files become one.
        store.remove(inner, "other").await.expect("remove");
        store.link(files["one"], (inner, "other"), false).await.expect("link");
        // Names that sort before and behind the one that was there.
        store.link(files["alone"], (top, "a-new-name"), false).await.expect("link");
        store.link(files["alone"], (inner, "zz-new-name"), false).await.expect("link");
        let fresh = store.create(top, "fresh", new(FileKind::File)).await.expect("file");
        write(&store, fresh, "", 0, &vec![0xaa; SIZE]).await;
        store.link(fresh, (inner, "fresh-too"), false).await.expect("link");

        let stream = told(&store, base, top).await;
        // Three files are new as a whole.
        assert!(stream.len() < 4 * SIZE, "{} bytes for what differs", stream.len());
        let copy = applied(&store, base, &stream).await;
        assert_eq!(linked(&store, copy).await, linked(&store, top).await);
        assert_eq!(seen(&store, copy).await, seen(&store, top).await);
    });
}

fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

#[test]
fn a_tree_becomes_what_the_stream_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(async {
        let store = MemoryStore::new(1 << 30);
        let top = store.create(store.root(), "top", new(FileKind::Directory)).await.expect("top");
        let inner = store.create(top, "inner", new(FileKind::Directory)).await.expect("inner");
        let mut files = Vec::new();
        for (number, name) in ["same", "changed", "cut", "grown", "gone", "case"].iter().enumerate() {
            let directory = if number % 2 == 0 { top } else { inner };
            let file = store.create(directory, name, new(FileKind::File)).await.expect("file");
            write(&store, file, "", 0, &vec![number as u8 + 1; 300_000]).await;
            write(&store, file, "s", 0, b"stream").await;
            files.push(file);
        }
        let before = NewSnapshot {
            name: "before".into(),
            source: top,
            quiesce: false,
            maker: String::new(),
            path: String::new(),
        };
        let base = store.take_snapshot(before).await.expect("snapshot").root;
        write(&store, files[1], "", 100_000, b"changed").await;
        write(&store, files[1], "t", 0, b"new stream").await;
        store.remove_stream(files[1], "s").await.expect("remove");
        let cut = store.open(files[2], OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
        cut.set_size(70_001).await.expect("cut");
        write(&store, files[3], "", 1 << 20, &[0; 200_000]).await;
        store.remove(top, "gone").await.expect("remove");
        store.rename((inner, "case"), (inner, "CASE"), false).await.expect("rename");
        let other = store.create(top, "gone", new(FileKind::Directory)).await.expect("directory");
        let fresh = store.create(other, "fresh", new(FileKind::File)).await.expect("file");
        write(&store, fresh, "", 500_000, b"fresh").await;
        store.set_security(inner, vec![9; 50]).await.expect("security");

        let stream = told(&store, base, top).await;
        assert!(stream.len() < 700_000, "{} bytes for what differs", stream.len());

        let copy = applied(&store, base, &stream).await;
        assert_eq!(seen(&store, copy).await, seen(&store, top).await);

        // Onto something else it is refused.
        let wrong = store.clone_tree(top, store.root(), "wrong").await.expect("clone");
        let (mut parser, mut applying) = (Parser::default(), Applying::new(&store, wrong));
        parser.push(&stream);
        let mut refused = false;
        while let Ok(Some(record)) = parser.next_record() {
            refused |= applying.apply(record).await.is_err();
        }
        assert!(refused);
    });
}

#[test]
fn zeros_are_told_by_units() {
    let mut bytes = vec![0; 200_000];
    bytes[70_000] = 1;
    assert_eq!(runs(&bytes, 0), [(true, 0, 65_536), (false, 65_536, 131_072), (true, 131_072, 200_000)]);
    assert_eq!(runs(&bytes, 65_530), [(true, 0, 65_542), (false, 65_542, 131_078), (true, 131_078, 200_000)]);
    assert_eq!(runs(&[], 5), []);
}
