//! Snapshots among the operations: each holds what there was when it was taken, whatever is cut off afterwards.

use aligned_buffer::IoBuf;
use file_store::{Access, FileId, NewSnapshot, OpenOptions, Snapshot, SnapshotStore};

use super::*;

/// A snapshot that was begun.
#[derive(Clone)]
pub(super) struct Frozen {
    name: String,
    /// Of each file.
    files: Vec<Content>,
    /// Whether it must be there, and whether it may be.
    must: bool,
    may: bool,
}

/// What a file held: its size in blocks, and what may be found in each of them.
#[derive(Clone)]
struct Content {
    size: u64,
    blocks: Vec<Vec<Value>>,
}

impl Content {
    /// What a reader saw at that moment: a snapshot makes it durable, but a block that a cut had torn before stays torn.
    fn now(expected: &Expected) -> Self {
        Self { size: expected.size(), blocks: (0..REACH).map(|block| vec![expected.now(block)]).collect() }
    }
}

impl Work {
    pub(super) async fn snapshot(&mut self) -> Result<(), Cut> {
        match self.rng.below(6) {
            0..3 => self.take().await,
            3 => self.delete().await,
            _ => self.restore().await,
        }
    }

    async fn take(&mut self) -> Result<(), Cut> {
        if self.frozen.iter().filter(|frozen| frozen.must).count() > 4 {
            return self.delete().await;
        }
        let name = format!("s{}", self.write);
        let files = self.files.iter().map(|(_, expected)| Content::now(expected)).collect();
        self.frozen.push(Frozen { name: name.clone(), files, must: false, may: true });
        let quiesce = self.rng.one_in(2);
        let new = NewSnapshot {
            name,
            source: self.volume.root(),
            quiesce,
            maker: String::new(),
            path: String::new(),
        };
        alive(self.volume.take_snapshot(new).await)?;
        if let Some(last) = self.frozen.last_mut() {
            last.must = true;
        }
        // It is durable, and so is what it shares with the files.
        self.files.iter_mut().for_each(|(_, expected)| expected.settle(0..REACH));
        Ok(())
    }

    fn choose(&mut self) -> Option<usize> {
        let there: Vec<usize> = (0..self.frozen.len()).filter(|at| self.frozen[*at].must).collect();
        (!there.is_empty()).then(|| there[self.rng.below(there.len() as u64) as usize])
    }

    async fn find(volume: &Volume, name: &str) -> Result<Option<Snapshot>, Cut> {
        Ok(alive(volume.snapshots().await)?.into_iter().find(|snapshot| snapshot.name == name))
    }

    async fn delete(&mut self) -> Result<(), Cut> {
        let Some(at) = self.choose() else { return Ok(()) };
        let Some(snapshot) = Self::find(&self.volume, &self.frozen[at].name).await? else {
            panic!("snapshot {} is not there", self.frozen[at].name);
        };
        self.frozen[at].must = false;
        alive(self.volume.delete_snapshot(snapshot.id).await)?;
        self.frozen[at].may = false;
        Ok(())
    }

    /// All of a file of a snapshot becomes the beginning of a file.
    async fn restore(&mut self) -> Result<(), Cut> {
        let Some(at) = self.choose() else { return Ok(()) };
        let which = self.rng.below(FILES as u64) as usize;
        let content = self.frozen[at].files[(which + 1) % FILES].clone();
        let Some(snapshot) = Self::find(&self.volume, &self.frozen[at].name).await? else {
            panic!("snapshot {} is not there", self.frozen[at].name);
        };
        let source =
            alive(self.volume.lookup(snapshot.root, &format!("f{}", (which + 1) % FILES)).await)?.file;
        let target = &mut self.files[which].1;
        let now = |block: u64| content.blocks[block as usize].last().copied().flatten();
        target.begin(0..content.size, now);
        let grows = content.size > target.size();
        if grows {
            target.resize(content.size);
        }
        let cloned = self.volume.clone_range((source, 0), (target.id, 0), content.size * BLOCK);
        alive(cloned.await)?;
        let target = &mut self.files[which].1;
        target.settle(0..content.size);
        if content.size > 0 {
            target.sizes.retain(|size| *size >= content.size);
        }
        Ok(())
    }
}

async fn content_of(volume: &Volume, file: FileId) -> Vec<u8> {
    let open = volume.open(file, OpenOptions::shared(Access::READ)).await.expect("open");
    open.read(0, IoBuf::new(open.size() as usize)).await.expect("read").to_vec()
}

/// After a cut: the snapshots that must be there are, no other but those that may be, and each holds what it held.
pub(super) async fn compare(volume: &Volume, frozen: &[Frozen], what: &str) -> Vec<Frozen> {
    let there = volume.snapshots().await.expect("list");
    let mut found = Vec::new();
    for known in frozen {
        let snapshot = there.iter().find(|snapshot| snapshot.name == known.name);
        assert!(snapshot.is_some() || !known.must, "{what}: snapshot {} is gone", known.name);
        assert!(snapshot.is_none() || known.may, "{what}: snapshot {} is still there", known.name);
        let Some(snapshot) = snapshot else { continue };
        for (number, content) in known.files.iter().enumerate() {
            let file = volume.lookup(snapshot.root, &format!("f{number}")).await.expect("look up").file;
            let bytes = content_of(volume, file).await;
            let place = format!("{what}: file {number} of snapshot {}", known.name);
            assert_eq!(bytes.len() as u64, content.size * BLOCK, "{place}: size");
            for (block, bytes) in bytes.chunks(BLOCK as usize).enumerate() {
                for (sector, bytes) in bytes.chunks(pattern::SECTOR).enumerate() {
                    let value = match pattern::identify(bytes) {
                        pattern::Found::Zero => None,
                        pattern::Found::Written { device, offset, generation } => {
                            Some((device, offset / BLOCK, generation))
                        }
                        pattern::Found::Garbage => panic!("{place}: garbage in block {block}"),
                    };
                    let wanted = &content.blocks[block];
                    assert!(
                        wanted.contains(&value),
                        "{place}: sector {sector} of {block} is {value:?}, not {wanted:?}"
                    );
                }
            }
        }
        found.push(Frozen { must: true, may: true, ..known.clone() });
    }
    assert_eq!(there.len(), found.len(), "{what}: there are snapshots that nobody took");
    found
}
