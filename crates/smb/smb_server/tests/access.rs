//! The access matrix of SMB: every command, control and information class × who asks, against a real server with a real volume on
//! a disk in memory.
//!
//! The rows are in `access/rows`: constants that are compared with the lists of all names in `smb_protocol`, so that a new
//! control or class without a row does not compile. What an operation needs is written there as rights; each right alone
//! is tried, and what is held otherwise: other people's handles, shares that allow less, sessions that have ended.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "access/creating.rs"]
mod creating;
#[path = "access/quotas.rs"]
mod quotas;
#[path = "access/rows.rs"]
mod rows;
#[path = "access/world.rs"]
mod world;

use access_matrix::Matrix;
use rows::{Row, Send};
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use world::{Client, Part, Seat, World};

/// Rights that an open has, each by itself.
const RIGHTS: [AccessMask; 14] = [
    AccessMask::READ_DATA,
    AccessMask::WRITE_DATA,
    AccessMask::APPEND_DATA,
    AccessMask::READ_EA,
    AccessMask::WRITE_EA,
    AccessMask::EXECUTE,
    AccessMask::DELETE_CHILD,
    AccessMask::READ_ATTRIBUTES,
    AccessMask::WRITE_ATTRIBUTES,
    AccessMask::DELETE,
    AccessMask::READ_CONTROL,
    AccessMask::WRITE_DAC,
    AccessMask::WRITE_OWNER,
    AccessMask::SYNCHRONIZE,
];

/// What a share for reading allows, and one for changing.
const MAY_READ: AccessMask = AccessMask::FILE_READ.union(AccessMask::FILE_EXECUTE);
const MAY_CHANGE: AccessMask =
    AccessMask::FILE_ALL.without(AccessMask(AccessMask::WRITE_DAC.0 | AccessMask::WRITE_OWNER.0));

const COLUMNS: [&str; 9] = [
    "needs one of each",
    "owner",
    "administrator",
    "each right alone",
    "read-only share",
    "share for changing",
    "another's handle, or closed",
    "session ended since",
    "share gone since",
];

/// A handle with some rights.
struct Column {
    seat: Seat,
    rights: AccessMask,
}

struct Columns {
    owner: Column,
    admin: Column,
    alone: Vec<Column>,
    read_only: Column,
    change: Column,
    /// Handles that are not the sender's: who sends, through which tree.
    foreign: Vec<(Client, u32)>,
    closed: Seat,
    ended: Seat,
    gone: Seat,
}

impl Columns {
    fn new(world: &mut World) -> Self {
        let all = AccessMask::FILE_ALL;
        let column = |world: &mut World, client, share, given, desired| {
            let seat = world.seat(client, share, given, desired);
            Column { seat, rights: desired }
        };
        let most = all | AccessMask::ACCESS_SYSTEM_SECURITY;
        let mut closed = world.seat(Client::Owner, "share", all, all);
        world.close(&mut closed);
        let ended = world.seat(Client::Ended, "share", all, all);
        let gone = world.seat(Client::Owner, "gone", all, all);
        let columns = Self {
            owner: column(world, Client::Owner, "share", all, all),
            admin: column(world, Client::Admin, "share", all, most),
            alone: RIGHTS.map(|right| column(world, Client::User, "share", right, right)).into(),
            read_only: column(world, Client::User, "read", all, MAY_READ),
            change: column(world, Client::User, "change", all, MAY_CHANGE),
            foreign: vec![
                (Client::User, world.tree(Client::User, "share")),
                (Client::Stranger, world.tree(Client::Stranger, "elsewhere")),
                (Client::OwnerAgain, world.tree(Client::OwnerAgain, "share")),
                (Client::Owner, world.tree(Client::Owner, "change")),
            ],
            closed,
            ended,
            gone,
        };
        world.end(Client::Ended);
        assert!(world.served.server.remove_share("gone"));
        columns
    }
}

/// One cell: what is answered, and what has changed then.
fn cell(world: &mut World, column: &mut Column, row: &Row, expected: NtStatus) -> Result<(), String> {
    let got = world.send(&column.seat, row, true);
    let before = std::mem::take(&mut column.seat.state);
    column.seat.state = world.state(&column.seat);
    let changed = world::changed(&before, &column.seat.state);
    let result = judge(row, expected, got, &changed);
    if !changed.is_empty() {
        world.renew(&mut column.seat, column.rights);
    }
    let alone = RIGHTS.contains(&column.rights);
    result.map_err(|wrong| if alone { format!("with {:?}: {wrong}", column.rights) } else { wrong })
}

fn judge(row: &Row, expected: NtStatus, got: NtStatus, changed: &[Part]) -> Result<(), String> {
    if got != expected {
        return Err(format!("got {got:?}, and {changed:?} changed"));
    }
    let worked = !got.is_error();
    let wrong = changed.iter().any(|part| !worked || !row.may_change(*part));
    if wrong || (worked && !row.changes.is_empty() && changed.is_empty()) {
        return Err(format!("got {got:?} as it should be, but {changed:?} changed"));
    }
    Ok(())
}

fn all(results: impl IntoIterator<Item = Result<(), String>>) -> Result<(), String> {
    let wrong: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn try_row(world: &mut World, columns: &mut Columns, matrix: &mut Matrix, row: &Row) {
    let name = row.name();
    let text = |status: NtStatus| format!("{status:?}");
    let needs: Vec<String> = row.needs.iter().map(|any| format!("{any:?}").replace('|', " or ")).collect();
    matrix.cells(&name, &needs.join(" and "), 0, Ok(()));
    for (column, admin) in [(&mut columns.owner, false), (&mut columns.admin, true)] {
        let expected = row.expected(column.rights, admin);
        let result = cell(world, column, row, expected);
        matrix.cell(&name, &text(expected), result);
    }
    let refused = columns.alone.iter().filter(|column| !row.is_met(column.rights)).count();
    let one = row.answer;
    let expected = match refused {
        0 => text(one),
        _ if refused == columns.alone.len() => text(row.refused()),
        _ => format!("{one:?} with it, else {:?}", row.refused()),
    };
    let count = columns.alone.len();
    let results: Vec<_> = columns
        .alone
        .iter_mut()
        .map(|column| {
            let expected = row.expected(column.rights, false);
            cell(world, column, row, expected)
        })
        .collect();
    matrix.cells(&name, &expected, count, all(results));
    for column in [&mut columns.read_only, &mut columns.change] {
        let expected = row.expected(column.rights, false);
        let result = cell(world, column, row, expected);
        matrix.cell(&name, &text(expected), result);
    }
    // With handles of others, and with none any more, nothing is reached, whatever it needs.
    let handle = columns.owner.seat.clone();
    let not = |world: &mut World, seat: &Seat, expected: NtStatus| match world.send(seat, row, false) {
        got if got == expected => Ok(()),
        got => Err(format!("{:?} got {got:?}", seat.client)),
    };
    let expected = if row.of_no_file() { NtStatus::INVALID_PARAMETER } else { NtStatus::FILE_CLOSED };
    let mut results = Vec::new();
    for (client, tree) in &columns.foreign {
        let seat = Seat { client: *client, tree: *tree, ..handle.clone() };
        results.push(not(world, &seat, expected));
    }
    results.push(not(world, &columns.closed.clone(), expected));
    let after = world.state(&columns.owner.seat);
    results.push(match world::changed(&columns.owner.seat.state, &after)[..] {
        [] => Ok(()),
        ref changed => Err(format!("{changed:?} of the owner's changed")),
    });
    matrix.cells(&name, &text(expected), columns.foreign.len() + 1, all(results));
    for (seat, expected) in
        [(&columns.ended, NtStatus::USER_SESSION_DELETED), (&columns.gone, NtStatus::NETWORK_NAME_DELETED)]
    {
        let result = not(world, &seat.clone(), expected);
        matrix.cell(&name, &text(expected), result);
    }
}

fn try_rows(section: &'static str, rows: &[Row]) {
    let about = "Each operation needs one of each group of rights; each of the 14 rights is tried alone. Who asks with a handle of \
                 another session, user, share or tree, or with one that was closed, is answered alike.";
    let mut matrix = Matrix::new(section, about, &COLUMNS);
    let mut world = World::new();
    let mut columns = Columns::new(&mut world);
    for row in rows {
        try_row(&mut world, &mut columns, &mut matrix, row);
    }
    matrix.finish();
}

#[test]
fn access_matrix_of_controls() {
    try_rows("SMB controls", &rows::controls::ROWS);
}

#[test]
fn access_matrix_of_queries() {
    let rows =
        [&rows::queries::FILE[..], &rows::queries::VOLUME, &rows::queries::LIST, &rows::queries::SECURITY];
    try_rows("SMB queries", &rows.concat());
}

#[test]
fn access_matrix_of_changes() {
    let rows = [&rows::changes::FILE[..], &rows::changes::VOLUME, &rows::changes::SECURITY];
    try_rows("SMB changes", &rows.concat());
}

#[test]
fn access_matrix_of_commands() {
    let rows: Vec<Row> =
        rows::commands::ROWS.into_iter().filter(|row| !matches!(row.send, Send::Elsewhere(..))).collect();
    try_rows("SMB commands on handles", &rows);
}
