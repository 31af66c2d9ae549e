//! Controls about the connection: interfaces, validation of the negotiation, resiliency (MS-SMB2 2.2.31.3, 2.2.31.4,
//! 2.2.32.5, 2.2.32.6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::command::Dialect;
use crate::guid::Guid;
use crate::negotiate::{Capabilities, SecurityMode, U16List};
use crate::wire::{DecodeError, Reader, Reserved, Wire};

bit_flags! {
    /// What an interface can do.
    pub struct InterfaceCapabilities(u32) {
        RSS_CAPABLE = 0x0000_0001,
        RDMA_CAPABLE = 0x0000_0002,
    }
}

/// An interface by which the server is reached (MS-SMB2 2.2.32.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its index at the server.
    pub index: u32,
    /// What it can do.
    pub capabilities: InterfaceCapabilities,
    /// Bits per second.
    pub link_speed: u64,
    /// Its address.
    pub address: IpAddr,
}

/// Bytes of one entry.
const ENTRY_BYTES: usize = 152;
/// Address families of SOCKADDR_STORAGE (MS-SMB2 2.2.32.5.1).
const FAMILY_V4: u16 = 0x0002;
const FAMILY_V6: u16 = 0x0017;
/// Most entries that a client reads.
const MAX_INTERFACES: usize = 1024;

/// The output of QUERY_NETWORK_INTERFACE_INFO.
pub fn put_interfaces(interfaces: &[NetworkInterface], out: &mut Vec<u8>) {
    for (at, interface) in interfaces.iter().enumerate() {
        let start = out.len();
        let next = if at + 1 < interfaces.len() { ENTRY_BYTES as u32 } else { 0 };
        next.put(out);
        interface.index.put(out);
        interface.capabilities.put(out);
        0_u32.put(out);
        interface.link_speed.put(out);
        match interface.address {
            IpAddr::V4(address) => {
                FAMILY_V4.put(out);
                0_u16.put(out);
                address.octets().put(out);
            }
            IpAddr::V6(address) => {
                FAMILY_V6.put(out);
                Reserved::<6>.put(out);
                address.octets().put(out);
            }
        }
        out.resize(start + ENTRY_BYTES, 0);
    }
}

/// The interfaces in the output of QUERY_NETWORK_INTERFACE_INFO; those of another address family are left out.
///
/// # Errors
/// When an entry is not whole or leads nowhere.
pub fn interfaces(output: &[u8]) -> Result<Vec<NetworkInterface>, DecodeError> {
    let mut found = Vec::new();
    let mut rest = output;
    for _ in 0..MAX_INTERFACES {
        let mut r = Reader::new(rest);
        let next = r.u32()? as usize;
        let index = r.u32()?;
        let capabilities = InterfaceCapabilities::take(&mut r)?;
        r.u32()?;
        let link_speed = r.u64()?;
        let mut address = Reader::new(r.raw(128)?);
        let family = address.u16()?;
        address.u16()?;
        let address = match family {
            FAMILY_V4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::take(&mut address)?))),
            FAMILY_V6 => {
                address.u32()?;
                Some(IpAddr::V6(Ipv6Addr::from(address.guid()?)))
            }
            _ => None,
        };
        found.extend(address.map(|address| NetworkInterface { index, capabilities, link_speed, address }));
        match next {
            0 => return Ok(found),
            next if next < ENTRY_BYTES => return Err(DecodeError::Invalid("next interface")),
            next => rest = rest.get(next..).ok_or(DecodeError::Invalid("next interface"))?,
        }
    }
    Err(DecodeError::Invalid("number of interfaces"))
}

/// What a client of 3.0 or 3.0.2 believes to have negotiated (MS-SMB2 2.2.31.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidateNegotiate<'a> {
    /// What it said it could do.
    pub capabilities: Capabilities,
    /// Who it is.
    pub client_guid: Guid,
    /// What it said about signing.
    pub security_mode: SecurityMode,
    /// The versions that it offered.
    pub dialects: U16List<'a>,
}

impl<'a> ValidateNegotiate<'a> {
    /// Decodes it from the input of the control.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let capabilities = Capabilities::take(&mut r)?;
        let client_guid = Guid::take(&mut r)?;
        let security_mode = SecurityMode::take(&mut r)?;
        let count = usize::from(r.u16()?);
        Ok(Self { capabilities, client_guid, security_mode, dialects: U16List::new(r.raw(count * 2)?) })
    }

    /// The input of the control.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.dialects.len() * 2);
        self.capabilities.put(&mut out);
        self.client_guid.put(&mut out);
        self.security_mode.put(&mut out);
        (self.dialects.len() as u16).put(&mut out);
        out.extend_from_slice(self.dialects.bytes());
        out
    }
}

wire_struct! {
    /// What the server really negotiated (MS-SMB2 2.2.32.6).
    pub struct ValidateNegotiateReply [24] {
        /// What it said it could do.
        capabilities: Capabilities,
        /// Who it is.
        server_guid: Guid,
        /// What it said about signing.
        security_mode: SecurityMode,
        /// The version.
        dialect: Dialect,
    }
}

wire_struct! {
    /// LMR_REQUEST_RESILIENCY (MS-SMB2 2.2.31.3).
    pub struct Resiliency [8] {
        /// For how many milliseconds the handle should outlive its connection.
        timeout: u32,
        _: Reserved<4>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_there_and_back() {
        let all = [
            NetworkInterface {
                index: 2,
                capabilities: InterfaceCapabilities::RSS_CAPABLE,
                link_speed: 10_000_000_000,
                address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            },
            NetworkInterface {
                index: 3,
                capabilities: InterfaceCapabilities::NONE,
                link_speed: 1_000_000_000,
                address: IpAddr::V6(Ipv6Addr::LOCALHOST),
            },
        ];
        let mut bytes = Vec::new();
        put_interfaces(&all, &mut bytes);
        assert_eq!(bytes.len(), 304);
        assert_eq!(&bytes[24..32], &[2, 0, 0, 0, 10, 0, 0, 1]);
        assert_eq!(interfaces(&bytes), Ok(all.to_vec()));
        // Entries that lead to themselves, or out of the buffer.
        for next in [8, 151, 400] {
            bytes[..4].copy_from_slice(&u32::to_le_bytes(next));
            assert!(interfaces(&bytes).is_err(), "{next}");
        }
    }

    #[test]
    fn validation_there_and_back() {
        let request = ValidateNegotiate {
            capabilities: Capabilities::LEASING,
            client_guid: Guid([1; 16]),
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialects: U16List::new(&[2, 2, 0, 3]),
        };
        let bytes = request.encode();
        assert_eq!(ValidateNegotiate::decode(&bytes), Ok(request));
        assert!(ValidateNegotiate::decode(&bytes[..27]).is_err());
    }
}
