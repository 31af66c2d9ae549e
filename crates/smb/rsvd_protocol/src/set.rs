//! Version 2: what is done with a disk as a whole, snapshots and change tracking (2.2.4.17 to 2.2.4.30, 2.2.4.34 to 2.2.4.40).

use smb_protocol::wire::{Reader, Reserved, Wire};
use smb_protocol::{Guid, NtStatus};

smb_protocol::named_values! {
    /// What META_OPERATION_START begins (OperationType).
    pub struct MetaOperation(u32) {
        RESIZE = 0,
        CREATE_SNAPSHOT = 1,
        OPTIMIZE = 2,
        EXTRACT_VHD = 3,
        CONVERT_TO_VHD_SET = 4,
        APPLY_SNAPSHOT = 5,
    }
}

smb_protocol::wire_struct! {
    /// The fixed part of META_OPERATION_START (2.2.4.17).
    pub struct MetaStart [24] {
        /// The client's name for it.
        transaction: Guid,
        /// What is begun.
        operation: MetaOperation,
        _: Reserved<4>,
    }
}

impl MetaStart {
    /// Decodes a request from behind the header, with what belongs to its operation.
    ///
    /// # Errors
    /// BUFFER_TOO_SMALL when it is too short, INVALID_PARAMETER for another operation (3.2.5.5.7).
    pub fn of_request(payload: &[u8]) -> Result<(Self, &[u8]), NtStatus> {
        let start = Self::decode(payload).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
        if start.operation.name().is_none() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok((start, payload.get(Self::SIZE..).unwrap_or_default()))
    }
}

smb_protocol::wire_struct! {
    /// Another size for the disk (2.2.4.17.4).
    pub struct Resize [12] {
        /// The new size in bytes.
        size: u64,
        /// It may only become larger.
        expand_only: bool,
        /// It may become smaller than what is on it needs.
        allow_unsafe: bool,
        /// It becomes as small as what is on it allows; `size` is 0 then.
        shrink_to_safe: bool,
        _: Reserved<1>,
    }
}

impl Resize {
    /// Decodes it.
    ///
    /// # Errors
    /// BUFFER_TOO_SMALL, or INVALID_PARAMETER_1 for wishes that exclude each other (3.2.5.5.7.5).
    pub fn of_request(data: &[u8]) -> Result<Self, NtStatus> {
        let resize = Self::decode(data).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
        if resize.shrink_to_safe && (resize.size != 0 || resize.expand_only || resize.allow_unsafe) {
            return Err(NtStatus::INVALID_PARAMETER_1);
        }
        Ok(resize)
    }
}

smb_protocol::named_values! {
    /// What a snapshot is for (2.2.6).
    pub struct SnapshotType(u32) {
        NONE = 0,
        VM = 1,
        CDP = 3,
        WRITEABLE = 4,
    }
}

impl SnapshotType {
    /// Whether it is one of those that there are.
    #[must_use]
    pub fn is_one(self) -> bool {
        matches!(self, Self::VM | Self::CDP | Self::WRITEABLE)
    }
}

/// Stages of CREATE_SNAPSHOT, each at most once and in this order: initialize, hold I/O, switch, let I/O go on, finish (2.2.4.17.1).
pub const STAGES: u32 = 5;

smb_protocol::wire_struct! {
    /// A snapshot to be made (2.2.4.17.1).
    pub struct CreateSnapshot [52] {
        /// What for.
        snapshot_type: SnapshotType,
        /// 1: changes are to be tracked from then on.
        flags: u32,
        /// The stages; 0 for none.
        stages: [u8; 24],
        /// Its identity.
        snapshot: Guid,
        /// Bytes of parameters that follow.
        parameters: u32,
    }
}

impl CreateSnapshot {
    /// Decodes it.
    ///
    /// # Errors
    /// As the specification has it (3.2.5.5.7.1).
    pub fn of_request(data: &[u8]) -> Result<Self, NtStatus> {
        let create = Self::decode(data).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
        if data.len() - Self::SIZE < create.parameters as usize {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        if !create.snapshot_type.is_one() {
            return Err(NtStatus::INVALID_PARAMETER_1);
        }
        let stages = create.stages();
        if stages[0] == 0 {
            return Err(NtStatus::INVALID_PARAMETER_2);
        }
        let flags = create.flags;
        if flags != 0 && (create.snapshot_type != SnapshotType::VM || flags != 1 || stages[0] != 1) {
            return Err(NtStatus::INVALID_PARAMETER_5);
        }
        for pair in stages.windows(2) {
            match pair {
                [_, 0] => {}
                [0, _] => return Err(NtStatus::INVALID_PARAMETER_3),
                [before, now] if now <= before || *now > STAGES => return Err(NtStatus::INVALID_PARAMETER_4),
                _ => {}
            }
        }
        Ok(create)
    }

    /// The stages in order.
    #[must_use]
    pub fn stages(&self) -> [u32; 6] {
        let mut reader = Reader::new(&self.stages);
        std::array::from_fn(|_| reader.u32().unwrap_or_default())
    }
}

smb_protocol::wire_struct! {
    /// The fixed part of EXTRACT_VHD (2.2.4.17.2); the name of the file to be made follows.
    pub struct Extract [48] {
        /// Of which snapshots.
        snapshot_type: SnapshotType,
        _: Reserved<4>,
        /// 1: the set is deleted when it is closed.
        flags: u32,
        /// The snapshot.
        source: Guid,
        /// The one that the file differs from; zero for none.
        limit: Guid,
        /// Bytes of the name with its terminator.
        name_length: u32,
    }
}

smb_protocol::wire_struct! {
    /// A snapshot that is applied (2.2.4.36), or opened (2.2.4.35).
    pub struct SnapshotName [20] {
        /// What it is for.
        snapshot_type: SnapshotType,
        /// Its identity.
        snapshot: Guid,
    }
}

smb_protocol::wire_struct! {
    /// How far an operation has come is asked (2.2.4.23).
    pub struct ProgressRequest [16] {
        /// The client's name for it.
        transaction: Guid,
    }
}

smb_protocol::wire_struct! {
    /// How far it has come (2.2.4.24).
    pub struct Progress [16] {
        /// So far.
        now: u64,
        /// Where it ends.
        complete: u64,
    }
}

smb_protocol::named_values! {
    /// What VHDSET_QUERY_INFORMATION asks for (2.2.4.19).
    pub struct SetInformation(u32) {
        SNAPSHOT_LIST = 2,
        SNAPSHOT_ENTRY = 5,
        OPTIMIZE_NEEDED = 8,
        CDP_SNAPSHOT_ROOT = 9,
        CDP_SNAPSHOT_ACTIVE_LIST = 10,
        CDP_SNAPSHOT_INACTIVE_LIST = 12,
    }
}

smb_protocol::wire_struct! {
    /// VHDSET_QUERY_INFORMATION (2.2.4.19).
    pub struct SetQuery [24] {
        /// What is asked for.
        information: SetInformation,
        /// Of which snapshots.
        snapshot_type: SnapshotType,
        /// Of this one.
        snapshot: Guid,
    }
}

smb_protocol::wire_struct! {
    /// DELETE_SNAPSHOT (2.2.4.26).
    pub struct DeleteSnapshot [24] {
        /// Which.
        snapshot: Guid,
        /// 1: that there was one is kept, without its data.
        persist_reference: u32,
        /// What it is for.
        snapshot_type: SnapshotType,
    }
}

smb_protocol::wire_struct! {
    /// The answer to CHANGE_TRACKING_GET_PARAMETERS (2.2.4.25).
    pub struct ChangeTracking [16] {
        /// How change tracking is.
        status: NtStatus,
        _: Reserved<4>,
        /// Bytes of its log.
        log_size: u64,
    }
}

smb_protocol::wire_struct! {
    /// CHANGE_TRACKING_START (2.2.4.27).
    pub struct StartTracking [56] {
        /// The client's name for it.
        transaction: Guid,
        /// Where the log's name is.
        name_offset: u32,
        /// Its length; 0.
        name_length: u32,
        /// The log's identity.
        log: Guid,
        /// Most bytes of the log; 0 for no limit.
        most: u64,
        /// 1: an earlier log goes on.
        append: u32,
        _: Reserved<4>,
    }
}

smb_protocol::wire_struct! {
    /// QUERY_VIRTUAL_DISK_CHANGES (2.2.4.37).
    pub struct ChangesQuery [56] {
        /// The later snapshot.
        target: Guid,
        /// The earlier one.
        limit: Guid,
        /// What they are for.
        snapshot_type: SnapshotType,
        _: Reserved<4>,
        /// The first byte that is asked for.
        offset: u64,
        /// How many.
        length: u64,
    }
}

smb_protocol::wire_struct! {
    /// The answer to QUERY_SAFE_SIZE (2.2.4.40).
    pub struct SafeSize [8] {
        /// The smallest size that keeps what is on the disk, in bytes.
        size: u64,
    }
}
