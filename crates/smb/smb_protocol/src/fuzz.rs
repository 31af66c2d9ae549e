//! Entries for fuzzing: any bytes, never a panic, never unbounded work; and what was understood is written again and
//! understood in the same way.

pub mod samples;

use crate::command::{Command, Dialect};
use crate::compound::{for_each_message, messages};
use crate::create::CreateContexts;
use crate::error::{ShareRedirect, SymlinkError};
use crate::framing::{MAX_PACKET_BYTES, Packet, next_packet};
use crate::fscc::ea::EaList;
use crate::fscc::file::{AllInformation, BasicInformation};
use crate::fscc::names::RenameInformation;
use crate::fscc::quota::QueryQuota;
use crate::fscc::volume::{AttributeInformation, VolumeInformation};
use crate::fscc::{FileClass, ea, listing, names, notify, quota};
use crate::fsctl::copy::{CopyRequest, OffloadWriteInput};
use crate::fsctl::network::{ValidateNegotiate, interfaces};
use crate::fsctl::pipe::{GetReferrals, PipeWait};
use crate::fsctl::ranges::{FileLevelTrim, regions};
use crate::fsctl::reparse::Reparse;
use crate::fsctl::snapshots;
use crate::fsctl::storage_qos::{QosAnswer, QosRequest};
use crate::header::{HEADER_BYTES, Header};
use crate::message::{Request, Response};
use crate::negotiate::NegotiateContexts;
use crate::security::{Acl, SecurityDescriptor, Sid};
use crate::smb1::Smb1;
use crate::status::NtStatus;
use crate::transform::{CompressionHeader, TransformHeader};
use crate::wire::{Out, Wire};

/// A stream of packets as it comes from a socket.
pub fn packets(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((packet, used))) = next_packet(rest, MAX_PACKET_BYTES) {
        match Packet::of(packet) {
            Some(Packet::Smb2) => plain(packet),
            Some(Packet::Encrypted) => drop(TransformHeader::decode(packet)),
            Some(Packet::Compressed) => drop(CompressionHeader::decode(packet)),
            Some(Packet::Smb1) => {
                if let Ok(Smb1::Negotiate(found)) = Smb1::decode(packet) {
                    let _ = found.dialects().count();
                }
            }
            None => {}
        }
        rest = rest.get(used..).unwrap_or_default();
    }
}

fn plain(packet: &[u8]) {
    for message in messages(packet).map_while(Result::ok) {
        request_of(message.header.command, message.bytes, Dialect::SMB_3_1_1);
        response_of(&message.header, message.bytes);
    }
    let mut copy = packet.to_vec();
    for_each_message(&mut copy, |_, bytes| {
        assert!(bytes.len() >= HEADER_BYTES, "a message without a header")
    });
}

/// A request of any command: a byte for the command, one for the dialect, and the body.
pub fn request(bytes: &[u8]) {
    if let [command, dialect, body @ ..] = bytes {
        let dialect = Dialect::ALL.get(usize::from(*dialect)).copied().unwrap_or(Dialect::SMB_3_1_1);
        request_of(Command(u16::from(*command)), &[&[0; HEADER_BYTES], body].concat(), dialect);
    }
}

/// A response to any command: a byte for the command, one for the status (zero: success), and the body.
pub fn response(bytes: &[u8]) {
    if let [command, status, body @ ..] = bytes {
        let status = match status {
            0 => NtStatus::SUCCESS,
            1 => NtStatus::MORE_PROCESSING_REQUIRED,
            2 => NtStatus::BUFFER_OVERFLOW,
            3 => NtStatus::INVALID_PARAMETER,
            _ => NtStatus::STOPPED_ON_SYMLINK,
        };
        let header = Header { command: Command(u16::from(*command)), status, ..Header::default() };
        response_of(&header, &[&[0; HEADER_BYTES], body].concat());
    }
}

fn request_of(command: Command, message: &[u8], dialect: Dialect) {
    let Ok(first) = Request::decode(command, message, dialect) else { return };
    let _ = format!("{first:?}");
    if let Request::Create(create) = &first {
        create_contexts_of(&create.contexts);
    }
    let once = written(|out| first.encode(out));
    let second = Request::decode(command, &once, dialect);
    let twice = second.as_ref().map(|again| written(|out| again.encode(out)));
    assert_eq!(twice.as_deref(), Ok(once.as_slice()), "{first:?} became {second:?}");
}

fn response_of(header: &Header, message: &[u8]) {
    let Ok(first) = Response::decode(header, message) else { return };
    let _ = format!("{first:?}");
    match &first {
        Response::Error(error) => {
            for (_, data) in error.contexts() {
                let _ = ShareRedirect::decode(data);
                let _ = SymlinkError::decode(data);
            }
        }
        Response::Create(create) => create_contexts_of(&create.contexts),
        _ => {}
    }
    let once = written(|out| first.encode(out));
    let second = Response::decode(header, &once);
    let twice = second.as_ref().map(|again| written(|out| again.encode(out)));
    assert_eq!(twice.as_deref(), Ok(once.as_slice()), "{first:?} became {second:?}");
}

fn written(body: impl FnOnce(&mut Out<'_>)) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    let mut out = Out::at(&mut message, 0);
    body(&mut out);
    assert!(out.check().is_ok(), "what came in a message fits into one");
    message
}

fn create_contexts_of(contexts: &CreateContexts<'_>) {
    let raw = contexts.raw().count();
    assert_eq!(contexts.requests().count(), raw, "a checked list is walked to its end");
    assert_eq!(contexts.replies().count(), raw, "a checked list is walked to its end");
}

/// A list of create contexts.
pub fn create_contexts(bytes: &[u8]) {
    if let Ok(contexts) = CreateContexts::new(bytes) {
        create_contexts_of(&contexts);
    }
}

/// A list of negotiate contexts, after a byte with their number.
pub fn negotiate_contexts(bytes: &[u8]) {
    let Some((count, list)) = bytes.split_first() else { return };
    if let Ok(contexts) = NegotiateContexts::of(u16::from(*count), list) {
        assert_eq!(contexts.iter().count(), usize::from(*count), "a checked list is walked to its end");
    }
}

/// A self-relative security descriptor, a list, a SID, and a SID as text.
pub fn security_descriptor(bytes: &[u8]) {
    if let Ok(first) = SecurityDescriptor::decode(bytes) {
        let again = SecurityDescriptor::decode(&first.encode());
        assert_eq!(again.map(|again| again.encode()), Ok(first.encode()));
    }
    let _ = Acl::decode(bytes);
    if let Ok(sid) = Sid::decode(bytes)
        && !sid.sub_authorities().is_empty()
    {
        assert_eq!(sid.to_string().parse(), Ok(sid));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Sid>();
    }
}

/// What goes in and out of IOCTL.
pub fn fsctl(bytes: &[u8]) {
    if let Ok(copy) = CopyRequest::decode(bytes) {
        let _ = copy.chunks().count();
    }
    let _ = OffloadWriteInput::decode(bytes).map(|input| input.token.id().map(<[u8]>::len));
    let _ = interfaces(bytes);
    if let Ok(request) = ValidateNegotiate::decode(bytes) {
        assert_eq!(ValidateNegotiate::decode(&request.encode()), Ok(request));
    }
    let _ = PipeWait::decode(bytes);
    let _ = (GetReferrals::decode(bytes), GetReferrals::decode_ex(bytes));
    if let Ok(trim) = FileLevelTrim::decode(bytes) {
        let _ = trim.ranges().count();
    }
    let _ = regions(bytes);
    if let Ok(point) = Reparse::decode(bytes) {
        assert_eq!(Reparse::decode(&point.encode()).map(|again| again.encode()), Ok(point.encode()));
    }
    let _ = snapshots::snapshots(bytes);
    let _ = QosRequest::decode(bytes).map(|request| request.names());
    if let Ok((answer, bandwidth)) = QosAnswer::decode_with_bandwidth(bytes) {
        let again = answer.encode(bandwidth.unwrap_or_default());
        assert_eq!(QosAnswer::decode_with_bandwidth(&again), Ok((answer, bandwidth)));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = snapshots::snapshot_time(text);
    }
}

/// What QUERY_INFO, SET_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY carry, after a byte with a class.
pub fn information(bytes: &[u8]) {
    let Some((class, bytes)) = bytes.split_first() else { return };
    let _ = listing::listing(FileClass(*class), bytes).count();
    let _ = BasicInformation::decode(bytes).map(|info| info.creation_time.to_set());
    let _ = AllInformation::decode(bytes);
    let _ = names::all(bytes).map(|(_, name)| name.to_string());
    let _ = names::name(bytes);
    let _ = names::streams(bytes).count();
    let _ = names::hard_links(bytes).count();
    for ex in [false, true] {
        if let Ok(rename) = RenameInformation::decode(bytes, ex) {
            assert_eq!(RenameInformation::decode(&rename.encode(ex), ex), Ok(rename));
        }
    }
    if let Ok(list) = EaList::new(bytes) {
        let _ = list.iter().count();
    }
    let _ = ea::wanted_names(bytes);
    let _ = notify::changes(bytes).count();
    let _ = quota::quotas(bytes).count();
    let _ = QueryQuota::decode(bytes);
    let _ = AttributeInformation::decode(bytes);
    let _ = VolumeInformation::decode(bytes);
}
