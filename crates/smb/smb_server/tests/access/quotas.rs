//! Quotas where they are on: who sets them, over which shares, by whose handles. Any handle of the volume will do to ask.

use access_matrix::Matrix;
use file_store::{QuotaLimits, QuotaMode, QuotaSettings, QuotaStore as _};
use smb_protocol::FileTime;
use smb_protocol::NtStatus;
use smb_protocol::Wire as _;
use smb_protocol::access::AccessMask;
use smb_protocol::fscc::VolumeClass;
use smb_protocol::fscc::quota::{Quota, push_quota, quota_writer};
use smb_protocol::fscc::volume::ControlInformation;

use super::rows::{Given, Row, Send, row};
use super::world::{Client, Seat, World};

const COLUMNS: [&str; 6] = [
    "administrator",
    "administrator, share for changing",
    "administrator, read-only share",
    "user",
    "user, share for changing",
    "another's handle, or closed",
];

fn of_a_user(_: &Given) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = quota_writer(&mut out, 4096);
    let sid = Client::Stranger.sid();
    let change_time = FileTime::from_unix_nanos(0);
    assert!(push_quota(&mut list, &Quota { sid, change_time, used: 0, threshold: 1 << 20, limit: 2 << 20 }));
    out
}

fn tracked(_: &Given) -> Vec<u8> {
    let none = u64::MAX;
    ControlInformation { flags: 1, default_threshold: none, default_limit: none, ..Default::default() }
        .to_bytes()
}

const ANY: &[AccessMask] = &[];

/// What is answered in each column but the last, g: SUCCESS, d: ACCESS_DENIED; and whether it changes quotas.
const ROWS: [(Row, &str); 3] = [
    (row(Send::SetQuota, ANY, NtStatus::SUCCESS).with(of_a_user), "ggddd"),
    (row(Send::SetVolume(VolumeClass::CONTROL), ANY, NtStatus::SUCCESS).with(tracked), "ggddd"),
    (row(Send::QueryVolume(VolumeClass::CONTROL), ANY, NtStatus::SUCCESS), "gggdd"),
];

/// Everybody may have so much, and nobody has anything of its own.
fn begin(world: &World) {
    world.run(|volume| async move {
        let default = QuotaLimits { warning: 1 << 30, limit: 2 << 30 };
        volume.set_quotas(QuotaSettings { mode: QuotaMode::Enforce, default }).await.unwrap();
        for each in volume.quotas().await.unwrap().owners {
            volume.set_quota(each.owner, None).await.unwrap();
        }
    });
}

/// What holds.
fn quotas(world: &World) -> String {
    world.run(|volume| async move {
        let report = volume.quotas().await.unwrap();
        let own: Vec<_> = report.owners.iter().filter(|each| each.own).map(|each| each.limits).collect();
        format!("{:?} {own:?}", report.settings)
    })
}

fn cell(world: &mut World, seat: &Seat, (row, own): (&Row, bool), expected: NtStatus) -> Result<(), String> {
    begin(world);
    let before = quotas(world);
    let got = world.send(seat, row, own);
    let has_changed = quotas(world) != before;
    let changes = !matches!(row.send, Send::QueryVolume(_)) && expected == NtStatus::SUCCESS;
    if got == expected && has_changed == changes {
        Ok(())
    } else {
        Err(format!("got {got:?}, and quotas have{} changed", if has_changed { "" } else { " not" }))
    }
}

#[test]
fn access_matrix_of_quotas() {
    let about = "On a volume with quotas, by handles that may only read. Set are the limits of a user, and the volume's own settings.";
    let mut matrix = Matrix::new("SMB quotas", about, &COLUMNS);
    let mut world = World::new();
    let read = AccessMask::FILE_READ;
    let seats = [
        (Client::Admin, "share"),
        (Client::Admin, "change"),
        (Client::Admin, "read"),
        (Client::User, "share"),
        (Client::User, "change"),
    ]
    .map(|(client, share)| world.seat(client, share, read, read));
    let mut closed = world.seat(Client::Admin, "share", read, read);
    world.close(&mut closed);
    let foreign = [
        Seat { client: Client::Admin, tree: world.tree(Client::Admin, "share"), ..seats[3].clone() },
        Seat { tree: world.tree(Client::Admin, "share"), ..seats[1].clone() },
        closed,
    ];
    for (row, answers) in &ROWS {
        let name = row.name();
        for (seat, answer) in seats.iter().zip(answers.chars()) {
            let expected = if answer == 'g' { NtStatus::SUCCESS } else { NtStatus::ACCESS_DENIED };
            let result = cell(&mut world, seat, (row, true), expected);
            matrix.cell(&name, &format!("{expected:?}"), result);
        }
        let expected = NtStatus::FILE_CLOSED;
        let results: Vec<_> =
            foreign.iter().map(|seat| cell(&mut world, seat, (row, false), expected)).collect();
        matrix.cells(&name, &format!("{expected:?}"), foreign.len(), super::all(results));
    }
    matrix.finish();
}
