//! A node's volumes in a process that serves nobody: opened from the node's data directory, used, closed.
//!
//! Everything is opened and closed by the node's own code, so all of its rules hold: one owner of the data directory, an
//! epoch for each opening, the read cache and the write log as configured. What is absent is whoever serves: no API, no
//! target, no share, no watch over disks.

use std::path::Path;
use std::sync::Arc;

use control_api::{Code, Problem};
use file_store::{Access, FileStore, OpenFile, StoreError};
use shard_runtime::SystemClock;
use tcp_service::ShardJob;

use crate::config_store::ConfigStore;
use crate::data_dir::DataDir;
use crate::files;
use crate::node::Node;

/// What a data directory has when it is a node's.
const CONFIG: &str = "config.toml";

/// The volumes of a node that does not run. Must be closed: dropping it leaves pools as a crash would.
pub struct LocalVolumes {
    node: Arc<Node>,
}

/// An error of a volume's file as people are told of it.
#[must_use]
pub fn problem(error: &StoreError) -> Problem {
    files::problem(error)
}

impl LocalVolumes {
    /// Opens disks, pools and volumes of the node whose data directory `data` is. On a runtime of tokio.
    ///
    /// # Errors
    /// When there is no node's data, a node runs on it, or the machine does not give what is needed. A pool or volume that
    /// cannot be opened shows when it is used.
    pub async fn open(data: &Path) -> Result<Self, Problem> {
        if !data.join(CONFIG).is_file() {
            return Err(Problem::new(
                Code::NotFound,
                format!("{} is no node's data directory: there is no {CONFIG} in it.", data.display()),
            )
            .todo("Name the directory that `holdfast serve --data-dir` or `holdfast demo --dir` has."));
        }
        let data = DataDir::open(data).map_err(|problem| match problem.code {
            Code::InUse => problem.todo(
                "Stop the node first; a node that runs is measured as its clients see it, over smb:// or iscsi://.",
            ),
            _ => problem,
        })?;
        crate::cluster::refuse_offline(data.path())?;
        let config = ConfigStore::open(data.join(CONFIG))?;
        let configured = config.with(|config| config.node.shards);
        let shards = (configured > 0).then_some(usize::from(configured));
        let clock = Arc::new(SystemClock::new());
        let backends = crate::system::backends(
            data.path(),
            shards,
            clock.clone(),
            crate::system::alone(data.path())?,
            tcp_service::Answers::default(),
            None,
        )?;
        let node = Node::with(data, config, clock, backends);
        node.open_storage().await;
        Ok(Self { node })
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.node.spawner().shards()
    }

    /// Runs a job on a shard.
    pub fn spawn(&self, shard: usize, job: ShardJob) {
        self.node.spawner().spawn(shard, job);
    }

    /// The size of a file in bytes; `None` when there is none.
    ///
    /// # Errors
    /// When the volume is not there or not open, or the path leads nowhere else.
    pub async fn size(&self, volume: &str, path: &str) -> Result<Option<u64>, Problem> {
        match self.node.file_stat(volume, path).await {
            Ok(entry) if entry.kind == control_api::FileKind::File => Ok(Some(entry.size_bytes)),
            Ok(_) => Err(Problem::new(Code::InvalidRequest, format!("{path} is a directory."))),
            // The volume itself may be what is not there.
            Err(problem) if problem.code == Code::NotFound && self.node.has_volume(volume) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// When it is not there, or is not to be had.
    pub async fn file(&self, volume: &str, path: &str, writes: bool) -> Result<Arc<dyn OpenFile>, Problem> {
        let path = path.to_owned();
        let access = if writes { Access::READ_WRITE } else { Access::READ };
        self.node
            .with_store(volume, async move |store: Arc<dyn FileStore>| {
                files::open(&*store, &path, access).await
            })
            .await
    }

    /// Makes an empty file anew, with the directories above it; what was there is lost.
    ///
    /// # Errors
    /// When it cannot be made, or the file is a LUN's.
    pub async fn make(&self, volume: &str, path: &str) -> Result<(), Problem> {
        self.node.refuse_lun_data(volume, path).await?;
        let request = control_api::FileCreate {
            path: path.to_owned(),
            kind: control_api::FileKind::File,
            size_bytes: 0,
            reserve: false,
            parents: true,
        };
        let there = self.size(volume, path).await?.is_some();
        self.node
            .with_store(volume, async move |store: Arc<dyn FileStore>| {
                if there {
                    files::remove(&*store, &request.path).await?;
                }
                files::create(&*store, &request).await.map(drop)
            })
            .await
    }

    /// Closes volumes and pools, which makes all that was written durable.
    ///
    /// # Errors
    /// What could not be closed cleanly; it recovers at the next opening as after a crash.
    pub async fn close(&self) -> Result<(), Problem> {
        self.node.close().await
    }
}
