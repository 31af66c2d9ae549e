//! What snapshots and clones of a volume cost, without a network.
//!
//! ```text
//!   snapshot_bench local|simple|mirror2 EXTENTS CLONES FILES FOLDER
//! ```
//! A file of 1 TiB (thin) with EXTENTS extents all over it is cloned twice (`first_ms`, `second_ms`), then CLONES times
//! (`clones_ms`); a tenth of the clones are written to once (`written_ms`, the slowest `write_ms`). A directory of FILES
//! small files is snapshotted (`tree_ms`). A clone of a clone … 50 deep is read at random places, 4 KiB at a time, beside
//! one that is 1 deep (`chain50_us`, `chain1_us` for each read), where none of them wrote. Then everything is deleted (`deleted_ms`, until the last
//! cluster is back), and what is in use is compared with what was at the start (`left` bytes).

#[path = "../devices.rs"]
mod devices;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use devices::Failure;
use file_store::{
    Access, Attributes, FileId, FileKind, FileStore, NewFile, NewSnapshot, OpenOptions, SnapshotStore,
};
use shard_runtime::{Clock, Shards, SystemClock, SystemEntropy};
use volume::{Environment, FormatOptions, Volume};

/// Unit of a volume's space, in bytes.
const CLUSTER: u64 = 64 << 10;
/// Size of the file that is cloned.
const GOLDEN: u64 = 1 << 40;
/// A number without a common factor with any power of two: n * STRIDE goes through all places in a scattered order.
const STRIDE: u64 = 0x9e37_79b1;
/// Reads of a chain, in turns.
const READS: u64 = 20_000;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [kind, extents, clones, files, folder] = words.as_slice() else {
        return Err("usage: snapshot_bench local|simple|mirror2 EXTENTS CLONES FILES FOLDER".into());
    };
    let load = Load {
        kind: (*kind).to_owned(),
        extents: extents.parse()?,
        clones: clones.parse()?,
        files: files.parse()?,
        folder: folder.into(),
    };
    let shards = Shards::start(1)?;
    let shard = shards.next().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let line = runtime.block_on(shard.run(move || run(load)))??;
    println!("{line} engine={}", shards.engine().0);
    shards.stop();
    Ok(())
}

struct Load {
    kind: String,
    extents: u64,
    clones: u64,
    files: u64,
    folder: PathBuf,
}

struct Bench {
    volume: Arc<Volume>,
    clock: Arc<SystemClock>,
    stride: u64,
}

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, attributes: Attributes(0), security: Vec::new() }
}

fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

async fn run(load: Load) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let bytes = (2 * (load.extents + 16 * load.clones) * CLUSTER + (64 << 20)) / 63 * 64;
    let (device, pool) = devices::open(&load.kind, bytes, &load.folder, clock.clone()).await?;
    let volume = fresh(&device, &clock).await?;
    let bench = Bench { volume, clock, stride: (GOLDEN / CLUSTER / load.extents).max(1) };
    let line = bench.all(&load).await?;
    bench.volume.close().await?;
    if let Some(pool) = pool {
        pool.close().await?;
    }
    Ok(line)
}

async fn fresh(device: &Device, clock: &Arc<SystemClock>) -> Result<Arc<Volume>, Failure> {
    let environment = Environment { clock: clock.clone(), entropy: Arc::new(SystemEntropy) };
    Volume::format(device.clone(), FormatOptions { name: "bench".into() }, environment.clone()).await?;
    Ok(Volume::open(device.clone(), environment).await?)
}

impl Bench {
    async fn all(&self, load: &Load) -> Result<String, Failure> {
        let root = self.volume.root();
        let start = self.volume.usage().await?;
        let golden = self.volume.create(root, "golden", new(FileKind::File)).await?;
        self.volume.fragment(golden, load.extents, self.stride).await?;
        let first = self.timed(self.volume.clone_tree(golden, root, "first")).await?;
        let second = self.timed(self.volume.clone_tree(golden, root, "second")).await?;
        let began = self.clock.now();
        for number in 0..load.clones {
            self.volume.clone_tree(golden, root, &format!("clone{number}")).await?;
        }
        let clones = self.clock.now().since(began);
        let (written, slowest) = self.write(load).await?;
        let tree = self.tree(load.files).await?;
        let (one, fifty) = self.chain(golden, load.extents).await?;
        let (deleted, left) = self.delete(&start, load).await?;
        Ok(format!(
            "extents={} first_ms={} second_ms={} clones={} clones_ms={} written_ms={} write_ms={} files={} tree_ms={} \
             chain1_us={one:.2} chain50_us={fifty:.2} deleted_ms={} left={left}",
            load.extents,
            ms(first),
            ms(second),
            load.clones,
            ms(clones),
            ms(written),
            ms(slowest),
            load.files,
            ms(tree),
            ms(deleted),
        ))
    }

    async fn timed<T, E: Into<Failure>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Duration, Failure> {
        let began = self.clock.now();
        work.await.map_err(Into::into)?;
        Ok(self.clock.now().since(began))
    }

    /// One write, durably, to every tenth clone.
    async fn write(&self, load: &Load) -> Result<(Duration, Duration), Failure> {
        let (began, mut slowest) = (self.clock.now(), Duration::ZERO);
        for number in (0..load.clones).step_by(10) {
            let id = self.volume.resolve(&format!("/clone{number}")).await?;
            let open = self.volume.open(id, OpenOptions::shared(Access::READ_WRITE)).await?;
            let at = number * STRIDE % load.extents * self.stride * CLUSTER;
            let data = IoBuf::copy_from(&[number as u8 | 1; 4096]).freeze();
            slowest = slowest.max(self.timed(open.write(at, data.clone(), Durability::Durable)).await?);
            if open.read(at, IoBuf::new(4096)).await?[..] != data[..] {
                return Err("a clone does not hold what was written".into());
            }
        }
        Ok((self.clock.now().since(began), slowest))
    }

    async fn tree(&self, files: u64) -> Result<Duration, Failure> {
        let root = self.volume.root();
        let directory = self.volume.create(root, "tree", new(FileKind::Directory)).await?;
        for number in 0..files {
            let file = self.volume.create(directory, &format!("f{number}"), new(FileKind::File)).await?;
            if number % 10 == 0 {
                self.volume
                    .open(file, OpenOptions::shared(Access::READ_WRITE))
                    .await?
                    .allocate(0, 1, true)
                    .await?;
            }
        }
        let snapshot = NewSnapshot {
            name: "tree".into(),
            source: directory,
            quiesce: false,
            maker: String::new(),
            path: String::new(),
        };
        self.timed(self.volume.take_snapshot(snapshot)).await
    }

    /// Time of a read of a clone, and of a clone that is 50 deep, each of which wrote a little.
    async fn chain(&self, golden: FileId, extents: u64) -> Result<(f64, f64), Failure> {
        let mut files = vec![self.volume.clone_tree(golden, self.volume.root(), "chain1").await?];
        for depth in 2..=50u64 {
            let last = files[files.len() - 1];
            let next = self.volume.clone_tree(last, self.volume.root(), &format!("chain{depth}")).await?;
            let open = self.volume.open(next, OpenOptions::shared(Access::READ_WRITE)).await?;
            let at = depth % extents * self.stride * CLUSTER;
            open.write(at, IoBuf::zeroed(4096).freeze(), Durability::Durable).await?;
            files.push(next);
        }
        let mut opens = Vec::new();
        for file in [files[0], files[files.len() - 1]] {
            opens.push(self.volume.open(file, OpenOptions::shared(Access::READ)).await?);
        }
        let mut times = [Duration::ZERO; 2];
        for turn in 0..20 {
            for (open, time) in opens.iter().zip(&mut times) {
                let began = self.clock.now();
                for number in 0..READS / 20 {
                    // Behind what was written: the disk has the same there for both.
                    let place = (turn * READS + number) * STRIDE % extents.saturating_sub(64).max(1) + 64;
                    let at = place % extents * self.stride * CLUSTER;
                    open.read(at, IoBuf::new(4096)).await?;
                }
                *time += self.clock.now().since(began);
            }
        }
        let [one, fifty] = times.map(|time| time.as_secs_f64() * 1e6 / READS as f64);
        Ok((one, fifty))
    }

    async fn delete(&self, start: &file_store::StoreUsage, load: &Load) -> Result<(Duration, u64), Failure> {
        let began = self.clock.now();
        for snapshot in self.volume.snapshots().await? {
            self.volume.delete_snapshot(snapshot.id).await?;
        }
        let root = self.volume.root();
        let tree = self.volume.resolve("/tree").await?;
        for number in 0..load.files {
            self.volume.remove(tree, &format!("f{number}")).await?;
        }
        let clones = (0..load.clones).map(|number| format!("clone{number}"));
        let chain = (1..=50).map(|depth| format!("chain{depth}"));
        let others = ["golden", "first", "second", "tree"].map(str::to_owned);
        for name in clones.chain(chain).chain(others) {
            self.volume.remove(root, &name).await?;
        }
        for _ in 0..6000 {
            let now = self.volume.usage().await?;
            if now.used <= start.used && now.referenced <= start.referenced {
                break;
            }
            shard_runtime::sleep(Duration::from_millis(10)).await;
        }
        let now = self.volume.usage().await?;
        Ok((self.clock.now().since(began), now.used - start.used + (now.referenced - start.referenced)))
    }
}
