//! A disk of this node becomes one that is lent: found, opened alone, with its gate.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block_device::{BlockDevice as _, BlockError, BlockErrorKind, BlockFuture, Device};
use block_local::{LocalDisk, OpenMode};
use control_api::{Code, MediaType, Problem};
use disk_gate::{DiskIdentity, Gate, Identify, Records, Settings};
use sha2::{Digest as _, Sha256};

use super::super::content::look;
use super::super::shards::SystemShards;
use crate::backend::{DiskContent, FoundDisk};

/// A process that was killed has its disks until the kernel has ended its last requests: five seconds in all.
const BUSY_LOOKS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// What is made of a name where a short one is needed.
pub(super) fn hash_of(id: &str) -> String {
    name_of(id).to_string()
}

fn name_of(id: &str) -> DiskIdentity {
    let mut name = DiskIdentity::default();
    name.0.copy_from_slice(&Sha256::digest(id.as_bytes())[..16]);
    name
}

/// Members of pools are known by the GUID in their superblock, others by their name.
struct ByContent(DiskIdentity);

impl Identify for ByContent {
    fn identify<'a>(&'a self, device: &'a Device) -> BlockFuture<'a, DiskIdentity> {
        Box::pin(async move {
            match look(device.clone()).await {
                Ok(DiskContent::Member { disk, .. }) => Ok(DiskIdentity(disk.into_bytes())),
                Ok(_) => Ok(self.0),
                Err(problem) => {
                    Err(BlockError::new(BlockErrorKind::Io, "look whose disk it is").because(problem.detail))
                }
            }
        })
    }
}

/// Opens a disk of this machine to lend it; one that is busy is waited for when that is wanted: its gate, what is known of it, and what the hardware is known by. `found` is what discovery says.
pub(super) async fn open(
    shards: &SystemShards,
    records: Arc<dyn Records>,
    (id, path, patient): (&str, &str, bool),
    found: &[FoundDisk],
) -> Result<(Arc<Gate>, FoundDisk, String), Problem> {
    let failed = |code: Code, why: String| Problem::new(code, format!("disk {id}: {why}."));
    let place = Path::new(path).canonicalize().map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::Io };
        failed(code, format!("{path} on this node: {error}"))
    })?;
    let meta = place.metadata().map_err(|error| failed(Code::Io, format!("{path}: {error}")))?;
    let at = place.to_string_lossy().into_owned();
    let discovered = found.iter().find(|disk| disk.path == at);
    if let Some(user) = discovered.and_then(|disk| disk.in_use_by.as_ref()) {
        return Err(failed(Code::InUse, format!("{path} is in use on this node: {user}"))
            .todo("Unmount or release it there first, or choose another disk."));
    }
    let disk = open_alone(&place, id, if patient { BUSY_LOOKS } else { 0 }).await?;
    let (size, rotational) = (disk.size(), disk.geometry().rotational);
    let settings = Settings {
        device: Arc::new(disk),
        name: id.to_owned(),
        records,
        identify: Arc::new(ByContent(name_of(id))),
        blank: Some(name_of(id)),
    };
    let gate = shards
        .run(0, move || async move {
            Gate::open(settings).await.map_err(|error| Problem::new(Code::Io, error.to_string()))
        })
        .await?;
    let identity = discovered.map_or_else(|| format!("{at}#{}", meta.ino()), |disk| disk.id.clone());
    let known = discovered.cloned().unwrap_or_else(|| FoundDisk {
        media: if rotational { MediaType::Hdd } else { MediaType::Unspecified },
        bus: Some(if meta.is_file() { "file" } else { "disk" }.to_owned()),
        ..FoundDisk::default()
    });
    Ok((
        gate,
        FoundDisk { id: id.to_owned(), path: at, size_bytes: size, in_use_by: None, ..known },
        identity,
    ))
}

async fn open_alone(path: &Path, id: &str, looks: u32) -> Result<LocalDisk, Problem> {
    for look in 0.. {
        match LocalDisk::open(path, OpenMode::ReadWrite) {
            Ok(disk) => return Ok(disk),
            Err(error) if error.is_busy() && look < looks => tokio::time::sleep(BUSY_PAUSE).await,
            Err(error) => {
                let code = if error.is_busy() { Code::InUse } else { Code::Io };
                return Err(Problem::new(code, format!("disk {id}: {error}.")));
            }
        }
    }
    Err(Problem::new(Code::Internal, format!("disk {id} was not looked at.")))
}
