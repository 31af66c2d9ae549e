//! What the SMB server lists, as the API says it.

use std::fmt::Debug;

use control_api::{Listener, Protocol, Session, ShareTraffic, Smb1Attempt, SmbOpen, SmbSession};
use smb_protocol::access::AccessMask;
use smb_server::{OpenInfo, SessionInfo};

use super::Smb;
use crate::backend::SmbInfo;
use crate::node::operations;

/// Seconds since 1970 of a time in nanoseconds.
fn seconds(nanos: u64) -> u64 {
    nanos / 1_000_000_000
}

/// A name of the specification ("AES_128_GCM") as people write it ("AES-128-GCM").
fn word(value: impl Debug) -> String {
    format!("{value:?}").replace('_', "-")
}

pub(super) fn traffic(traffic: smb_server::ShareTraffic) -> ShareTraffic {
    let smb_server::ShareTraffic { io, metadata, refused, unsaved } = traffic;
    ShareTraffic {
        reads: io.read.operations,
        read_bytes: io.read.bytes,
        writes: io.write.operations,
        written_bytes: io.write.bytes,
        metadata,
        refused,
        unsaved,
    }
}

pub(super) fn session(info: SessionInfo) -> Session {
    let addresses: Vec<String> = info.channels.iter().map(|channel| channel.remote.to_string()).collect();
    Session {
        id: info.id,
        protocol: Protocol::Smb,
        address: addresses.first().cloned().unwrap_or_default(),
        connections: info.channels.len() as u64,
        commands: info.channels.iter().map(|channel| channel.requests).sum(),
        read_bytes: info.channels.iter().map(|channel| channel.bytes_out).sum(),
        written_bytes: info.channels.iter().map(|channel| channel.bytes_in).sum(),
        read: operations(info.io.read),
        write: operations(info.io.write),
        smb: Some(SmbSession {
            user: info.user,
            sid: info.sid.map(|sid| sid.to_string()).unwrap_or_default(),
            workstation: info.workstation,
            dialect: format!("{:?}", info.dialect).trim_start_matches("SMB_").replace('_', "."),
            signing: word(info.signing),
            cipher: info.cipher.map(word),
            encrypted: info.encrypted,
            since: seconds(info.since.0),
            opens: info.opens as u64,
            shares: info.trees.into_iter().map(|tree| tree.share).collect(),
            addresses,
        }),
        ..Session::default()
    }
}

/// What an open may do, in words.
fn rights(mask: AccessMask, directory: bool) -> String {
    let has = |right: AccessMask| mask.0 & right.0 == right.0;
    let writes = has(AccessMask::WRITE_DATA);
    let words = [
        (has(AccessMask::READ_DATA), if directory { "list" } else { "read" }),
        (writes, if directory { "make files" } else { "write" }),
        (
            has(AccessMask::APPEND_DATA) && (directory || !writes),
            if directory { "make folders" } else { "append" },
        ),
        (has(AccessMask::EXECUTE) && !directory, "execute"),
        (has(AccessMask::DELETE), "delete"),
        (has(AccessMask::WRITE_DAC), "change permissions"),
        (has(AccessMask::WRITE_OWNER), "change owner"),
    ];
    let granted: Vec<&str> = words.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect();
    if granted.is_empty() { "attributes".into() } else { granted.join(", ") }
}

pub(super) fn open(info: OpenInfo) -> SmbOpen {
    SmbOpen {
        id: info.id,
        session: info.session,
        user: info.user,
        address: info.remote.map(|remote| remote.to_string()).unwrap_or_default(),
        share: info.share,
        path: info.path,
        directory: info.directory,
        access: format!("{:#010x}", info.access.0),
        rights: rights(info.access, info.directory),
        caching: info.caching,
        lasting: info.lasting.to_owned(),
    }
}

impl Smb {
    pub(super) fn describe(&self) -> SmbInfo {
        let (attempts, smb1_count) = self.server.smb1_attempts();
        let attempt = |attempt: smb_server::Smb1Attempt| Smb1Attempt {
            address: attempt.address.to_string(),
            time: seconds(attempt.at.0),
            detail: attempt.detail,
        };
        let now = self.in_effect.lock();
        let listener = |(address, listening): (&String, &Result<_, String>)| Listener {
            address: address.clone(),
            listening: listening.as_ref().ok().map(|at: &std::net::SocketAddr| at.to_string()),
            problem: listening.as_ref().err().cloned(),
        };
        SmbInfo {
            netbios_name: now.server.as_ref().map(|(_, name)| name.clone()).unwrap_or_default(),
            guid: self.guid.to_string(),
            listeners: now.listeners.iter().map(listener).collect(),
            offered: self.interfaces.offered(),
            smb1_count,
            smb1_attempts: attempts.into_iter().rev().map(attempt).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_said_in_words() {
        for (mask, directory, words) in [
            (0x0013_019f, false, "read, write, delete"),
            (0x0012_0089, false, "read"),
            (0x0010_0080, false, "attributes"),
            (0x0012_0114, false, "append"),
            (0x001f_01ff, false, "read, write, execute, delete, change permissions, change owner"),
            (0x0012_00a9, true, "list"),
            (0x0013_019f, true, "list, make files, make folders, delete"),
        ] {
            assert_eq!(rights(AccessMask(mask), directory), words, "{mask:#x}");
        }
    }
}
