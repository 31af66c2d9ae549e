//! The create context of a shared virtual disk, and its answer (2.2.4.12, 2.2.4.31 to 2.2.4.33).
//!
//! ```text
//!   0 version │ 4 has an initiator │ 8 initiator │ 24 flags │ 28 originator │ 32 request │ 40 length of the host's name │ 42 the name
//!   168, in version 2: properties are known │ 172 the server's version │ 176 sector, physical sector │ 184 size
//! ```

use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::wire::{Reader, Reserved, Wire};
use smb_protocol::{DecodeError, Guid, NtStatus};

use crate::{HOST_NAME_BYTES, Version};

/// Bytes of the context in version 1.
pub const V1_BYTES: usize = 168;
/// Bytes of the context in version 2.
pub const V2_BYTES: usize = 192;

smb_protocol::named_values! {
    /// Which part of a host opens the file (OriginatorFlags).
    pub struct Originator(u32) {
        PVHDPARSER = 1,
        VHDMP = 4,
    }
}

smb_protocol::wire_struct! {
    /// What both versions have (2.2.4.12).
    pub struct OpenDevice [168] {
        /// Which version of the context.
        version: Version,
        /// Whether there is an initiator: 0 or 1.
        has_initiator: u8,
        _: Reserved<3>,
        /// The initiator: what opens have in common that are the same one to SCSI.
        initiator: Guid,
        /// The client's own; it is told the same.
        flags: u32,
        /// Which part of the host opens the file.
        originator: Originator,
        /// The client's number for the request.
        request: u64,
        /// Bytes of the host's name.
        host_length: u16,
        /// The host's name in UTF-16.
        host: HostName,
    }
}

/// A host's name with what is behind it in its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostName(pub [u8; HOST_NAME_BYTES]);

impl Default for HostName {
    fn default() -> Self {
        Self([0; HOST_NAME_BYTES])
    }
}

impl Wire for HostName {
    const SIZE: usize = HOST_NAME_BYTES;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        <[u8; HOST_NAME_BYTES]>::take(reader).map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
}

smb_protocol::wire_struct! {
    /// What version 2 tells of the disk (2.2.4.33); zeros in a request (2.2.4.32).
    pub struct DiskProperties [24] {
        /// Whether the sectors and the size are told.
        known: u32,
        /// The version that the server speaks.
        server: Version,
        /// Bytes of a logical sector.
        sector: u32,
        /// Bytes of a physical sector.
        physical_sector: u32,
        /// Size of the disk in bytes.
        size: u64,
    }
}

impl OpenDevice {
    /// Decodes the context of a request.
    ///
    /// # Errors
    /// BUFFER_TOO_SMALL when it is shorter than its version is, INVALID_PARAMETER for another version, an initiator that is neither there nor
    /// not, or a name that is longer than its room (3.2.5.1).
    pub fn of_request(data: &[u8]) -> Result<Self, NtStatus> {
        let device = Self::decode(data).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
        match device.version {
            Version::V1 => {}
            Version::V2 if data.len() < V2_BYTES => return Err(NtStatus::BUFFER_TOO_SMALL),
            Version::V2 => {}
            _ => return Err(NtStatus::INVALID_PARAMETER),
        }
        if device.has_initiator > 1 || usize::from(device.host_length) > HOST_NAME_BYTES {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(device)
    }

    /// Decodes what is answered, with the disk's properties in version 2.
    ///
    /// # Errors
    /// When it is too short for its version.
    pub fn of_answer(data: &[u8]) -> Result<(Self, Option<DiskProperties>), DecodeError> {
        let mut reader = Reader::new(data);
        let device = Self::take(&mut reader)?;
        let properties =
            if device.version == Version::V2 { Some(DiskProperties::take(&mut reader)?) } else { None };
        Ok((device, properties))
    }

    /// The context: what is told of the disk is in version 2 only.
    #[must_use]
    pub fn encode(&self, properties: &DiskProperties) -> Vec<u8> {
        let mut out = self.to_bytes();
        if self.version == Version::V2 {
            properties.put(&mut out);
        }
        out
    }

    /// The same for a host of this name, of which there is room for 63 UTF-16 units.
    #[must_use]
    pub fn of_host(self, name: &str) -> Self {
        let mut units = utf16(name);
        units.truncate(HOST_NAME_BYTES);
        let mut host = HostName::default();
        host.0[..units.len()].copy_from_slice(&units);
        Self { host_length: units.len() as u16, host, ..self }
    }

    /// The initiator; none where the open is of nobody.
    #[must_use]
    pub fn initiator(&self) -> Option<Guid> {
        (self.has_initiator == 1 && !self.initiator.is_zero()).then_some(self.initiator)
    }

    /// The host's name, as far as it is one.
    #[must_use]
    pub fn host_name(&self) -> String {
        let bytes = self.host.0.get(..usize::from(self.host_length)).unwrap_or_default();
        Utf16::new(bytes).ok().and_then(|name| name.to_string().ok()).unwrap_or_default()
    }
}
