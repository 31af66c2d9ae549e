//! What one command may ask for at most, as the vital product data tells it, and in which steps long ones go on.

/// Largest READ or WRITE, in bytes: bounds the buffer of one command. 65536 blocks of 512 bytes, and what the
/// transport takes for one command.
pub(crate) const MAX_TRANSFER_BYTES: u64 = 32 << 20;
/// Most descriptors of one UNMAP.
pub(crate) const MAX_UNMAP_DESCRIPTORS: u32 = 256;
/// Most blocks of one COMPARE AND WRITE: its count is one byte.
pub(crate) const MAX_COMPARE_BLOCKS: u8 = 255;
/// Step of long commands.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// Most ranges of one command with tokens: what Windows sends at most.
pub(crate) const MAX_TOKEN_RANGES: u16 = 64;
/// Most bytes of a token or of one write: initiators expect an answer within seconds.
pub(crate) const MAX_TOKEN_TRANSFER: u64 = 256 << 20;
/// Seconds a token lasts unused, if the initiator does not say, and at most.
pub(crate) const TOKEN_TIMEOUTS: (u32, u32) = (30, 3600);
