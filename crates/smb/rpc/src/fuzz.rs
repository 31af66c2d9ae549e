//! Entries for fuzzing: any bytes, never a panic, never unbounded work.

use std::sync::Arc;

use crate::ndr::{NdrIn, Order};
use crate::service::{NoAuthenticator, RpcClient, RpcService};
use crate::view::ServerView as _;
use crate::view::memory::Memory;

/// A client of [`Memory::sample`].
#[must_use]
pub fn client(is_administrator: bool) -> RpcClient {
    let sid = Memory::sample().users().first().map(|user| user.sid);
    RpcClient {
        user: "bob".to_owned(),
        domain: "NODE1".to_owned(),
        sid: sid.unwrap_or(smb_protocol::security::sid::Sid::SYSTEM),
        is_administrator,
    }
}

/// What a client sends through a pipe: the first byte says which pipe and who, the rest are the bytes.
pub fn pipe(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let name = match choice & 3 {
        0 => "srvsvc",
        1 => "wkssvc",
        2 => "lsarpc",
        _ => "samr",
    };
    let service = RpcService::new(Arc::new(Memory::sample()), Arc::new(NoAuthenticator));
    let Ok(pipe) = service.open(name, client(choice & 4 == 0)) else { return };
    // Twice: in one piece, as far as that is taken, and what is left in small ones.
    let (first, second) = rest.split_at(rest.len() / 2);
    let _ = pipe.write(first);
    for piece in second.chunks(7) {
        let _ = pipe.write(piece);
    }
    let mut reads = 0;
    while let Some((part, more)) = pipe.read(1000) {
        assert!(part.len() <= 1000 && (!more || part.len() == 1000), "a part is as long as it may be");
        reads += 1;
        assert!(reads < 100_000, "answers have an end");
    }
}

/// Values of NDR, one after another: each byte says which is expected next.
pub fn ndr(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let order = if first & 1 == 0 { Order::Little } else { Order::Big };
    let (kinds, data) = rest.split_at((*first as usize >> 1).min(rest.len()));
    let mut r = NdrIn::new(data, order);
    for kind in kinds {
        let before = r.left();
        let _ = match kind % 12 {
            0 => r.u8().map(drop),
            1 => r.u16().map(drop),
            2 => r.u32().map(drop),
            3 => r.u64().map(drop),
            4 => r.wide().map(drop),
            5 => r.wide_pointer().map(drop),
            6 => r.unicode().map(drop),
            7 => r.unicodes(usize::from(*kind)).map(drop),
            8 => r.sid().map(drop),
            9 => r.varying(4).map(drop),
            10 => r.context_handle().map(drop),
            _ => r.conformance(usize::from(*kind), 1),
        };
        assert!(r.left() <= before, "nothing is read twice");
    }
}
