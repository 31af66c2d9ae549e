//! STORAGE_QOS_CONTROL: what hosts say of the virtual machines that they open files for, and what they are told of them (MS-SQOS 2.2.2).
//!
//! ```text
//! request   0 version, options │ 8 flow, policy, initiator │ 56 limit, reservation │ 72 where the names are │ 80 counters
//!           112, in 1.1 only: bandwidth, kilobytes         │ names, anywhere from 104 on
//! response  0 version, options │ 8 flow, policy, initiator │ 56 time to live, status │ 64 rates │ 80 base size │ in 1.1: 88 bandwidth
//! ```

use crate::guid::Guid;
use crate::status::NtStatus;
use crate::utf16::Utf16;
use crate::wire::{Reader, Reserved, Wire};

named_values! {
    /// The version of a request and of its answer.
    pub struct QosVersion(u16) {
        V1_0 = 0x0100,
        V1_1 = 0x0101,
    }
}

bit_flags! {
    /// What a request asks for.
    pub struct QosOptions(u32) {
        SET_LOGICAL_FLOW_ID = 0x0000_0001,
        SET_POLICY = 0x0000_0002,
        PROBE_POLICY = 0x0000_0004,
        GET_STATUS = 0x0000_0008,
        UPDATE_COUNTERS = 0x0000_0010,
    }
}

named_values! {
    /// How a flow fares.
    pub struct QosStatus(u32) {
        OK = 0,
        INSUFFICIENT_THROUGHPUT = 1,
        UNKNOWN_POLICY_ID = 2,
        CONFIGURATION_MISMATCH = 4,
        NOT_AVAILABLE = 5,
    }
}

/// Longest name, in bytes (STORAGE_QOS_INITIATOR_NAME_SIZE).
const NAME_BYTES: u16 = 0x200;
/// Where names begin at the earliest: the specification counts without the counters' last field, and its examples have them there.
const FIRST_NAME: u16 = 104;

wire_struct! {
    /// The fixed part of a request.
    pub struct QosControl [112] {
        /// The version.
        version: QosVersion,
        _: Reserved<2>,
        /// What is asked for.
        options: QosOptions,
        /// The flow: what a virtual machine does with a virtual disk.
        flow: Guid,
        /// The policy; zero for none.
        policy: Guid,
        /// The initiator: the virtual machine.
        initiator: Guid,
        /// Most normalised I/Os per second; 0 for no limit.
        limit: u64,
        /// Least normalised I/Os per second; 0 for none.
        reservation: u64,
        /// Where the initiator's name is, from the beginning.
        name_offset: u16,
        /// Its length in bytes.
        name_length: u16,
        /// Where the name of the initiator's host is.
        node_offset: u16,
        /// Its length in bytes.
        node_length: u16,
        /// I/Os that the initiator has asked for since it last told.
        ios: u64,
        /// Normalised ones.
        normalized_ios: u64,
        /// How long they took together, in 100 ns.
        latency: u64,
        /// How long without the initiator's own queues.
        lower_latency: u64,
    }
}

/// STORAGE_QOS_CONTROL_REQUEST (MS-SQOS 2.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosRequest<'a> {
    /// The fixed part.
    pub control: QosControl,
    /// Most kilobytes per second; 0 for no limit, and in 1.0.
    pub bandwidth_limit: u64,
    /// Kilobytes that the initiator has moved since it last told.
    pub kilobytes: u64,
    input: &'a [u8],
}

impl<'a> QosRequest<'a> {
    /// Decodes it from the input of the control.
    ///
    /// # Errors
    /// REVISION_MISMATCH for another version, INVALID_PARAMETER when it is too short or asks for nothing (3.2.5.1).
    pub fn decode(input: &'a [u8]) -> Result<Self, NtStatus> {
        let invalid = |_| NtStatus::INVALID_PARAMETER;
        let mut r = Reader::new(input);
        let version = QosVersion::take(&mut Reader::new(input)).map_err(invalid)?;
        if version != QosVersion::V1_0 && version != QosVersion::V1_1 {
            return Err(NtStatus::REVISION_MISMATCH);
        }
        let control = QosControl::take(&mut r).map_err(invalid)?;
        let (bandwidth_limit, kilobytes) = match version {
            QosVersion::V1_1 => (r.u64().map_err(invalid)?, r.u64().map_err(invalid)?),
            _ => (0, 0),
        };
        if control.options.0 & 0x1f == 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Self { control, bandwidth_limit, kilobytes, input })
    }

    /// The names of the initiator and of its host; empty ones are left as they are.
    ///
    /// # Errors
    /// INVALID_PARAMETER when one is too long, begins in the fixed part, ends behind the request or is no UTF-16 (3.2.5.1.2).
    pub fn names(&self) -> Result<(String, String), NtStatus> {
        let name = |offset: u16, length: u16| {
            if length == 0 {
                return Some(String::new());
            }
            let from = usize::from(offset);
            let bytes = self.input.get(from..from + usize::from(length))?;
            let good = length <= NAME_BYTES && offset >= FIRST_NAME;
            Utf16::new(bytes).ok().filter(|_| good)?.to_string().ok()
        };
        let QosControl { name_offset, name_length, node_offset, node_length, .. } = self.control;
        let names = name(name_offset, name_length).zip(name(node_offset, node_length));
        names.ok_or(NtStatus::INVALID_PARAMETER)
    }
}

/// A request with these names behind it, whose places are filled in; `bandwidth` is the limit and the kilobytes moved, in 1.1.
#[must_use]
pub fn qos_request(control: QosControl, bandwidth: (u64, u64), names: (&str, &str)) -> Vec<u8> {
    let (name, node) = (crate::utf16::utf16(names.0), crate::utf16::utf16(names.1));
    let fixed = if control.version == QosVersion::V1_1 { 128 } else { 112 };
    let length = |name: &[u8]| u16::try_from(name.len()).unwrap_or(u16::MAX);
    let place = |at: u16, name: &[u8]| if name.is_empty() { 0 } else { at };
    let control = QosControl {
        name_offset: place(fixed, &name),
        name_length: length(&name),
        node_offset: place(fixed.saturating_add(length(&name)), &node),
        node_length: length(&node),
        ..control
    };
    let mut out = control.to_bytes();
    if control.version == QosVersion::V1_1 {
        bandwidth.0.put(&mut out);
        bandwidth.1.put(&mut out);
    }
    out.extend_from_slice(&name);
    out.extend_from_slice(&node);
    out
}

wire_struct! {
    /// STORAGE_QOS_CONTROL_RESPONSE of version 1.0 (MS-SQOS 2.2.2.3).
    pub struct QosAnswer [88] {
        /// The version of the request.
        version: QosVersion,
        _: Reserved<2>,
        /// Nothing.
        options: QosOptions,
        /// The flow.
        flow: Guid,
        /// The policy that holds for it; zero for none.
        policy: Guid,
        /// The initiator.
        initiator: Guid,
        /// For how long this holds, in milliseconds.
        time_to_live: u32,
        /// How it fares.
        status: QosStatus,
        /// Most normalised I/Os per second; 0 for no limit.
        maximum_io_rate: u64,
        /// Least normalised I/Os per second.
        minimum_io_rate: u64,
        /// Bytes that count as one I/O.
        base_io_size: u32,
        _: Reserved<4>,
    }
}

impl QosAnswer {
    /// Encodes it with the most kilobytes per second that are allowed, which 1.0 does not tell.
    #[must_use]
    pub fn encode(&self, maximum_bandwidth: u64) -> Vec<u8> {
        let mut out = self.to_bytes();
        if self.version == QosVersion::V1_1 {
            maximum_bandwidth.put(&mut out);
        }
        out
    }

    /// Decodes it, with the bandwidth if it tells that.
    ///
    /// # Errors
    /// When it is too short.
    pub fn decode_with_bandwidth(output: &[u8]) -> Result<(Self, Option<u64>), crate::wire::DecodeError> {
        let mut r = Reader::new(output);
        let answer = Self::take(&mut r)?;
        let bandwidth = if answer.version == QosVersion::V1_1 { Some(r.u64()?) } else { None };
        Ok((answer, bandwidth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(version: QosVersion, options: QosOptions) -> QosControl {
        QosControl { version, options, flow: Guid([7; 16]), ..QosControl::default() }
    }

    #[test]
    fn requests_of_both_versions_are_read_as_they_were_written() {
        for version in [QosVersion::V1_0, QosVersion::V1_1] {
            let bytes =
                qos_request(control(version, QosOptions::SET_POLICY), (200, 3), ("TEST-VM", "host.example"));
            let read = QosRequest::decode(&bytes).unwrap();
            assert_eq!(read.names(), Ok(("TEST-VM".into(), "host.example".into())));
            let told = if version == QosVersion::V1_1 { (200, 3) } else { (0, 0) };
            assert_eq!((read.bandwidth_limit, read.kilobytes), told);
            for cut in 0..if version == QosVersion::V1_1 { 128 } else { 112 } {
                assert_eq!(QosRequest::decode(&bytes[..cut]), Err(NtStatus::INVALID_PARAMETER), "{cut}");
            }
            assert_eq!(
                QosRequest::decode(&bytes[..bytes.len() - 1]).unwrap().names(),
                Err(NtStatus::INVALID_PARAMETER)
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_request_is_told_as_specified() {
        let bytes = qos_request(control(QosVersion(0x0102), QosOptions::GET_STATUS), (0, 0), ("", ""));
        assert_eq!(QosRequest::decode(&bytes), Err(NtStatus::REVISION_MISMATCH));
        let bytes = qos_request(control(QosVersion::V1_1, QosOptions(0x20)), (0, 0), ("", ""));
        assert_eq!(QosRequest::decode(&bytes), Err(NtStatus::INVALID_PARAMETER), "nothing is asked for");
        let names = |offset, length| {
            let control = QosControl {
                name_offset: offset,
                name_length: length,
                ..control(QosVersion::V1_0, QosOptions::SET_POLICY)
            };
            let mut bytes = control.to_bytes();
            bytes.resize(2000, 0x41);
            QosRequest::decode(&bytes).unwrap().names().map(|(name, _)| name.len())
        };
        assert!(names(104, 14).is_ok(), "where the specification's example has it");
        assert!(names(0, 0).is_ok());
        assert!(names(112, 0x200).is_ok());
        for (offset, length) in [(102, 2), (112, 0x202), (1999, 2), (u16::MAX, u16::MAX), (112, 3)] {
            assert_eq!(names(offset, length), Err(NtStatus::INVALID_PARAMETER), "{offset} {length}");
        }
    }

    #[test]
    fn answers_have_the_lengths_of_their_versions() {
        let answer = QosAnswer { version: QosVersion::V1_0, maximum_io_rate: 100, ..QosAnswer::default() };
        assert_eq!(answer.encode(200).len(), 88);
        let newer = QosAnswer { version: QosVersion::V1_1, ..answer };
        assert_eq!(QosAnswer::decode_with_bandwidth(&newer.encode(200)), Ok((newer, Some(200))));
        assert_eq!(newer.encode(200)[88..], 200_u64.to_le_bytes());
    }
}
