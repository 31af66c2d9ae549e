//! Whether a disk of this machine's may be one that other machines reach, too.
//!
//! The system does not know who else is attached to a device: a SAN's disk, one in a shared enclosure and a virtual machine's look like any
//! other. So all may be, but for those that are made of this machine's memory or files.

use std::fs;
use std::path::Path;

/// Devices are made of devices in so many layers at most; of what lies deeper it is taken that others reach it.
const LAYERS: usize = 8;

/// Whether other machines may reach the block device of this number.
pub(crate) fn device_may_be_shared(number: u64) -> bool {
    let (major, minor) = (libc::major(number), libc::minor(number));
    // One that cannot be looked at may be any.
    Path::new("/sys/dev/block")
        .join(format!("{major}:{minor}"))
        .canonicalize()
        .map_or(true, |device| may_be_shared(&device, LAYERS))
}

/// The same of its folder under `/sys`; of a partition, what holds for its device.
fn may_be_shared(device: &Path, layers: usize) -> bool {
    let Some(layers) = layers.checked_sub(1) else { return true };
    if device.join("partition").exists() {
        return device.parent().is_none_or(|whole| may_be_shared(whole, layers));
    }
    if let Ok(file) = fs::read_to_string(device.join("loop/backing_file")) {
        return fs::File::open(file.trim_end_matches('\n')).map_or(true, |file| {
            use std::os::unix::fs::{FileTypeExt, MetadataExt};
            match file.metadata() {
                Ok(meta) if meta.file_type().is_block_device() => device_may_be_shared(meta.rdev()),
                _ => file_may_be_shared(&file),
            }
        });
    }
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if ["ram", "zram"].iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }) {
        return false;
    }
    // What the device mapper and md make is as what it is made of.
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten().filter_map(Result::ok);
    let below: Vec<_> = below.filter_map(|below| below.path().canonicalize().ok()).collect();
    below.is_empty() || below.iter().any(|below| may_be_shared(below, layers))
}

/// Whether other machines may reach the file system that a file is in.
pub(crate) fn file_may_be_shared(file: &fs::File) -> bool {
    io_engine::device_info::is_of_a_network(file)
}
