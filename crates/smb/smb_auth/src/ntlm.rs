//! NTLM, version 2 only (MS-NLMP).

pub mod acceptor;
pub mod av_pairs;
pub mod client;
pub mod crypto;
pub mod message;
pub mod policy;

/// Flags of the negotiation (MS-NLMP 2.2.2.5).
pub mod flag {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const UNICODE: u32 = 0x0000_0001;
    pub const REQUEST_TARGET: u32 = 0x0000_0004;
    pub const SIGN: u32 = 0x0000_0010;
    pub const SEAL: u32 = 0x0000_0020;
    pub const NTLM: u32 = 0x0000_0200;
    pub const ANONYMOUS: u32 = 0x0000_0800;
    pub const ALWAYS_SIGN: u32 = 0x0000_8000;
    pub const TARGET_TYPE_DOMAIN: u32 = 0x0001_0000;
    pub const TARGET_TYPE_SERVER: u32 = 0x0002_0000;
    pub const EXTENDED_SESSION_SECURITY: u32 = 0x0008_0000;
    pub const TARGET_INFO: u32 = 0x0080_0000;
    pub const VERSION: u32 = 0x0200_0000;
    pub const BITS_128: u32 = 0x2000_0000;
    pub const KEY_EXCHANGE: u32 = 0x4000_0000;
    pub const BITS_56: u32 = 0x8000_0000;
}
