//! One client of the cluster with the image open, as long as it lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use librbd::{Access, Cluster, Failure, Image, LoadError, Object};
use shard_runtime::spawn_thread;
use tokio::sync::oneshot;

use crate::Address;
use crate::table::MAX_BYTES;

/// How long a former owner is shut out. A process that stood still for longer could write again; Ceph wants an end to be named.
const SHUT_OUT_SECONDS: u32 = 365 * 24 * 3600;

/// How long Ceph may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// To let us in.
    pub connect: Duration,
    /// A monitor, to answer a command.
    pub monitor: Duration,
    /// To carry out a request. An OSD that fell silent is left out after some 20 seconds in Ceph's default configuration, and its requests
    /// are carried out by others then: a disk must not be given up before that.
    pub request: Duration,
    /// The library, to say that it has given a request up.
    pub answer: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            monitor: Duration::from_secs(10),
            request: Duration::from_secs(60),
            answer: Duration::from_secs(70),
        }
    }
}

/// Why an image cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// Ceph's libraries are not here.
    #[error(transparent)]
    Library(LoadError),
    /// The cluster does not let us in, or cannot be reached.
    #[error("{0}")]
    Cluster(Failure),
    /// The Ceph pool cannot be opened.
    #[error("the Ceph pool: {0}")]
    Pool(Failure),
    /// The image cannot be opened.
    #[error("the image: {0}")]
    Image(Failure),
    /// It cannot be locked.
    #[error(
        "the image does not have the feature exclusive-lock, without which nothing keeps another client from writing to it"
    )]
    NoLock,
    /// It demands a cache.
    #[error(
        "the image or its pool sets rbd_cache to true: what was written would not be durable when it is answered"
    )]
    Cached,
}

/// What is known of an image from its opening.
pub(crate) struct Facts {
    pub(crate) size: u64,
    pub(crate) identity: String,
}

/// A client with the image open.
pub(crate) struct Session {
    pub(crate) image: Arc<Image>,
    /// The name of the table of reservations.
    table: String,
    /// It has the lock, as far as it knows.
    pub(crate) writes: AtomicBool,
    /// The cluster has shut it out.
    pub(crate) shut_out: AtomicBool,
    /// Something that it has begun may still take effect.
    pub(crate) undecided: AtomicBool,
}

/// Runs what blocks on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    run(work).await.unwrap_or_else(|why| Err(Failure::Thread(why)))
}

/// The same for any result; an error says why it could not be run.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (done, result) = oneshot::channel();
    spawn_thread("rbd", move || {
        let _ = done.send(work());
    })
    .map_err(|error| error.to_string())?;
    result.await.map_err(|_| "it has ended without a result".to_owned())
}

impl Session {
    /// Connects and opens; blocks.
    pub(crate) fn open(address: &Address, access: Access, times: Times) -> Result<(Self, Facts), OpenError> {
        let seconds = |time: Duration| time.as_secs().max(1).to_string();
        let (connect, monitor, request) =
            (seconds(times.connect), seconds(times.monitor), seconds(times.request));
        let before = [
            ("client_mount_timeout", connect.as_str()),
            ("rados_mon_op_timeout", &monitor),
            ("rados_osd_op_timeout", &request),
        ];
        let mut after = vec![
            ("rbd_cache", "false"),
            ("rbd_blocklist_on_break_lock", "true"),
            ("rbd_blocklist_expire_seconds", "0"),
        ];
        after.extend(address.keyring.as_ref().map(|keyring| ("keyring", keyring.as_str())));
        let cluster = Cluster::connect(&address.user, address.conf.as_deref(), &before, &after);
        let cluster = cluster.map_err(|failure| match failure {
            Failure::Load(error) => OpenError::Library(error),
            failure => OpenError::Cluster(failure),
        })?;
        let pool = cluster.pool(&address.pool, &address.namespace).map_err(OpenError::Pool)?;
        let image = Image::open(&pool, &address.image, access).map_err(OpenError::Image)?;
        if access == Access::ReadWrite {
            if !image.can_be_locked().map_err(OpenError::Image)? {
                return Err(OpenError::NoLock);
            }
            if image.option("rbd_cache").map_err(OpenError::Image)?.as_deref() != Some("false") {
                return Err(OpenError::Cached);
            }
        }
        let id = image.id().map_err(OpenError::Image)?;
        let facts = Facts {
            size: image.size().map_err(OpenError::Image)?,
            identity: format!("{}/{}/{id}", cluster.fsid(), pool.id()),
        };
        let session = Self {
            image,
            table: format!("holdfast_reservations.{id}"),
            writes: AtomicBool::new(false),
            shut_out: AtomicBool::new(false),
            undecided: AtomicBool::new(false),
        };
        Ok((session, facts))
    }

    /// The address by which the cluster knows this client.
    pub(crate) fn address(&self) -> &str {
        self.image.pool().cluster().address()
    }

    /// The table of reservations; blocks.
    pub(crate) fn read_table(&self) -> Result<Option<Object>, Failure> {
        self.image.pool().get(&self.table, MAX_BYTES + 1)
    }

    /// Replaces the table, if it still has this version; blocks.
    pub(crate) fn write_table(&self, bytes: &[u8], version: Option<u64>) -> Result<bool, Failure> {
        self.image.pool().put(&self.table, bytes, version)
    }

    /// Takes the image's lock, whoever has it; blocks. The cluster has shut out who had it when this has ended.
    pub(crate) fn take_lock(&self) -> Result<(), Failure> {
        /// Clients that may come between.
        const ROUNDS: usize = 8;
        for _ in 0..ROUNDS {
            match self.image.lock_owner()? {
                Some(owner) if owner == self.address() => {
                    if self.image.is_locked_by_us()? {
                        break;
                    }
                    self.image.lock()?;
                }
                Some(owner) => {
                    // First, as the library would do it for an hour, and what is there already stays as it is.
                    self.image.pool().cluster().shut_out(&owner, SHUT_OUT_SECONDS)?;
                    match self.image.break_lock(&owner) {
                        // Who has it by now is looked at again.
                        Err(failure) if matches!(failure.code(), Some(2 | 16)) => {}
                        broken => broken?,
                    }
                }
                None => match self.image.lock() {
                    Err(failure) if failure.code() == Some(30) => {}
                    locked => locked?,
                },
            }
        }
        match self.image.is_locked_by_us()? {
            true => {
                self.writes.store(true, Ordering::Release);
                Ok(())
            }
            false => Err(Failure::Answer { doing: "take the image's lock", code: 16 }),
        }
    }

    /// Takes the lock where no client that lives has it; blocks. Otherwise the address of that client.
    pub(crate) fn take_free_lock(&self) -> Result<Result<(), String>, Failure> {
        if let Some(owner) = self.image.lock_owner()?.filter(|owner| owner != self.address())
            && self.image.watchers()?.contains(&owner)
        {
            return Ok(Err(owner));
        }
        // The library shuts out who is not there any more before it takes the lock.
        self.image.lock()?;
        self.writes.store(true, Ordering::Release);
        Ok(Ok(()))
    }
}

impl Drop for Session {
    /// Closes the image. What may still take effect must not do so after somebody else has the lock, so it is not let go of before the
    /// cluster has shut this client out.
    fn drop(&mut self) {
        if !self.undecided.load(Ordering::Acquire) {
            return;
        }
        let image = Arc::clone(&self.image);
        let ending = spawn_thread("rbd-end", move || {
            let cluster = Arc::clone(image.pool().cluster());
            if let Err(failure) = cluster.shut_out(cluster.address(), SHUT_OUT_SECONDS) {
                tracing::warn!(%failure, "a client of Ceph with requests that were not answered stays until the process ends");
                std::mem::forget(image);
            }
        });
        if let Err(error) = ending {
            tracing::error!(%error, "no thread can be started");
        }
    }
}
