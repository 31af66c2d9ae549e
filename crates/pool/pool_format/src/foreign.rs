//! What else is on a disk: found by the marks that other software leaves, or because something is there at all, so that
//! nothing is overwritten by mistake.

use crate::{Announced, BLOCK, DecodeError, Released, Superblock};

/// How many bytes of the start and of the end of a disk [`detect`] wants to see.
pub const SAMPLE_BYTES: usize = 1 << 20;

/// A mark: what it means, where it lies in the head, and its bytes.
const MARKS: &[(&str, usize, &[u8])] = &[
    ("an XFS file system", 0, b"XFSB"),
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("a qcow2 disk image", 0, b"QFI\xfb"),
    ("a VHDX disk image", 0, b"vhdxfile"),
    ("a VHD disk image", 0, b"conectix"),
    ("a VMDK disk image", 0, b"KDMV"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("a Ceph BlueStore device", 0, b"bluestore block device"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("a FAT file system", 54, b"FAT1"),
    ("a FAT32 file system", 82, b"FAT32   "),
    ("an LVM2 physical volume", 512 + 24, b"LVM2 001"),
    ("an LVM2 physical volume", 24, b"LVM2 001"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an ext2, ext3 or ext4 file system", 1024 + 56, b"\x53\xef"),
    ("an HFS+ file system", 1024, b"H+"),
    ("an APFS container", 32, b"NXSB"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("a Linux RAID (md) member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("a Linux RAID (md) member", 0, b"\xfc\x4e\x2b\xa9"),
    ("a bcache device", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("Linux swap space", 4096 - 10, b"SWAPSPACE2"),
    ("an ISO 9660 image", 32769, b"CD001"),
    ("a btrfs file system", 65536 + 64, b"_BHRfS_M"),
    ("a ReiserFS file system", 65536 + 52, b"ReIsEr"),
    ("a bcachefs file system", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    ("a DRBD device", 0, b"\x83\x74\x02\x6b"),
];

/// What is said of a disk with data that no mark tells of.
pub const UNRECOGNISED: &str = "data that is not recognised";
/// Places between the ends of a disk that are looked at for data that no mark tells of.
const PLACES: u64 = 256;

/// Whether a disk, by its first block, was released by its pool: what lies behind that mark is nobody's any more.
#[must_use]
pub fn is_released(head: &[u8]) -> bool {
    Released::decode(head).is_ok()
}

/// Whether anything is in a part of a disk.
#[must_use]
pub fn has_data(part: &[u8]) -> bool {
    part.iter().any(|byte| *byte != 0)
}

/// Where to look for data in the midst of a disk of `size` bytes, a block at each place.
pub fn places_between(size: u64) -> impl Iterator<Item = u64> {
    let inner = size.saturating_sub(2 * SAMPLE_BYTES as u64) / BLOCK;
    let step = (inner / PLACES).max(1);
    (0..inner.min(PLACES)).map(move |index| SAMPLE_BYTES as u64 + index * step * BLOCK)
}

/// What is on a disk, from its first and last [`SAMPLE_BYTES`] (less on a smaller disk); `None` when there is nothing, or
/// what its pool left when it released the disk. A Holdfast disk is named with its pool, also when a newer release made it
/// or when it is damaged.
#[must_use]
pub fn detect(head: &[u8], tail: &[u8]) -> Option<String> {
    if let Some(own) = detect_own(head, tail) {
        return Some(own);
    }
    if is_released(head) {
        return None;
    }
    for (what, at, mark) in MARKS {
        if head.get(*at..).is_some_and(|rest| rest.starts_with(mark)) {
            return Some((*what).to_owned());
        }
    }
    if is_zfs(head) {
        return Some("a ZFS pool member".to_owned());
    }
    if md_at_end(tail) {
        return Some("a Linux RAID (md) member".to_owned());
    }
    // The backup of a partition table at the end tells of a disk whose start was wiped.
    if tail.len() >= 512 && tail[tail.len() - 512..].starts_with(b"EFI PART") {
        return Some("a GPT partition table (its backup at the end)".to_owned());
    }
    let signed = head.get(510..512) == Some(b"\x55\xaa");
    let partitions = head.get(446..510).is_some_and(|table| table.iter().any(|byte| *byte != 0));
    if signed && partitions {
        return Some("an MBR partition table".to_owned());
    }
    (has_data(head) || has_data(tail)).then(|| UNRECOGNISED.to_owned())
}

/// Whose disk it is, if it is one of Holdfast's.
fn detect_own(head: &[u8], tail: &[u8]) -> Option<String> {
    let ends = [head.get(..4096), tail.len().checked_sub(4096).and_then(|at| tail.get(at..))];
    let mut damaged = None;
    for block in ends.into_iter().flatten() {
        match Superblock::decode(block) {
            Ok(superblock) => {
                return Some(format!(
                    "a disk of Holdfast pool {} ({})",
                    superblock.pool_name, superblock.pool
                ));
            }
            Err(DecodeError::Unsupported(_)) => {
                let Ok(Announced { version, features, pool }) = Superblock::announced(block) else {
                    continue;
                };
                return Some(format!(
                    "a disk of Holdfast pool {pool} that needs a newer release (version {version}, features \
                     {features:#x})"
                ));
            }
            Err(DecodeError::WrongMagic | DecodeError::Truncated) => {}
            Err(error) => damaged = Some(format!("a disk of a Holdfast pool whose superblock {error}")),
        }
    }
    damaged
}

/// An uberblock's magic in either byte order, anywhere in the uberblock array of the first label.
fn is_zfs(head: &[u8]) -> bool {
    const MAGIC: u64 = 0x00ba_b10c;
    head.get(128 << 10..256 << 10).is_some_and(|array| {
        array
            .chunks_exact(1024)
            .any(|block| block.starts_with(&MAGIC.to_le_bytes()) || block.starts_with(&MAGIC.to_be_bytes()))
    })
}

/// md metadata 0.90 (64 KiB-aligned, 64 to 128 KiB before the end) and 1.0 (8 to 12 KiB before the end).
fn md_at_end(tail: &[u8]) -> bool {
    const MAGIC: &[u8] = b"\xfc\x4e\x2b\xa9";
    let near = tail.len().saturating_sub(128 << 10);
    tail[near..].chunks_exact(4096).any(|block| block.starts_with(MAGIC))
}
