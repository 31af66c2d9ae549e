//! Which block devices this machine has, from `/sys` and `/proc`.
//!
//! Everything is read below a given root, so that the tests run on made trees. Whole disks only: partitions
//! make their disk "in use".

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// A disk of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDisk {
    /// Identity that survives another cable or slot; the path when the disk has none.
    pub id: String,
    /// Where it is now.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether it has platters; `None` when it does not say.
    pub rotational: Option<bool>,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Vendor; "ATA" for what a SATA disk is to SCSI.
    pub vendor: Option<String>,
    /// How it is attached ("nvme", "sas" …).
    pub bus: Option<String>,
    /// Enclosure.
    pub enclosure: Option<String>,
    /// Slot in the enclosure.
    pub slot: Option<String>,
    /// What of this machine uses it, in words.
    pub in_use_by: Option<String>,
}

/// Devices that are never disks of a pool: memory, loops, floppies, optical drives, networks' own.
const SKIPPED: [&str; 7] = ["loop", "ram", "zram", "fd", "sr", "nbd", "dm-"];

/// Sector size of `/sys/block/*/size`, whatever the disk's own is.
const SYS_SECTOR: u64 = 512;

/// Longest serial number page that is looked at, in bytes; the page's own length is a 16-bit number.
const MAX_SERIAL_PAGE: usize = 4 + 256;

/// Lists the disks below `root` (`/` but in tests), with who uses them.
///
/// # Errors
/// When `/sys/block` can't be read.
pub fn discover(root: &Path) -> io::Result<Vec<FoundDisk>> {
    let sys = root.join("sys/block");
    let entries = fs::read_dir(&sys)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", sys.display())))?;
    let used = used_devices(root);
    let mut found: Vec<FoundDisk> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            if SKIPPED.iter().any(|prefix| name.starts_with(prefix)) {
                return None;
            }
            disk(&entry.path(), &name, &used)
        })
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}

fn disk(dir: &Path, name: &str, used: &BTreeSet<String>) -> Option<FoundDisk> {
    let size_bytes = text(dir, "size")?.parse::<u64>().ok()?.checked_mul(SYS_SECTOR)?;
    if size_bytes == 0 {
        return None;
    }
    let wwid = text(dir, "wwid").or_else(|| text(dir, "device/wwid"));
    let serial = text(dir, "serial").or_else(|| text(dir, "device/serial")).or_else(|| scsi_serial(dir));
    let model = text(dir, "device/model");
    let path = format!("/dev/{name}");
    // Without any identity of its own a disk is known by its path; the pool's superblock still knows it.
    let id = match (&wwid, &serial) {
        (Some(wwid), _) => wwid.replace(char::is_whitespace, "_"),
        (None, Some(serial)) => {
            format!("{}-{serial}", model.as_deref().unwrap_or(name)).replace(char::is_whitespace, "_")
        }
        (None, None) => path.clone(),
    };
    let rotational = match text(dir, "queue/rotational").as_deref() {
        Some("0") => Some(false),
        Some("1") => Some(true),
        _ => None,
    };
    let (enclosure, slot) = enclosure(dir).unzip();
    Some(FoundDisk {
        id,
        path,
        size_bytes,
        rotational,
        model,
        serial,
        vendor: text(dir, "device/vendor").filter(|vendor| !vendor.starts_with("0x")),
        bus: bus(dir, name),
        enclosure,
        slot,
        in_use_by: user(dir, name, used),
    })
}

/// A short text file, trimmed; `None` when it isn't there or is empty.
fn text(dir: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(dir.join(name)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The serial number of a SCSI disk, which the kernel gives as the page that the disk answered (SPC-4 7.8.15): four
/// bytes of header with the page's code and length, then the number, padded with blanks.
fn scsi_serial(dir: &Path) -> Option<String> {
    let page = fs::read(dir.join("device/vpd_pg80")).ok()?;
    let page = page.get(..page.len().min(MAX_SERIAL_PAGE))?;
    let [_, 0x80, high, low, rest @ ..] = page else { return None };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let number = rest.get(..len.min(rest.len()))?;
    let number = std::str::from_utf8(number).ok()?.trim_matches([' ', '\0']);
    (!number.is_empty() && number.chars().all(|c| !c.is_control())).then(|| number.to_owned())
}

fn bus(dir: &Path, name: &str) -> Option<String> {
    if name.starts_with("nvme") {
        return Some("nvme".into());
    }
    if name.starts_with("vd") {
        return Some("virtio".into());
    }
    let device = fs::canonicalize(dir.join("device")).ok()?;
    let device = device.to_string_lossy();
    let known = [
        ("/usb", "usb"),
        ("/ata", "sata"),
        ("/end_device-", "sas"),
        ("/session", "iscsi"),
        ("/virtio", "virtio"),
    ];
    known.iter().find(|(mark, _)| device.contains(mark)).map(|(_, bus)| (*bus).to_owned())
}

/// Enclosure and slot: SES enclosures link a disk to its place, `device/enclosure_device:NAME` to
/// `.../enclosure/ADDRESS/NAME`. The enclosure's logical identifier stays when it gets another address at the next
/// start, and is the same by both of its ways; the number of the slot is what is printed on it.
fn enclosure(dir: &Path) -> Option<(String, String)> {
    let entry = fs::read_dir(dir.join("device")).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((entry.path(), name.strip_prefix("enclosure_device:")?.to_owned()))
    });
    let (link, name) = entry?;
    let place = fs::canonicalize(link).ok()?;
    let enclosure = place.parent()?;
    let id = text(enclosure, "id").filter(|id| id.trim_start_matches("0x").bytes().any(|b| b != b'0'));
    let address = || Some(enclosure.file_name()?.to_string_lossy().into_owned());
    Some((id.or_else(address)?, text(&place, "slot").unwrap_or(name)))
}

/// Who uses a disk, in words.
fn user(dir: &Path, name: &str, used: &BTreeSet<String>) -> Option<String> {
    if used.contains(name) {
        return Some("mounted or used for swapping".into());
    }
    if let Some(holder) = first_entry(&dir.join("holders")) {
        return Some(format!("held by {holder}"));
    }
    let parts = fs::read_dir(dir).ok()?.flatten().filter(|entry| entry.path().join("partition").exists());
    for part in parts {
        let part_name = part.file_name().to_string_lossy().into_owned();
        if used.contains(&part_name) {
            return Some(format!("its partition {part_name} is mounted or used for swapping"));
        }
        if let Some(holder) = first_entry(&part.path().join("holders")) {
            return Some(format!("its partition {part_name} is held by {holder}"));
        }
    }
    None
}

fn first_entry(dir: &Path) -> Option<String> {
    let entry = fs::read_dir(dir).ok()?.flatten().next()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

/// Kernel names of devices that are mounted or used for swapping.
fn used_devices(root: &Path) -> BTreeSet<String> {
    ["proc/mounts", "proc/swaps"]
        .iter()
        .filter_map(|file| fs::read_to_string(root.join(file)).ok())
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| Some(line.split_whitespace().next()?.strip_prefix("/dev/")?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("made");
        fs::write(path, content).expect("written");
    }

    #[test]
    fn disks_of_a_made_machine() {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path();
        write(root, "proc/mounts", "/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n");
        write(root, "proc/swaps", "Filename Type Size\n");
        write(root, "sys/block/sda/size", "1000\n");
        write(root, "sys/block/sda/sda1/partition", "1\n");
        write(root, "sys/block/sdb/size", "4000000\n");
        write(root, "sys/block/sdb/device/wwid", "naa.5000c500a1b2c3d4\n");
        write(root, "sys/block/sdb/device/model", "ST4000  \n");
        write(root, "sys/block/sdb/queue/rotational", "1\n");
        write(root, "sys/block/nvme0n1/size", "8000\n");
        write(root, "sys/block/nvme0n1/wwid", "eui.0025385b71b0a1c2\n");
        write(root, "sys/block/nvme0n1/queue/rotational", "0\n");
        write(root, "sys/block/nvme0n1/holders/md0", "");
        write(root, "sys/block/loop0/size", "8000\n");
        write(root, "sys/block/sdc/size", "0\n");
        let found = discover(root).expect("readable");
        let ids: Vec<&str> = found.iter().map(|disk| disk.id.as_str()).collect();
        assert_eq!(ids, ["/dev/sda", "eui.0025385b71b0a1c2", "naa.5000c500a1b2c3d4"]);
        assert!(found[0].in_use_by.as_ref().is_some_and(|user| user.contains("sda1")));
        assert!(found[1].in_use_by.as_ref().is_some_and(|user| user.contains("md0")));
        let free = &found[2];
        assert_eq!(
            (free.in_use_by.as_ref(), free.rotational, free.size_bytes),
            (None, Some(true), 4_000_000 * 512)
        );
        assert_eq!(free.model.as_deref(), Some("ST4000"));
    }

    #[test]
    fn serial_vendor_and_place_of_a_scsi_disk() {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path();
        write(root, "proc/mounts", "");
        write(root, "proc/swaps", "");
        for (name, slot) in [("sda", "Slot 01"), ("sdb", "Slot 02"), ("sdc", "Slot 03")] {
            let place = format!("sys/devices/enclosure/0:0:8:0/{slot}");
            write(root, &format!("{place}/status"), "OK\n");
            let device = format!("sys/block/{name}/device");
            write(root, &format!("sys/block/{name}/size"), "1000\n");
            write(root, &format!("{device}/wwid"), &format!("naa.{name}\n"));
            write(root, &format!("{device}/vendor"), "SEAGATE \n");
            let link = root.join(&device).join(format!("enclosure_device:{slot}"));
            std::os::unix::fs::symlink(root.join(place), link).expect("linked");
        }
        let enclosure = "sys/devices/enclosure/0:0:8:0";
        let page = |name: &str, page: &str| write(root, &format!("sys/block/{name}/device/vpd_pg80"), page);
        page("sda", "\0\u{0}\0\u{8}6VEK9B89");
        let looked = || discover(root).expect("readable");
        // Another page, and no identifier: the address and the name of the place have to do.
        let found = looked();
        let place = |disk: &FoundDisk| (disk.enclosure.clone(), disk.slot.clone());
        assert_eq!(place(&found[0]), (Some("0:0:8:0".into()), Some("Slot 01".into())));
        assert_eq!((found[0].serial.as_ref(), found[0].vendor.as_deref()), (None, Some("SEAGATE")));
        write(root, &format!("{enclosure}/id"), "0x5000c500a1b2c300\n");
        write(root, &format!("{enclosure}/Slot 01/slot"), "7\n");
        for (name, len) in [("sda", 10), ("sdb", 200), ("sdc", 3)] {
            let mut bytes = vec![0, 0x80, 0, len];
            bytes.extend(b"  6VEK9B89");
            fs::write(root.join(format!("sys/block/{name}/device/vpd_pg80")), bytes).expect("written");
        }
        let found = looked();
        assert_eq!(place(&found[0]), (Some("0x5000c500a1b2c300".into()), Some("7".into())));
        let serials: Vec<Option<&str>> = found.iter().map(|disk| disk.serial.as_deref()).collect();
        // A length beyond the page is not believed, one within it is.
        assert_eq!(serials, [Some("6VEK9B89"), Some("6VEK9B89"), Some("6")]);
        fs::write(root.join("sys/block/sda/device/vpd_pg80"), [0, 0x80]).expect("written");
        fs::write(root.join("sys/block/sdb/device/vpd_pg80"), [0, 0x80, 0, 2, 0xFF, 0xFE]).expect("written");
        fs::write(root.join("sys/block/sdc/device/vpd_pg80"), [0, 0x80, 0, 2, b' ', b' ']).expect("written");
        assert!(looked().iter().all(|disk| disk.serial.is_none()));
    }
}
