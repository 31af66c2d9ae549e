//! CREATE and TREE_CONNECT: who gets in, and what an open does by being made.
//!
//! Each cell begins with a folder and a file of its own. An open asks for as little as it can, so that what counts is what the
//! disposition does.

use access_matrix::{Matrix, missing_row};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions};

use super::rows::named;
use super::world::{Ask, Client, Part, World, changed};

/// What is in the way of who asks.
struct Asker {
    client: Client,
    share: &'static str,
    /// What the file and its folder grant.
    file: AccessMask,
    folder: AccessMask,
    /// FILE_ATTRIBUTE_READONLY.
    read_only: bool,
}

const NOTHING: AccessMask = AccessMask::NONE;
const ALL: AccessMask = AccessMask::FILE_ALL;
const READ: AccessMask = AccessMask::FILE_READ;
const LOOK: AccessMask = AccessMask::READ_ATTRIBUTES;

const COLUMNS: [&str; 11] = [
    "owner",
    "may read",
    "may write data",
    "may write data, EAs, attributes",
    "may append",
    "nothing; folder: add files",
    "nothing; folder: add folders",
    "nothing; folder: delete children",
    "all, over a read-only share",
    "all, over a share for changing",
    "all, file is read-only",
];

const fn asker(file: AccessMask, folder: AccessMask) -> Asker {
    Asker { client: Client::User, share: "share", file, folder, read_only: false }
}

const ASKERS: [Asker; COLUMNS.len()] = [
    Asker { client: Client::Owner, ..asker(ALL, ALL) },
    asker(READ, READ),
    asker(LOOK.union(AccessMask::WRITE_DATA), READ),
    asker(
        LOOK.union(AccessMask::WRITE_DATA).union(AccessMask::WRITE_EA).union(AccessMask::WRITE_ATTRIBUTES),
        READ,
    ),
    asker(LOOK.union(AccessMask::APPEND_DATA), READ),
    asker(NOTHING, AccessMask::WRITE_DATA),
    asker(NOTHING, AccessMask::APPEND_DATA),
    asker(NOTHING, AccessMask::DELETE_CHILD),
    Asker { share: "read", ..asker(ALL, ALL) },
    Asker { share: "change", ..asker(ALL, ALL) },
    Asker { read_only: true, ..asker(ALL, ALL) },
];

struct Row {
    name: &'static str,
    /// `{}` is the file.
    path: &'static str,
    disposition: CreateDisposition,
    options: CreateOptions,
    desired: AccessMask,
    changes: &'static [Part],
    /// A letter for each column.
    answers: &'static str,
}

const fn row(name: &'static str, disposition: CreateDisposition, answers: &'static str) -> Row {
    let options = CreateOptions::NON_DIRECTORY_FILE;
    Row { name, path: "file", disposition, options, desired: LOOK, changes: &[], answers }
}

/// Of a file that is there, of one that is not.
const fn made(name: &'static str, disposition: CreateDisposition, answers: &'static str) -> Row {
    Row { path: "new", changes: &[Part::Names], ..row(name, disposition, answers) }
}

const EMPTIED: &[Part] = &[Part::Data, Part::Size, Part::Attributes];

const fn emptied(name: &'static str, disposition: CreateDisposition, answers: &'static str) -> Row {
    Row { changes: EMPTIED, ..row(name, disposition, answers) }
}

/// g: SUCCESS, d: ACCESS_DENIED, c: OBJECT_NAME_COLLISION, n: OBJECT_NAME_NOT_FOUND, k: CANNOT_DELETE.
const ROWS: [Row; 18] = [
    row("OPEN", CreateDisposition::OPEN, "ggggg ddd ggg"),
    row("CREATE, there", CreateDisposition::CREATE, "ccccc ccc ccc"),
    row("OPEN_IF, there", CreateDisposition::OPEN_IF, "ggggg ddd ggg"),
    emptied("OVERWRITE", CreateDisposition::OVERWRITE, "gddgd ddd dgd"),
    emptied("OVERWRITE_IF, there", CreateDisposition::OVERWRITE_IF, "gddgd ddd dgd"),
    emptied("SUPERSEDE, there", CreateDisposition::SUPERSEDE, "gdddd ddd dgd"),
    Row { path: "new", ..row("OPEN, missing", CreateDisposition::OPEN, "nnnnn nnn nnn") },
    Row { path: "new", ..row("OVERWRITE, missing", CreateDisposition::OVERWRITE, "nnnnn nnn nnn") },
    made("CREATE", CreateDisposition::CREATE, "gdddd gdd dgg"),
    made("OPEN_IF, missing", CreateDisposition::OPEN_IF, "gdddd gdd dgg"),
    made("OVERWRITE_IF, missing", CreateDisposition::OVERWRITE_IF, "gdddd gdd dgg"),
    made("SUPERSEDE, missing", CreateDisposition::SUPERSEDE, "gdddd gdd dgg"),
    Row {
        options: CreateOptions::DIRECTORY_FILE,
        ..made("CREATE of a folder", CreateDisposition::CREATE, "gdddd dgd dgg")
    },
    Row {
        path: "file:new",
        changes: &[Part::Size],
        ..row("OPEN_IF of a stream, missing", CreateDisposition::OPEN_IF, "gdggd ddd dgd")
    },
    Row {
        path: "file:stream",
        ..row("OPEN_IF of a stream, there", CreateDisposition::OPEN_IF, "ggggg ddd ggg")
    },
    Row {
        path: "file:stream",
        changes: &[Part::Data, Part::Size],
        ..row("OVERWRITE of a stream", CreateDisposition::OVERWRITE, "gdggd ddd dgd")
    },
    Row {
        desired: AccessMask::DELETE,
        options: CreateOptions::DELETE_ON_CLOSE,
        changes: &[Part::Names, Part::Data, Part::Size, Part::Attributes, Part::Security, Part::Times],
        ..row("OPEN with DELETE_ON_CLOSE", CreateDisposition::OPEN, "gdddd ddg dgk")
    },
    Row {
        options: CreateOptions::OPEN_FOR_BACKUP_INTENT,
        ..row("OPEN for backup", CreateDisposition::OPEN, "ggggg ddd ggg")
    },
];

const fn dispositions() -> [u32; ROWS.len()] {
    let mut out = [0; ROWS.len()];
    let mut at = 0;
    while at < out.len() {
        out[at] = ROWS[at].disposition.0;
        at += 1;
    }
    out
}

const _: () = assert!(!missing_row(&named!(CreateDisposition), &dispositions()), "a disposition has no row");

fn status(letter: char) -> NtStatus {
    match letter {
        'g' => NtStatus::SUCCESS,
        'd' => NtStatus::ACCESS_DENIED,
        'c' => NtStatus::OBJECT_NAME_COLLISION,
        'n' => NtStatus::OBJECT_NAME_NOT_FOUND,
        'k' => NtStatus::CANNOT_DELETE,
        other => panic!("no answer {other}"),
    }
}

fn cell(world: &mut World, asker: &Asker, row: &Row, expected: NtStatus) -> Result<(), String> {
    let place = world.place(asker.client, asker.file, asker.folder, asker.read_only);
    let tree = world.tree(asker.client, asker.share);
    let before = world.seen(&place);
    let name = format!("{}\\{}", place.name, row.path);
    let ask = Ask {
        name: &name,
        desired: row.desired,
        disposition: row.disposition,
        options: row.options,
        security: None,
    };
    let opened = world.create(asker.client, tree, &ask);
    let got = opened.err().unwrap_or(NtStatus::SUCCESS);
    if let Ok(opened) = opened {
        world.close_id(asker.client, asker.share, opened);
    }
    let changed: Vec<Part> = changed(&before, &world.seen(&place));
    if got != expected {
        return Err(format!("got {got:?}, and {changed:?} changed"));
    }
    let may: &[Part] = if got == NtStatus::SUCCESS { row.changes } else { &[] };
    let beyond = changed.iter().any(|part| !may.contains(part) && (*part != Part::Times || may.is_empty()));
    if beyond || (!may.is_empty() && changed.is_empty()) {
        return Err(format!("got {got:?} as it should be, but {changed:?} changed"));
    }
    Ok(())
}

#[test]
fn access_matrix_of_creating() {
    let about = "The open asks for READ_ATTRIBUTES only (for DELETE with DELETE_ON_CLOSE): what is needed besides, the disposition needs.";
    let mut matrix = Matrix::new("SMB CREATE", about, &COLUMNS);
    let mut world = World::new();
    for row in &ROWS {
        let answers = row.answers.chars().filter(|letter| *letter != ' ').map(status);
        for (asker, expected) in ASKERS.iter().zip(answers) {
            let got = cell(&mut world, asker, row, expected);
            matrix.cell(row.name, &format!("{expected:?}"), got);
        }
    }
    matrix.finish();
}

const TREE_COLUMNS: [&str; 5] = [
    "who the share names",
    "a user that it does not name",
    "administrator",
    "session ended since",
    "another session",
];

#[test]
fn access_matrix_of_trees() {
    let about = "A share is connected to by who its permissions name, administrators included; a tree belongs to its session.";
    let mut matrix = Matrix::new("SMB trees", about, &TREE_COLUMNS);
    let mut world = World::new();
    let connect = |world: &mut World, client: Client| {
        let connected = world.connection(client).tree("elsewhere");
        connected.map_or_else(|error| error.status().unwrap(), |_| NtStatus::SUCCESS)
    };
    let cell = |matrix: &mut Matrix, row: &str, expected: NtStatus, got: NtStatus| {
        let result = if got == expected { Ok(()) } else { Err(format!("got {got:?}")) };
        matrix.cell(row, &format!("{expected:?}"), result);
    };
    world.tree(Client::Ended, "share");
    world.end(Client::Ended);
    let connects = "TREE_CONNECT";
    cell(&mut matrix, connects, NtStatus::SUCCESS, connect(&mut world, Client::Stranger));
    cell(&mut matrix, connects, NtStatus::ACCESS_DENIED, connect(&mut world, Client::User));
    cell(&mut matrix, connects, NtStatus::ACCESS_DENIED, connect(&mut world, Client::Admin));
    cell(&mut matrix, connects, NtStatus::USER_SESSION_DELETED, connect(&mut world, Client::Ended));
    matrix.cell(connects, "", Ok(()));
    let tree = world.tree(Client::Stranger, "elsewhere");
    let leave =
        |world: &mut World, client| world.call(client, tree, &smb_protocol::message::Request::TreeDisconnect);
    let leaves = "TREE_DISCONNECT";
    // Another session's number is none of the sender's, or another tree of its own.
    let foreign = leave(&mut world, Client::OwnerAgain);
    cell(&mut matrix, leaves, NtStatus::SUCCESS, leave(&mut world, Client::Stranger));
    matrix.cell(leaves, "", Ok(()));
    matrix.cell(leaves, "", Ok(()));
    cell(&mut matrix, leaves, NtStatus::USER_SESSION_DELETED, leave(&mut world, Client::Ended));
    cell(&mut matrix, leaves, NtStatus::NETWORK_NAME_DELETED, foreign);
    matrix.finish();
}
