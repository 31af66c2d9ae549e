//! Contexts of durable, persistent and failed-over handles (MS-SMB2 2.2.13.2.3 to 2.2.13.2.15).

use crate::file::FileId;
use crate::guid::Guid;
use crate::wire::{Reserved, StructureSize};

bit_flags! {
    /// Flags of a durable handle of version 2.
    pub struct DurableFlags(u32) {
        PERSISTENT = 0x0000_0002,
    }
}

wire_struct! {
    /// DHnQ: make the handle durable (2.2.13.2.3).
    pub struct DurableRequest [16] {
        _: Reserved<16>,
    }
}

wire_struct! {
    /// The answer to DHnQ (2.2.14.2.3).
    pub struct DurableReply [8] {
        _: Reserved<8>,
    }
}

wire_struct! {
    /// DHnC: here I am again (2.2.13.2.4). There is no answer.
    pub struct DurableReconnect [16] {
        /// The handle of before.
        file_id: FileId,
    }
}

wire_struct! {
    /// DH2Q: make the handle durable or persistent (2.2.13.2.11).
    pub struct DurableRequestV2 [32] {
        /// For how many milliseconds it should outlive its connection; 0 leaves it to the server.
        timeout: u32,
        /// Whether persistent.
        flags: DurableFlags,
        _: Reserved<8>,
        /// The client's name for this CREATE.
        create_guid: Guid,
    }
}

wire_struct! {
    /// The answer to DH2Q (2.2.14.2.12).
    pub struct DurableReplyV2 [8] {
        /// For how many milliseconds it outlives its connection.
        timeout: u32,
        /// Whether persistent.
        flags: DurableFlags,
    }
}

wire_struct! {
    /// DH2C: here I am again (2.2.13.2.12). There is no answer.
    pub struct DurableReconnectV2 [36] {
        /// The handle of before.
        file_id: FileId,
        /// The CREATE of before.
        create_guid: Guid,
        /// Whether it was persistent.
        flags: DurableFlags,
    }
}

wire_struct! {
    /// For whom the file is opened, so that the same application on another client takes it over (2.2.13.2.13).
    pub struct AppInstanceId [20] {
        _: StructureSize<20>,
        _: Reserved<2>,
        /// For Hyper-V, the virtual machine.
        id: Guid,
    }
}

wire_struct! {
    /// Which of two instances is the newer one (2.2.13.2.15).
    pub struct AppInstanceVersion [24] {
        _: StructureSize<24>,
        _: Reserved<6>,
        /// The more significant half.
        high: u64,
        /// The less significant half.
        low: u64,
    }
}
