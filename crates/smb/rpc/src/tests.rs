//! Whole conversations: what is answered to whom, and what ends one.

mod access;
mod logins;

use std::sync::Arc;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::association::PIPES_MAX;
use crate::client::NoAuthenticator;
use crate::fuzz::client;
use crate::ndr::{NdrIn, NdrOut, Order};
use crate::pdu::tests::{WINDOWS_BIND, hex};
use crate::pdu::{Header, flag, kind};
use crate::service::{INBOX_MAX, RpcPipe, RpcService};
use crate::view::memory::Memory;
use crate::{Fault, RpcClient};

fn service() -> RpcService {
    RpcService::new(Arc::new(Memory::sample()), Arc::new(NoAuthenticator))
}

/// A pipe to srvsvc with a binding as context 0.
fn bound() -> RpcPipe {
    let pipe = service().open("\\PIPE\\srvsvc", client(true)).unwrap();
    pipe.write(&hex(WINDOWS_BIND)).unwrap();
    let answer = all(&pipe);
    assert_eq!(answer[0][2], kind::BIND_ACK);
    pipe
}

/// All answers that wait.
fn all(pipe: &RpcPipe) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| pipe.read(usize::MAX).map(|(pdu, more)| (!more).then_some(pdu).unwrap())).collect()
}

/// A fragment of a request.
fn request(flags: u8, call: u32, context: u16, operation: u16, stub: &[u8]) -> Vec<u8> {
    let mut pdu = vec![5, 0, kind::REQUEST, flags, 0x10, 0, 0, 0];
    pdu.extend_from_slice(&(24 + stub.len() as u16).to_le_bytes());
    pdu.extend_from_slice(&[0, 0]);
    pdu.extend_from_slice(&call.to_le_bytes());
    pdu.extend_from_slice(&(stub.len() as u32).to_le_bytes());
    pdu.extend_from_slice(&context.to_le_bytes());
    pdu.extend_from_slice(&operation.to_le_bytes());
    pdu.extend_from_slice(stub);
    pdu
}

const WHOLE: u8 = flag::FIRST_FRAG | flag::LAST_FRAG;

/// NetrServerGetInfo of a server at a level.
fn server_info(level: u32) -> Vec<u8> {
    let mut out = NdrOut::new();
    out.pointer(false);
    out.u32(level);
    out.finish()
}

fn fault_of(answer: &[u8]) -> Option<Fault> {
    (answer[2] == kind::FAULT).then(|| Fault(u32::from_le_bytes(*answer[24..].first_chunk().unwrap())))
}

#[test]
fn the_three_contexts_of_windows() {
    let pipe = service().open("srvsvc", client(true)).unwrap();
    pipe.write(&hex(WINDOWS_BIND)).unwrap();
    let [answer] = &all(&pipe)[..] else { panic!("one answer") };
    let mut r = NdrIn::new(&answer[16..], Order::Little);
    assert_eq!((r.u16(), r.u16()), (Ok(4120), Ok(4120)));
    assert_ne!(r.u32(), Ok(0), "a group");
    let len = usize::from(r.u16().unwrap());
    assert_eq!(r.raw(len).unwrap(), b"\\PIPE\\srvsvc\0");
    r.align(4).unwrap();
    assert_eq!(r.u8(), Ok(3));
    r.raw(3).unwrap();
    let mut results = Vec::new();
    for _ in 0..3 {
        results.push((r.u16().unwrap(), r.u16().unwrap()));
        r.raw(20).unwrap();
    }
    // NDR is taken; NDR64 is not; of the features that were asked for, we have one.
    assert_eq!(results, [(0, 0), (2, 2), (3, 2)]);
    assert_eq!(r.left(), 0);
}

#[test]
fn a_call_in_one_piece_in_fragments_and_byte_by_byte() {
    let pipe = bound();
    let whole = request(WHOLE, 7, 0, 21, &server_info(101));
    pipe.write(&whole).unwrap();
    let expected = all(&pipe);
    assert_eq!((expected.len(), expected[0][2]), (1, kind::RESPONSE));
    let stub = server_info(101);
    for (at, byte) in stub.iter().enumerate() {
        let first = if at == 0 { flag::FIRST_FRAG } else { 0 };
        let last = if at + 1 == stub.len() { flag::LAST_FRAG } else { 0 };
        pipe.write(&request(first | last, 7, 0, 21, &[*byte])).unwrap();
    }
    assert_eq!(all(&pipe), expected);
    whole.iter().for_each(|byte| pipe.write(&[*byte]).unwrap());
    assert_eq!(all(&pipe), expected);
}

#[test]
fn long_answers_come_in_fragments_and_are_read_in_parts() {
    let pipe = bound();
    // NetprPathCanonicalize with the largest buffer that a client may ask for.
    let mut out = NdrOut::new();
    out.pointer(false);
    for text in ["c:\\a", ""] {
        let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
        out.count(units.len());
        out.u32(0);
        out.count(units.len());
        units.iter().for_each(|unit| out.u16(*unit));
        if text.len() == 4 {
            out.u32(64_000);
        }
    }
    out.u32(0);
    out.u32(0);
    pipe.write(&request(WHOLE, 1, 0, 31, &out.finish())).unwrap();
    let (waiting, first) = pipe.available();
    let mut stub = Vec::new();
    let mut fragments = 0;
    while pipe.available().1 > 0 {
        let mut pdu = Vec::new();
        loop {
            let (part, more) = pipe.read(1000).unwrap();
            pdu.extend_from_slice(&part);
            if !more {
                break;
            }
        }
        let header = Header::decode(&pdu).unwrap().unwrap();
        assert_eq!(usize::from(header.fragment), pdu.len());
        assert!(pdu.len() <= 4120 && (fragments > 0 || pdu.len() == first));
        assert_eq!(header.has(flag::FIRST_FRAG), fragments == 0);
        stub.extend_from_slice(&pdu[24..]);
        fragments += 1;
        assert_eq!(header.has(flag::LAST_FRAG), stub.len() == 64_000 + 12, "{}", stub.len());
    }
    assert_eq!(waiting, stub.len() + fragments * 24);
    assert!(stub[4..].starts_with(b"C\0:\0\\\0a\0"));
}

#[test]
fn what_a_client_gets_wrong_has_its_fault() {
    let answer = |bytes: &[u8]| {
        let pipe = bound();
        pipe.write(bytes).unwrap();
        let answers = all(&pipe);
        (answers.first().and_then(|answer| fault_of(answer)), pipe.write(&[]).is_err())
    };
    let info = server_info(101);
    assert_eq!(answer(&request(WHOLE, 1, 9, 21, &info)), (Some(Fault::UNKNOWN_INTERFACE), false));
    assert_eq!(answer(&request(WHOLE, 1, 0, 999, &info)), (Some(Fault::OP_RANGE), false));
    assert_eq!(answer(&request(WHOLE, 1, 0, 21, &[1])), (Some(Fault::BAD_STUB_DATA), false));
    assert_eq!(answer(&request(flag::LAST_FRAG, 1, 0, 21, &info)), (Some(Fault::PROTOCOL), true));
    let other_call =
        [request(flag::FIRST_FRAG, 1, 0, 21, &info), request(flag::LAST_FRAG, 2, 0, 21, &info)].concat();
    assert_eq!(answer(&other_call), (Some(Fault::PROTOCOL), true));
    let twice = [request(flag::FIRST_FRAG, 1, 0, 21, &info), request(WHOLE, 2, 0, 21, &info)].concat();
    assert_eq!(answer(&twice), (Some(Fault::PROTOCOL), true));
    assert_eq!(answer(b"GET / HTTP/1.1\r\n\r\n"), (None, true));
    // An orphaned call is forgotten, and the next one answered.
    let mut orphaned = request(WHOLE, 1, 0, 0, &[]);
    orphaned[2] = kind::ORPHANED;
    let after = [request(flag::FIRST_FRAG, 1, 0, 21, &info), orphaned, request(WHOLE, 2, 0, 21, &info)];
    assert_eq!(answer(&after.concat()), (None, false));
}

#[test]
fn nothing_is_answered_before_a_bind_and_there_is_only_one() {
    let pipe = service().open("srvsvc", client(true)).unwrap();
    pipe.write(&request(WHOLE, 1, 0, 21, &server_info(101))).unwrap();
    assert_eq!(fault_of(&all(&pipe)[0]), Some(Fault::PROTOCOL));
    assert_eq!(pipe.write(&[0]), Err(NtStatus::PIPE_DISCONNECTED));
    let pipe = bound();
    pipe.write(&hex(WINDOWS_BIND)).unwrap();
    assert_eq!(all(&pipe)[0][2], kind::BIND_NAK);
    let pipe = service().open("srvsvc", client(true)).unwrap();
    let mut old = hex(WINDOWS_BIND);
    old[0] = 4;
    pipe.write(&old).unwrap();
    let answers = all(&pipe);
    assert_eq!((answers[0][2], answers[0][16]), (kind::BIND_NAK, 4), "our version is another one");
}

#[test]
fn stubs_and_queues_have_an_end() {
    let pipe = bound();
    let big = vec![0; 5800];
    pipe.write(&request(flag::FIRST_FRAG, 1, 0, 21, &big)).unwrap();
    for _ in 0..200 {
        pipe.write(&request(0, 1, 0, 21, &big)).unwrap();
    }
    pipe.write(&request(flag::LAST_FRAG, 1, 0, 21, &big)).unwrap();
    assert_eq!(fault_of(&all(&pipe)[0]), Some(Fault::NO_MEMORY));
    // Who never reads is stopped, and what was taken is answered when it does.
    let one = request(WHOLE, 1, 0, 21, &server_info(101));
    let mut taken = 0;
    while pipe.write(&one).is_ok() {
        taken += 1;
        assert!(taken < 100_000, "there is a limit");
    }
    assert!(taken * one.len() >= INBOX_MAX);
    assert_eq!(all(&pipe).len(), taken);
}

#[test]
fn groups_share_handles_with_their_owner_only() {
    let service = service();
    let opener = |service: &RpcService, who: RpcClient, group: u32| {
        let pipe = service.open("srvsvc", who).unwrap();
        let mut bind = hex(WINDOWS_BIND);
        bind[20..24].copy_from_slice(&group.to_le_bytes());
        pipe.write(&bind).unwrap();
        let answer = all(&pipe).remove(0);
        (pipe, answer[2], u32::from_le_bytes(*answer[20..].first_chunk().unwrap()))
    };
    let (first, kind_of_first, group) = opener(&service, client(true), 0);
    assert_eq!((kind_of_first, group), (kind::BIND_ACK, 1));
    let (second, kind_of_second, same) = opener(&service, client(true), group);
    assert_eq!((kind_of_second, same), (kind::BIND_ACK, group));
    let other = RpcClient { sid: Sid::GUESTS, ..client(false) };
    assert_eq!(opener(&service, other, group).1, kind::BIND_NAK, "somebody else's");
    assert_eq!(opener(&service, client(true), 99).1, kind::BIND_NAK, "nobody's");
    // A removal that the first pipe began is finished through the second.
    let mut out = NdrOut::new();
    out.pointer(false);
    [3_u32, 0, 3].into_iter().for_each(|count| out.u32(count));
    [0x76_u16, 0x6d, 0].into_iter().for_each(|unit| out.u16(unit));
    out.u32(0);
    first.write(&request(WHOLE, 1, 0, 37, &out.finish())).unwrap();
    let answer = all(&first).remove(0);
    let handle = answer[24..44].to_vec();
    second.write(&request(WHOLE, 1, 0, 38, &handle)).unwrap();
    let answer = all(&second).remove(0);
    assert_eq!((answer[2], &answer[24..48]), (kind::RESPONSE, &[0; 24][..]));
    second.write(&request(WHOLE, 1, 0, 38, &handle)).unwrap();
    assert_eq!(fault_of(&all(&second)[0]), Some(Fault::CONTEXT_MISMATCH));
    drop((first, second));
    assert_eq!(opener(&service, client(true), group).1, kind::BIND_NAK, "gone with its last connection");
}

#[test]
fn pipes_and_who_may_open_them() {
    let anonymous = RpcClient { sid: Sid::ANONYMOUS, ..client(false) };
    let error = |name: &str, who| service().open(name, who).err();
    assert_eq!(error("srvsvc", anonymous), Some(NtStatus::ACCESS_DENIED));
    assert_eq!(error("spoolss", client(true)), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    assert_eq!(error("\\pipe\\LSARPC", client(false)), None);
}

#[test]
fn a_trailer_is_refused_where_nobody_can_be_authenticated() {
    let pipe = service().open("srvsvc", client(true)).unwrap();
    let mut bind = hex(WINDOWS_BIND);
    bind.extend_from_slice(&[10, 6, 0, 0, 0, 0, 0, 0, b'N', b'T', b'L', b'M']);
    let len = bind.len() as u16;
    bind[8..10].copy_from_slice(&len.to_le_bytes());
    bind[10..12].copy_from_slice(&4_u16.to_le_bytes());
    pipe.write(&bind).unwrap();
    let answers = all(&pipe);
    assert_eq!((answers[0][2], answers[0][16]), (kind::BIND_NAK, 8));
    // Without it the pipe can still be used.
    pipe.write(&hex(WINDOWS_BIND)).unwrap();
    assert_eq!(all(&pipe)[0][2], kind::BIND_ACK);
}

/// A recording's PDUs, and the pipe that they are for.
fn recorded(name: &str) -> (RpcPipe, Vec<Vec<u8>>) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/rpc_pipe");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let pipe = ["srvsvc", "wkssvc", "lsarpc", "samr"][usize::from(bytes[0] & 3)];
    let pipe = crate::fuzz::service().open(pipe, client(bytes[0] & 4 == 0)).unwrap();
    let mut rest = &bytes[1..];
    let mut pdus = Vec::new();
    while let Ok(Some(header)) = Header::decode(rest) {
        let (pdu, after) = rest.split_at(usize::from(header.fragment));
        pdus.push(pdu.to_vec());
        rest = after;
    }
    (pipe, pdus)
}

#[test]
fn no_changed_request_is_served_where_integrity_was_asked_for() {
    for name in ["samba-wkssvc-ntlm", "samba-lsarpc-spnego"] {
        let (_, pdus) = recorded(name);
        let at = pdus.iter().position(|pdu| pdu[2] == kind::REQUEST).unwrap();
        let (before, request) = (&pdus[..at], &pdus[at]);
        let answered = |pdu: &[u8]| {
            let (pipe, _) = recorded(name);
            before.iter().for_each(|pdu| pipe.write(pdu).unwrap());
            all(&pipe);
            pipe.write(pdu).unwrap();
            let answers = all(&pipe);
            assert!(answers.iter().all(|answer| answer[2] == kind::RESPONSE || answer[2] == kind::FAULT));
            (answers.iter().any(|answer| answer[2] == kind::RESPONSE), pipe.write(&[]).is_ok())
        };
        assert_eq!(answered(request), (true, true), "{name}");
        for byte in 0..request.len() {
            for bit in [1, 0x80] {
                let mut changed = request.clone();
                changed[byte] ^= bit;
                assert!(!answered(&changed).0, "{name}: bit {bit:#x} of byte {byte}");
            }
        }
        // Without the trailer, and once more with it.
        let auth = usize::from(u16::from_le_bytes([request[10], request[11]]));
        let mut bare = request[..request.len() - auth - 8].to_vec();
        let len = bare.len() as u16;
        bare[8..10].copy_from_slice(&len.to_le_bytes());
        bare[10..12].copy_from_slice(&[0, 0]);
        assert_eq!(answered(&bare), (false, false), "{name}: bare");
        let (pipe, _) = recorded(name);
        pdus[..=at].iter().for_each(|pdu| pipe.write(pdu).unwrap());
        all(&pipe);
        pipe.write(request).unwrap();
        assert_eq!(fault_of(&all(&pipe)[0]), Some(Fault::SEC_PKG_ERROR), "{name}: replayed");
    }
}

#[test]
fn pipes_go_from_thread_to_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<RpcPipe>();
    shared::<RpcService>();
}

/// What impacket and Samba sent to this code once, and were content with the answers, is answered again.
#[test]
fn recorded_clients_are_served() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/rpc_pipe");
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        if !(name.starts_with("impacket-") || name.starts_with("samba-")) {
            continue;
        }
        let (pipe, pdus) = recorded(&name);
        pipe.write(&pdus.concat()).unwrap();
        let answers = all(&pipe);
        let kinds = |wanted: u8| answers.iter().filter(|answer| answer[2] == wanted).count();
        assert_eq!((kinds(kind::BIND_ACK), kinds(kind::BIND_NAK)), (1, 0), "{name}");
        assert!(kinds(kind::RESPONSE) > 0, "{name}");
        for fault in answers.iter().filter_map(|answer| fault_of(answer)) {
            let provoked = [Fault::OP_RANGE, Fault::CONTEXT_MISMATCH].contains(&fault);
            assert!(provoked, "{name}: {fault}");
        }
        files += 1;
    }
    assert!(files >= 10, "{files} recordings");
}

#[test]
fn a_client_has_so_many_pipes_and_no_more() {
    let service = service();
    let mut pipes: Vec<RpcPipe> =
        (0..PIPES_MAX).map(|_| service.open("srvsvc", client(false)).unwrap()).collect();
    let refused = service.open("samr", client(false)).err();
    assert_eq!(refused, Some(NtStatus::INSUFFICIENT_RESOURCES));
    let other = RpcClient { sid: Sid::GUESTS, ..client(false) };
    service.open("srvsvc", other).unwrap();
    pipes.pop();
    service.open("srvsvc", client(false)).unwrap();
}

#[test]
fn hidden_shares_are_for_who_administers() {
    let share = |name: &str, hidden| crate::view::Share { name: name.into(), hidden, ..Default::default() };
    let shares = vec![share("open", false), share("secret", true)];
    let mut lists = crate::view::memory::Lists::default();
    lists.shares = shares;
    let service = RpcService::new(Arc::new(Memory::new(lists)), Arc::new(NoAuthenticator));
    // NetrShareEnum at a level, and whether an answer of the name is in what comes back.
    let shows = |level: u32| {
        let pipe = service.open("srvsvc", client(true)).unwrap();
        pipe.write(&hex(WINDOWS_BIND)).unwrap();
        all(&pipe);
        let mut out = NdrOut::new();
        out.pointer(false);
        out.u32(level);
        out.u32(level);
        out.pointer(true);
        out.u32(0);
        out.pointer(false);
        out.u32(u32::MAX);
        out.pointer(false);
        pipe.write(&request(WHOLE, 1, 0, 15, &out.finish())).unwrap();
        let answer = all(&pipe).concat();
        let has = |name: &str| {
            let wide: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
            answer.windows(wide.len()).any(|part| part == wide)
        };
        (has("open"), has("secret"))
    };
    assert_eq!(shows(1), (true, false), "those who browse see what is not hidden");
    assert_eq!(shows(2), (true, true), "those who administer see all");
}
