//! Disks that are images of Ceph: addresses, what they look like, and what goes wrong in words.

use block_device::BlockDevice as _;
use block_rbd::{Access, Address, OpenError, RbdDisk, Times};
use control_api::{Code, MediaType, Problem};

use crate::backend::FoundDisk;

/// Where an image is.
///
/// # Errors
/// When the text is no address.
pub(super) fn address(text: &str) -> Result<Address, Problem> {
    Address::parse(text).map_err(|error| {
        Problem::new(Code::InvalidRequest, format!("disk {text}: {error}."))
            .todo("Name it rbd:POOL/IMAGE, with ?id=USER&conf=PATH&keyring=PATH as far as they differ from Ceph's own.")
    })
}

/// Opens an image. Call on a shard.
pub(super) async fn open(address: Address, access: Access) -> Result<RbdDisk, Problem> {
    let (name, spec) = (address.to_string(), format!("{}/{}", address.pool, address.image));
    RbdDisk::open(address, access, Times::default()).await.map_err(|error| told(&name, &spec, &error))
}

/// An image as disks are found.
pub(super) fn found(image: &RbdDisk) -> FoundDisk {
    FoundDisk {
        id: image.name().to_owned(),
        path: image.name().to_owned(),
        size_bytes: image.size(),
        media: MediaType::Unspecified,
        model: Some("Ceph RBD".into()),
        serial: Some(image.identity().to_owned()),
        bus: Some("rbd".into()),
        ..FoundDisk::default()
    }
}

/// What went wrong, where, and what to do.
fn told(disk: &str, spec: &str, error: &OpenError) -> Problem {
    /// `ENOENT`.
    const MISSING: Option<i32> = Some(2);
    let (code, todo) = match error {
        OpenError::Library(_) => {
            (Code::Unsupported, "Install them on this node: `apt install librbd1`.".to_owned())
        }
        OpenError::Cluster(_) => (
            Code::Unavailable,
            "Look whether the configuration file and the user's keyring can be read here, the user is known to Ceph (`ceph auth get`), and a monitor is reachable; the disk is used again by itself when it is.".to_owned(),
        ),
        OpenError::Pool(failure) if failure.code() == MISSING => {
            (Code::NotFound, "`ceph osd pool ls` shows which there are.".to_owned())
        }
        OpenError::Image(failure) if failure.code() == MISSING => {
            (Code::NotFound, format!("Make it first: `rbd create {spec} --size 1T`."))
        }
        OpenError::NoLock => (Code::Unsupported, format!("`rbd feature enable {spec} exclusive-lock`.")),
        OpenError::Cached => (
            Code::Unsupported,
            format!("`rbd config image rm {spec} rbd_cache`, or the same for its pool."),
        ),
        _ => (
            Code::Io,
            "The user needs `profile rbd` for monitors and OSDs (`ceph auth caps`); `ceph health` says how the cluster is.".to_owned(),
        ),
    };
    Problem::new(code, format!("disk {disk}: {error}.")).todo(todo)
}
