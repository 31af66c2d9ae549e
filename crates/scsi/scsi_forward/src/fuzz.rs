//! Entries for fuzzing: what another node says.

use scsi_core::{ScsiStatus, TaskAttribute, TaskManagement, TaskManagementOutcome, WireLun};

use crate::wire::{Aim, Call, Hello, PREFIX, Port, Reply, VERSION, framed, prefix};

/// Bytes as a frame of either direction: what is taken is written and taken again.
///
/// # Panics
/// When what was taken cannot be sent on.
pub fn frame(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first_chunk::<PREFIX>() else { return };
    let Ok((head, _)) = prefix(*first) else { return };
    let head = rest.get(..head).unwrap_or(rest);
    if let Ok(call) = Call::decode(head) {
        assert_eq!(Call::decode(&call.encode()), Ok(call), "what was taken can be sent on");
    }
    if let Ok(reply) = Reply::decode(head) {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply), "what was taken can be sent on");
    }
}

/// Valid frames, to begin with; the names of those that come back begin with `reply_`.
#[must_use]
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let aim = Aim { nexus: 5, lun: WireLun::from_number(3), unit: [9; 16], tick: 1 << 40, waited: 7 };
    let hello = Hello { version: VERSION, from: 1, incarnation: 3, to: 2, channel: 0 };
    let port = Port {
        nexus: 5,
        initiator: "iqn.1994-05.com.example:host".into(),
        initiator_port: [0, 2, 0x3d, 0, 0, 1],
        target: "iqn.2026-01.io.holdfast:target".into(),
        target_port: 17,
    };
    let cdb = vec![0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let command = Call::Command { tag: 8, aim, attribute: TaskAttribute::Ordered, limit: 0, cdb };
    let manage = Call::Manage { tag: 9, aim, function: TaskManagement::LogicalUnitReset };
    let (transfer, sense) = (512, vec![0x70, 0, 5, 0]);
    let answer = Reply::Answer { tag: 8, tick: 1 << 41, status: ScsiStatus::CheckCondition, transfer, sense };
    let data = [0x5a; 512];
    let with = |head: Vec<u8>, data: &[u8]| [&framed(&head, data.len())[..], data].concat();
    vec![
        ("hello", with(Call::Hello(hello).encode(), &[])),
        ("nexus", with(Call::Nexus(port).encode(), &[])),
        ("command", with(command.encode(), &data)),
        ("abort", with(Call::Abort(8).encode(), &[])),
        ("manage", with(manage.encode(), &[])),
        ("lost", with(Call::Lost(5).encode(), &[])),
        ("ask", with(Call::Ask.encode(), &[])),
        ("reply_welcome", with(Reply::Welcome { version: VERSION, tick: 1 }.encode(), &[])),
        ("reply_refused", with(Reply::Refused("this is node 3".into()).encode(), &[])),
        ("reply_answer", with(answer.encode(), &data)),
        ("reply_unanswered", with(Reply::Unanswered(8).encode(), &[])),
        ("reply_not_done", with(Reply::NotDone(8).encode(), &[])),
        (
            "reply_managed",
            with(Reply::Managed { tag: 9, outcome: TaskManagementOutcome::Rejected }.encode(), &[]),
        ),
        ("reply_tick", with(Reply::Tick(2).encode(), &[])),
    ]
}
