//! QUERY_INFO and SET_INFO about the volume (MS-FSA 2.1.5.13 to 2.1.5.16, MS-FSCC 2.5).

use smb_protocol::NtStatus;
use smb_protocol::fscc::VolumeClass;
use smb_protocol::fscc::volume::{
    ControlInformation, DeviceCharacteristics, DeviceInformation, FileSystemAttributes, FullSizeInformation,
    ObjectIdInformation, SectorFlags, SectorSizeInformation, SizeInformation, put_attributes, put_volume,
};
use smb_protocol::wire::Wire;

use crate::error::{Result, refuse};
use crate::file_system::Open;
use crate::query::finish;
use crate::quotas::QuotaChanges;

/// Least bytes of a buffer for the classes with a name at their end: the structures with their alignment, as Windows counts.
const VOLUME_FIXED: usize = 24;
const ATTRIBUTE_FIXED: usize = 16;
/// FILE_DEVICE_DISK.
const DISK: u32 = 7;
/// Bytes of a logical sector, as disks for virtual machines have.
const SECTOR: u32 = 512;
/// Bytes that are written as one: a block of the store (its contract's W3).
const BLOCK: u32 = 4096;

/// What the file system can do.
const ATTRIBUTES: FileSystemAttributes = FileSystemAttributes(
    FileSystemAttributes::CASE_SENSITIVE_SEARCH.0
        | FileSystemAttributes::CASE_PRESERVED_NAMES.0
        | FileSystemAttributes::UNICODE_ON_DISK.0
        | FileSystemAttributes::PERSISTENT_ACLS.0
        | FileSystemAttributes::SUPPORTS_SPARSE_FILES.0
        | FileSystemAttributes::SUPPORTS_REPARSE_POINTS.0
        | FileSystemAttributes::SUPPORTS_OBJECT_IDS.0
        | FileSystemAttributes::NAMED_STREAMS.0
        | FileSystemAttributes::SUPPORTS_EXTENDED_ATTRIBUTES.0
        | FileSystemAttributes::SUPPORTS_OPEN_BY_FILE_ID.0
        | FileSystemAttributes::SUPPORTS_BLOCK_REFCOUNTING.0
        | FileSystemAttributes::SUPPORTS_SPARSE_VDL.0,
);

impl Open {
    /// QUERY_INFO about the volume.
    ///
    /// # Errors
    /// INVALID_INFO_CLASS, INFO_LENGTH_MISMATCH.
    pub async fn query_volume(
        &self,
        class: VolumeClass,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<NtStatus> {
        let start = out.len();
        let options = &self.core.options;
        let unit = options.cluster.max(SECTOR);
        let sectors_per_unit = unit / SECTOR;
        let fixed = match class {
            VolumeClass::VOLUME => {
                put_volume(options.created, options.serial as u32, true, &self.core.label.lock(), out);
                VOLUME_FIXED
            }
            VolumeClass::SIZE => {
                let (total, available, _) = self.units(unit).await?;
                SizeInformation { total, available, sectors_per_unit, bytes_per_sector: SECTOR }.put(out);
                SizeInformation::SIZE
            }
            VolumeClass::FULL_SIZE => {
                let (total, caller_available, actual_available) = self.units(unit).await?;
                FullSizeInformation {
                    total,
                    caller_available,
                    actual_available,
                    sectors_per_unit,
                    bytes_per_sector: SECTOR,
                }
                .put(out);
                FullSizeInformation::SIZE
            }
            VolumeClass::DEVICE => {
                let characteristics = DeviceCharacteristics::DEVICE_IS_MOUNTED;
                DeviceInformation { device_type: DISK, characteristics }.put(out);
                DeviceInformation::SIZE
            }
            VolumeClass::ATTRIBUTE => {
                let quotas = if self.has_quotas() {
                    FileSystemAttributes::VOLUME_QUOTAS
                } else {
                    FileSystemAttributes(0)
                };
                put_attributes(ATTRIBUTES | quotas, file_store::names::NAME_MAX as u32, &options.kind, out);
                ATTRIBUTE_FIXED
            }
            VolumeClass::CONTROL => {
                self.quota_control().await?.put(out);
                ControlInformation::SIZE
            }
            VolumeClass::OBJECT_ID => {
                ObjectIdInformation { object_id: options.id, extended: [[0; 16]; 3] }.put(out);
                ObjectIdInformation::SIZE
            }
            VolumeClass::SECTOR_SIZE => {
                SectorSizeInformation {
                    logical: SECTOR,
                    physical_atomicity: BLOCK,
                    physical_performance: BLOCK,
                    effective_atomicity: BLOCK,
                    flags: SectorFlags::ALIGNED_DEVICE
                        | SectorFlags::PARTITION_ALIGNED_ON_DEVICE
                        | SectorFlags::NO_SEEK_PENALTY
                        | SectorFlags::TRIM_ENABLED,
                    sector_alignment: 0,
                    partition_alignment: 0,
                }
                .put(out);
                SectorSizeInformation::SIZE
            }
            _ => {
                return refuse(
                    NtStatus::INVALID_INFO_CLASS,
                    format!("{class:?} cannot be asked of a volume"),
                );
            }
        };
        finish(out, start, fixed, limit)
    }

    /// Units of `unit` bytes: those there are for the user, those free for the user, and those free. A quota leaves less of both.
    async fn units(&self, unit: u32) -> Result<(u64, u64, u64)> {
        let usage = self.core.store.usage().await?;
        // What is below the store holds its own structures, too, which are no part of the store's capacity. Of a thin one they take
        // far less than they may: so what lies behind them is asked for.
        let below = self.core.limit.get().map_or(u64::MAX, |can_hold| can_hold(usage.metadata));
        let free = usage.capacity.min(below).saturating_sub(usage.used);
        let (limit, left) = self.own_limit().await?;
        let unit = u64::from(unit);
        Ok((usage.capacity.min(limit) / unit, free.min(left) / unit, free / unit))
    }

    /// SET_INFO about the volume: nothing of it is a client's to change, but quotas an administrator's.
    ///
    /// # Errors
    /// ACCESS_DENIED for classes that exist, INVALID_INFO_CLASS for others.
    pub async fn set_volume(
        &self,
        class: VolumeClass,
        buffer: &[u8],
        changes: &mut QuotaChanges,
    ) -> Result<()> {
        match class {
            VolumeClass::CONTROL => self.set_quota_control(buffer, changes).await,
            VolumeClass::LABEL | VolumeClass::OBJECT_ID => {
                refuse(NtStatus::ACCESS_DENIED, "the volume is changed by its administrator")
            }
            _ => refuse(NtStatus::INVALID_INFO_CLASS, format!("{class:?} cannot be set on a volume")),
        }
    }
}
