//! Information about a file system (MS-FSCC 2.5).

use crate::fscc::names::put_name;
use crate::guid::Guid;
use crate::time::FileTime;
use crate::utf16::{Utf16, put_utf16, take_name};
use crate::wire::{DecodeError, Reader, Reserved, Wire};

wire_struct! {
    /// FileFsSizeInformation (2.5.8).
    pub struct SizeInformation [24] {
        /// Clusters for this user.
        total: u64,
        /// Clusters that are free for this user.
        available: u64,
        /// Sectors in a cluster.
        sectors_per_unit: u32,
        /// Bytes in a sector.
        bytes_per_sector: u32,
    }
}

wire_struct! {
    /// FileFsFullSizeInformation (2.5.4).
    pub struct FullSizeInformation [32] {
        /// Clusters for this user.
        total: u64,
        /// Clusters that are free for this user.
        caller_available: u64,
        /// Clusters that are free.
        actual_available: u64,
        /// Sectors in a cluster.
        sectors_per_unit: u32,
        /// Bytes in a sector.
        bytes_per_sector: u32,
    }
}

bit_flags! {
    /// Characteristics of a device (2.5.10).
    pub struct DeviceCharacteristics(u32) {
        REMOVABLE_MEDIA = 0x0000_0001,
        READ_ONLY_DEVICE = 0x0000_0002,
        FLOPPY_DISKETTE = 0x0000_0004,
        WRITE_ONCE_MEDIA = 0x0000_0008,
        REMOTE_DEVICE = 0x0000_0010,
        DEVICE_IS_MOUNTED = 0x0000_0020,
        VIRTUAL_VOLUME = 0x0000_0040,
        DEVICE_SECURE_OPEN = 0x0000_0100,
    }
}

wire_struct! {
    /// FileFsDeviceInformation (2.5.10).
    pub struct DeviceInformation [8] {
        /// 7 for a disk, 0x11 for a named pipe.
        device_type: u32,
        /// Characteristics.
        characteristics: DeviceCharacteristics,
    }
}

bit_flags! {
    /// What a file system can do (2.5.1).
    pub struct FileSystemAttributes(u32) {
        CASE_SENSITIVE_SEARCH = 0x0000_0001,
        CASE_PRESERVED_NAMES = 0x0000_0002,
        UNICODE_ON_DISK = 0x0000_0004,
        PERSISTENT_ACLS = 0x0000_0008,
        FILE_COMPRESSION = 0x0000_0010,
        VOLUME_QUOTAS = 0x0000_0020,
        SUPPORTS_SPARSE_FILES = 0x0000_0040,
        SUPPORTS_REPARSE_POINTS = 0x0000_0080,
        SUPPORTS_REMOTE_STORAGE = 0x0000_0100,
        VOLUME_IS_COMPRESSED = 0x0000_8000,
        SUPPORTS_OBJECT_IDS = 0x0001_0000,
        SUPPORTS_ENCRYPTION = 0x0002_0000,
        NAMED_STREAMS = 0x0004_0000,
        READ_ONLY_VOLUME = 0x0008_0000,
        SEQUENTIAL_WRITE_ONCE = 0x0010_0000,
        SUPPORTS_TRANSACTIONS = 0x0020_0000,
        SUPPORTS_HARD_LINKS = 0x0040_0000,
        SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000,
        SUPPORTS_OPEN_BY_FILE_ID = 0x0100_0000,
        SUPPORTS_USN_JOURNAL = 0x0200_0000,
        SUPPORTS_INTEGRITY_STREAMS = 0x0400_0000,
        SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000,
        SUPPORTS_SPARSE_VDL = 0x1000_0000,
        SUPPORTS_GHOSTING = 0x4000_0000,
    }
}

/// FileFsAttributeInformation (2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeInformation<'a> {
    /// What it can do.
    pub attributes: FileSystemAttributes,
    /// Most units in one component of a path.
    pub max_component: u32,
    /// What kind of file system it says it is.
    pub name: Utf16<'a>,
}

impl<'a> AttributeInformation<'a> {
    /// Decodes it from the answer to QUERY_INFO.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let attributes = FileSystemAttributes::take(&mut r)?;
        let max_component = r.u32()?;
        let len = r.u32()? as usize;
        Ok(Self { attributes, max_component, name: take_name(&mut r, len)? })
    }
}

/// Appends FileFsAttributeInformation.
pub fn put_attributes(attributes: FileSystemAttributes, max_component: u32, name: &str, out: &mut Vec<u8>) {
    attributes.put(out);
    max_component.put(out);
    put_name(name, out);
}

/// FileFsVolumeInformation (2.5.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeInformation<'a> {
    /// Created.
    pub creation_time: FileTime,
    /// Serial number.
    pub serial: u32,
    /// Whether there are object identifiers.
    pub supports_objects: bool,
    /// The volume's name.
    pub label: Utf16<'a>,
}

impl<'a> VolumeInformation<'a> {
    /// Decodes it from the answer to QUERY_INFO.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let creation_time = FileTime(r.u64()?);
        let serial = r.u32()?;
        let len = r.u32()? as usize;
        let supports_objects = bool::take(&mut r)?;
        r.u8()?;
        Ok(Self { creation_time, serial, supports_objects, label: take_name(&mut r, len)? })
    }
}

/// Appends FileFsVolumeInformation.
pub fn put_volume(
    creation_time: FileTime,
    serial: u32,
    supports_objects: bool,
    label: &str,
    out: &mut Vec<u8>,
) {
    creation_time.put(out);
    serial.put(out);
    ((label.encode_utf16().count() * 2) as u32).put(out);
    supports_objects.put(out);
    out.push(0);
    put_utf16(label, out);
}

wire_struct! {
    /// FileFsControlInformation (2.5.2).
    pub struct ControlInformation [48] {
        /// Thresholds that have no use today.
        free_space: [u8; 24],
        /// Bytes at which new users are warned.
        default_threshold: u64,
        /// Bytes that new users may take.
        default_limit: u64,
        /// How quotas are enforced.
        flags: u32,
        _: Reserved<4>,
    }
}

wire_struct! {
    /// FileFsObjectIdInformation (2.5.6).
    pub struct ObjectIdInformation [64] {
        /// The volume.
        object_id: Guid,
        /// Whatever else.
        extended: [[u8; 16]; 3],
    }
}

bit_flags! {
    /// Flags of FileFsSectorSizeInformation.
    pub struct SectorFlags(u32) {
        ALIGNED_DEVICE = 0x0000_0001,
        PARTITION_ALIGNED_ON_DEVICE = 0x0000_0002,
        NO_SEEK_PENALTY = 0x0000_0004,
        TRIM_ENABLED = 0x0000_0008,
    }
}

wire_struct! {
    /// FileFsSectorSizeInformation (2.5.7).
    pub struct SectorSizeInformation [28] {
        /// Bytes of a logical sector.
        logical: u32,
        /// Bytes that are written as one.
        physical_atomicity: u32,
        /// Bytes that are written best as one.
        physical_performance: u32,
        /// Bytes that the file system treats as one.
        effective_atomicity: u32,
        /// Flags.
        flags: SectorFlags,
        /// Bytes by which logical sectors are off; u32::MAX if not known.
        sector_alignment: u32,
        /// Bytes by which the partition is off; u32::MAX if not known.
        partition_alignment: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_there_and_back() {
        let mut out = Vec::new();
        put_attributes(FileSystemAttributes::PERSISTENT_ACLS, 255, "NTFS", &mut out);
        let found = AttributeInformation::decode(&out).unwrap();
        assert_eq!(
            (out.len(), found.max_component, found.name.to_string().unwrap().as_str()),
            (20, 255, "NTFS")
        );
        assert!(AttributeInformation::decode(&out[..19]).is_err());
        let mut out = Vec::new();
        put_volume(FileTime(1), 2, false, "data", &mut out);
        let found = VolumeInformation::decode(&out).unwrap();
        assert_eq!((out.len(), found.serial, found.label.to_string().unwrap().as_str()), (26, 2, "data"));
        assert!(VolumeInformation::decode(&out[..25]).is_err());
    }
}
