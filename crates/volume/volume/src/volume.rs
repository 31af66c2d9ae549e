//! Making, opening and closing volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use file_store::{FILE_SIZE_MAX, FileId, FileStore, StoreError, StoreErrorKind};
use parking_lot::Mutex;
use redb::Database;
use shard_runtime::{Clock, Entropy, spawn_local};
use volume_format::{BLOCK, CLUSTER, Inode, StreamRecord, Superblock, USUAL_FEATURES, layout_for};

use crate::background::{commit_now_and_then, save_sizes_now_and_then};
use crate::charges::count_now_and_then;
use crate::clear::clear;
use crate::core::Core;
use crate::database::{Metadata, Prepared};
use crate::database_error::database_error;
use crate::extents::Extent;
use crate::fail_stop::FailStop;
use crate::folding;
use crate::growth;
use crate::integrity;
use crate::leftovers::Leftovers;
use crate::load;
use crate::metadata_log::{self, Mark, MetadataLog};
use crate::pin::Pin;
use crate::replay::{self, Replayed};
use crate::session::Session;
use crate::space::Space;
use crate::stopped::stopped;
use crate::stream::Stream;
use crate::tables::{
    COUNTERS, FOLDED_AS_NTFS, INODES, NAMES, NEXT_FILE, ROOT, StreamKey, ZERO_UNTIL, make_tables,
};

/// What volumes need from their surroundings.
#[derive(Clone)]
pub struct Environment {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for identities.
    pub entropy: Arc<dyn Entropy>,
}

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Its name, for messages.
    pub name: String,
}

/// An open volume. Its background task lives on the shard that opened it; it serves all shards.
pub struct Volume {
    pub(crate) core: Arc<Core>,
    /// When its changes complete: see [`FileStore::volatile`].
    pub(crate) durability: Durability,
}

/// What the batches of a log's next epoch have in common, and nobody else knows.
pub(crate) fn nonce(environment: &Environment) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = environment.entropy.next_id();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn damaged(detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, detail)
}

/// Writes both copies, one after the other, so that one of them is whole at any time: one that is not, as when the power went
/// while it was written, comes first.
pub(crate) async fn write_superblocks(device: &Device, superblock: &Superblock) -> Result<(), StoreError> {
    let wanted = IoBuf::copy_from(&superblock.encode()).freeze();
    let (mut whole, mut damaged) = (Vec::new(), Vec::new());
    for offset in Superblock::OFFSETS {
        let found = device.read(offset, IoBuf::new(BLOCK as usize)).await;
        match found {
            Ok(block) if block[..] == wanted[..] => {}
            Ok(block) if Superblock::decode(&block).is_ok() => whole.push(offset),
            _ => damaged.push(offset),
        }
    }
    for offset in damaged.into_iter().chain(whole) {
        device.write(offset, wanted.clone(), Durability::Durable).await?;
    }
    Ok(())
}

impl Volume {
    /// Makes an empty volume on a device, destroying what was there. Call on a shard.
    ///
    /// # Errors
    /// When the device is too small or fails.
    pub async fn format(
        device: Device,
        options: FormatOptions,
        environment: Environment,
    ) -> Result<(), StoreError> {
        let size = device.size() / BLOCK * BLOCK;
        let Some(mut superblock) = layout_for(size) else {
            let detail = format!("a volume does not fit in {size} bytes");
            return Err(StoreError::new(StoreErrorKind::NoSpace, detail));
        };
        superblock.guid = environment.entropy.next_id();
        superblock.name = options.name;
        // Free clusters must be zero, and the database's area must not hold an older one.
        clear(&device, 0, size).await?;
        device.flush().await?;
        let (now, clusters) = (environment.clock.wall().0, superblock.clusters(size));
        let nonce = nonce(&environment);
        let prepare = move |database: &Database, _| {
            let txn = database.begin_write().map_err(database_error)?;
            make_tables(&txn)?;
            let root =
                Inode { directory: true, parent: ROOT, times: [now; 4], next_stream: 1, ..Inode::default() };
            txn.open_table(INODES.definition)
                .map_err(database_error)?
                .insert(ROOT, root.encode().as_slice())
                .map_err(database_error)?;
            txn.open_table(COUNTERS.definition)
                .map_err(database_error)?
                .insert(NEXT_FILE, ROOT + 1)
                .map_err(database_error)?;
            txn.open_table(COUNTERS.definition)
                .map_err(database_error)?
                .insert(ZERO_UNTIL, clusters)
                .map_err(database_error)?;
            txn.open_table(COUNTERS.definition)
                .map_err(database_error)?
                .insert(NAMES, FOLDED_AS_NTFS)
                .map_err(database_error)?;
            replay::write_mark(&txn, Mark { epoch: 1, nonce, sequence: 0, closed: true })?;
            txn.commit().map_err(database_error)?;
            Ok(Prepared { space: Space::default(), log: None, full: None, value: () })
        };
        let (metadata, ()) = Metadata::open(Arc::clone(&device), superblock.clone(), prepare).await?;
        metadata.close().await?;
        metadata_log::prepare(&device, &superblock).await?;
        // The superblock comes last: whoever finds it finds a whole volume.
        write_superblocks(&device, &superblock).await
    }

    /// Opens a volume, going on after a crash where that is needed. Call on a shard. Where its device has no space for that,
    /// and what is committed is all that there is, it is read, and changes are refused until it is opened again.
    ///
    /// # Errors
    /// When there is no volume, or its structures are damaged.
    pub async fn open(device: Device, environment: Environment) -> Result<Arc<Self>, StoreError> {
        let device = FailStop::new(device);
        let flushes = device.flushes();
        let device: Device = Arc::new(device);
        let frame = integrity::frame(&device, None).await;
        let (outdated, torn, planned) = (frame.has_outdated(), frame.has_torn(), frame.with_log());
        let new_log = planned.is_some();
        let mut superblock = frame.openable()?;
        let clusters = superblock.clusters(device.size());
        let upgrade = superblock.features & USUAL_FEATURES != USUAL_FEATURES;
        // The database must not grow to where the log comes.
        let area = planned.unwrap_or_else(|| superblock.clone());
        let (nonce, below, layout, with_log) =
            (nonce(&environment), Arc::clone(&device), area.clone(), area.clone());
        let prepare = move |database: &Database, full| {
            if upgrade {
                // Tables that an older release does not know do it no harm; what comes into them would.
                let mut txn = database.begin_write().map_err(database_error)?;
                txn.set_two_phase_commit(true);
                txn.set_quick_repair(true);
                make_tables(&txn)?;
                txn.commit().map_err(database_error)?;
            }
            let mut txn = database.begin_write().map_err(database_error)?;
            txn.set_two_phase_commit(true);
            txn.set_quick_repair(true);
            // A volume that has no log yet has nothing that an opening must commit.
            let only_looks = full && !new_log;
            let (Replayed { txn, any }, mark) = match full {
                true if only_looks => (replay::to_look_at(txn, &below, &layout)?, None),
                true => (Replayed { txn, any: false }, None),
                false => {
                    let mark = replay::begin(&txn, &below, &layout, (new_log, nonce))?;
                    (Replayed { txn, any: false }, mark)
                }
            };
            let space = load::read_space(&txn, clusters)?;
            let (clusters, quotas) = (space.clusters, space.quotas.settings.mode);
            // Where nothing is changed, nothing is given back.
            let leftovers = if full { Leftovers::default() } else { Leftovers::read(&txn)? };
            let folded = folding::is_done(&txn.open_table(COUNTERS.definition).map_err(database_error)?)?;
            // Not before all of it was found to be sound.
            let (mut log, mut full) = (None, None);
            match mark {
                Some(mark) => {
                    txn.commit().map_err(database_error)?;
                    log = MetadataLog::new(Arc::clone(&below), &layout, mark);
                }
                None if only_looks => full = Some(Replayed { txn, any }),
                None => txn.abort().map_err(database_error)?,
            }
            let logged = log.is_some();
            Ok(Prepared {
                space,
                log,
                full,
                value: (clusters, folded, logged, only_looks, leftovers, quotas),
            })
        };
        let (metadata, (clusters, folded, logged, full, leftovers, quotas)) =
            Metadata::open(Arc::clone(&device), area, prepare).await?;
        if full {
            tracing::warn!(
                "there is no space for a volume's metadata: it is opened, and nothing of it is changed until it is opened again"
            );
        }
        if upgrade || outdated || !folded || new_log {
            // Before anything is written that an older release would take for damage. Where the names are not all filed anew, an
            // upgrade was cut short, and it may have left a copy torn.
            superblock.features |= USUAL_FEATURES;
            if logged {
                superblock = Superblock { features: superblock.features | with_log.features, ..with_log };
            }
            let written = write_superblocks(&device, &superblock).await;
            if written.is_err() {
                let _ = metadata.close().await;
            }
            written?;
        }
        if torn {
            // The database vouches for the other copy. Whoever cannot write it has a sound one still.
            tracing::warn!(
                "a copy of a volume's superblock is damaged: it is written anew from the other one"
            );
            if let Err(error) = write_superblocks(&device, &superblock).await {
                tracing::warn!("a copy of a volume's superblock stays damaged: {error}");
            }
        }
        if !folded {
            // After the superblocks: an older release would look for these names elsewhere.
            let converted = folding::convert(&metadata).await;
            if converted.is_err() {
                let _ = metadata.close().await;
            }
            converted?;
        }
        let features = superblock.features;
        let core = Arc::new(Core {
            device,
            flushes,
            superblock,
            features: tokio::sync::Mutex::new(features),
            metadata,
            clock: environment.clock,
            gate: Default::default(),
            pause: Default::default(),
            registry: Default::default(),
            filling: Default::default(),
            is_lending: Default::default(),
            zero_from: AtomicU64::new(0),
            leftovers: Mutex::new(leftovers),
            looked_for_resting: Default::default(),
            saved_times: Default::default(),
            quota_mode: Default::default(),
            count_quotas: Default::default(),
            grown: Default::default(),
            attention: Default::default(),
            closing: Default::default(),
            operations: Default::default(),
            ended: Default::default(),
            closed: Default::default(),
            clusters: AtomicU64::new(clusters),
            full,
            tally: Default::default(),
        });
        core.quota_mode.show(quotas);
        core.delete_orphans();
        spawn_local(Arc::clone(&core).in_background());
        spawn_local(growth::watch_size(Arc::downgrade(&core)));
        spawn_local(commit_now_and_then(Arc::downgrade(&core)));
        spawn_local(save_sizes_now_and_then(Arc::downgrade(&core)));
        spawn_local(count_now_and_then(Arc::downgrade(&core)));
        Ok(Arc::new(Self { core, durability: Durability::Durable }))
    }

    /// What its files have read, written and flushed since it was opened.
    #[must_use]
    pub fn totals(&self) -> observe::IoTotals {
        self.core.tally.totals()
    }

    /// The volume's identity.
    #[must_use]
    pub fn guid(&self) -> [u8; 16] {
        self.core.superblock.guid
    }

    /// Why nothing more is done until the volume is closed and opened again: a failure of its metadata, or of a flush. What
    /// was promised is durable, and all of it is there after the next opening.
    #[must_use]
    pub fn why_stopped(&self) -> Option<String> {
        let flush = || self.core.flushes.failure().filter(|_| self.core.flushes.have_failed());
        self.core.metadata.why_stopped().or_else(flush)
    }

    /// Whether there was no space for its metadata when it was opened: then it is read and overwritten, and nothing else of it is
    /// changed until it is opened again.
    #[must_use]
    pub fn lacks_space(&self) -> bool {
        self.core.full
    }

    /// Whether what stopped it is a database that is damaged in a way over which its code gives up: each opening that meets that again
    /// costs memory, which the process keeps.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.core.metadata.shared.stopped.has_given_up()
    }

    /// Ends all work and closes the database; sizes that volatile writes have grown become durable. What opens
    /// do afterwards is refused, and nothing is written to the device any more: the device may have another user then. (One request
    /// for space below, of a reservation, may be under way still; it changes nothing that anybody reads.)
    /// So this waits for requests that are under way for as long as the device takes, and whoever closes at the same
    /// time, or again, waits for the same end.
    ///
    /// One that has stopped is left as it is on the device: the next opening goes on as after a crash.
    ///
    /// # Errors
    /// When the device or the database fails or has failed; the volume is closed nevertheless.
    pub async fn close(&self) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        // Also when nobody waits for it any more: half of it would leave a volume that neither works nor is closed.
        shard_runtime::finish_anyway(async move { core.close().await }).await
    }

    /// The file at a path like `/luns/web1`; `/` is the root.
    ///
    /// # Errors
    /// When a part of it is not there.
    pub async fn resolve(&self, path: &str) -> Result<FileId, StoreError> {
        let mut at = self.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.lookup(at, name).await?.file;
        }
        Ok(at)
    }

    /// Runs a change; ends when it is durable, or made, as this is a volume of durable or of volatile changes.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        // A flush that has failed stops the volume, too; the metadata thread hears of it only when it next appends.
        if self.core.is_stopped() {
            return Err(stopped());
        }
        self.core.metadata.change_as(self.durability, f).await
    }

    /// A stream, for work inside the volume.
    pub(crate) async fn pin(&self, file: FileId, name: &str) -> Result<Pin, StoreError> {
        let (name, core) = (name.to_owned(), Arc::clone(&self.core));
        let pinned = self.core.metadata.look(move |session| {
            let record = session.find_stream(file.0, &name)?.ok_or_else(|| Session::no_stream(&name))?;
            session.pin(&core, file.0, &record)
        });
        pinned.await
    }
}

/// Extents from the disk are ones that a stream can have: in order, and on the device.
fn check_extents((file, stream): StreamKey, extents: &[Extent], clusters: u64) -> Result<(), StoreError> {
    let mut end = 0;
    for extent in extents {
        if extent.first < end || !extent.is_possible(clusters) {
            let place = extent.first.saturating_mul(CLUSTER);
            return Err(damaged(format!(
                "the extent of file {file}, stream {stream}, from byte {place} overlaps another or lies beyond the volume"
            )));
        }
        end = extent.end();
    }
    Ok(())
}

impl Session<'_> {
    /// One more user of a stream, which is read into memory if it isn't there.
    pub(crate) fn pin(&self, core: &Arc<Core>, file: u64, record: &StreamRecord) -> Result<Pin, StoreError> {
        let key = (file, record.id);
        // Only this thread adds streams: what is not there now comes from here or not at all.
        let there = core.registry.lock().pin(key);
        let stream = match there {
            Some(stream) => stream,
            None => {
                let extents = self.extents(key)?;
                check_extents(key, &extents, core.clusters.load(Ordering::Acquire))?;
                let read = Stream::new(key, record.size.min(FILE_SIZE_MAX), extents);
                core.registry.lock().enter(read, core.clock.now())
            }
        };
        // What was changed so far may be that the file is there.
        stream.stands_on.fetch_max(self.last_change(), Ordering::AcqRel);
        Ok(Pin::new(Arc::clone(core), stream))
    }
}
