//! The access matrix of remote procedure calls: every operation of every interface × who calls.
//!
//! What a handle leads to is the handle's; so for operations on handles what counts is whose it is. Whether a user who was
//! disabled may call at all is asked before any operation (`tests/logins.rs`).

use access_matrix::{Matrix, missing_row};

use super::*;
use crate::endpoint::{LSARPC, SAMR, SRVSVC, WKSSVC};
use crate::handles::{Handles, Object};
use crate::interface::{Call, Interface, Operation};
use crate::view::ServerView as _;

/// What an operation is to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// What it returns.
    Returns(u32),
    /// It comes to the object of its handle, whatever it finds there.
    Reaches,
    Fails(Fault),
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Returns(0) => f.write_str("success"),
            Self::Returns(5 | 0xc000_0022) => f.write_str("access denied"),
            Self::Returns(2314) => f.write_str("no such file"),
            Self::Returns(87) => f.write_str("invalid parameter"),
            Self::Returns(other) => write!(f, "{other:#x}"),
            Self::Reaches => f.write_str("reached"),
            Self::Fails(Fault::CONTEXT_MISMATCH) => f.write_str("no such handle"),
            Self::Fails(fault) => write!(f, "{fault}"),
        }
    }
}

/// What is sent: nothing but a name, or a handle.
type Stub = fn(&[u8; 20]) -> Vec<u8>;

struct Row {
    number: u32,
    stub: Stub,
    administrator: Answer,
    user: Answer,
    /// The handle that it is about.
    object: Option<fn() -> Object>,
    changes: bool,
}

const DONE: Answer = Answer::Returns(0);
const DENIED: Answer = Answer::Returns(5);

const fn row(number: u32, stub: Stub, administrator: Answer, user: Answer) -> Row {
    Row { number, stub, administrator, user, object: None, changes: false }
}

/// For everybody.
const fn open(number: u32, stub: Stub) -> Row {
    row(number, stub, DONE, DONE)
}

/// For those who may read accounts; the sample lets administrators.
const fn accounts(number: u32, stub: Stub) -> Row {
    row(number, stub, DONE, Answer::Returns(0xc000_0022))
}

/// For administrators.
const fn closed(number: u32, stub: Stub) -> Row {
    row(number, stub, DONE, DENIED)
}

const fn changing(row: Row) -> Row {
    Row { changes: true, ..row }
}

/// About a handle: the opener's is the only one that it works with.
const fn on(number: u32, object: fn() -> Object) -> Row {
    Row { object: Some(object), ..row(number, with_handle, Answer::Reaches, Answer::Reaches) }
}

fn policy() -> Object {
    Object::Policy
}

fn machine() -> Sid {
    Memory::sample().machine()
}

fn domain() -> Object {
    Object::SamDomain(machine())
}

fn account() -> Object {
    Object::SamUser(machine().child(1000).unwrap())
}

fn group() -> Object {
    Object::SamGroup(machine().child(513).unwrap())
}

fn alias() -> Object {
    Object::SamAlias(Sid::ADMINISTRATORS)
}

fn server() -> Object {
    Object::SamServer
}

fn removal() -> Object {
    Object::ShareRemoval("vm".to_owned())
}

fn with_handle(handle: &[u8; 20]) -> Vec<u8> {
    [&handle[..], &[0; 256]].concat()
}

/// Arguments behind the server's name, which is left out.
fn stub(put: impl FnOnce(&mut NdrOut)) -> Vec<u8> {
    let mut out = NdrOut::new();
    out.pointer(false);
    put(&mut out);
    out.finish()
}

fn text(out: &mut NdrOut, text: &str) {
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    out.count(units.len());
    out.u32(0);
    out.count(units.len());
    units.iter().for_each(|unit| out.u16(*unit));
}

fn text_and(name: &str, words: &[u32]) -> Vec<u8> {
    stub(|out| {
        text(out, name);
        words.iter().for_each(|word| out.u32(*word));
    })
}

fn list(out: &mut NdrOut, level: u32) {
    out.u32(level);
    out.u32(level);
    out.pointer(true);
    out.u32(0);
    out.pointer(false);
    out.u32(u32::MAX);
    out.pointer(false);
}

fn names(texts: [&str; 2]) -> Vec<u8> {
    stub(|out| {
        texts.iter().for_each(|each| text(out, each));
        out.u32(1);
        out.u32(0);
    })
}

/// The numbers of both, for the comparison that a new operation without a row does not pass.
const fn numbers<const N: usize>(operations: &[Operation]) -> [u32; N] {
    let mut out = [0; N];
    let mut at = 0;
    while at < N {
        out[at] = operations[at].number as u32;
        at += 1;
    }
    out
}

const fn rows<const N: usize>(rows: &[Row; N]) -> [u32; N] {
    let mut out = [0; N];
    let mut at = 0;
    while at < N {
        out[at] = rows[at].number;
        at += 1;
    }
    out
}

const S: usize = SRVSVC.operations.len();
const W: usize = WKSSVC.operations.len();
const L: usize = LSARPC.operations.len();
const A: usize = SAMR.operations.len();

const _: () = {
    assert!(
        !missing_row(&numbers::<S>(SRVSVC.operations), &rows(&SERVER)),
        "srvsvc: an operation has no row"
    );
    assert!(
        !missing_row(&numbers::<W>(WKSSVC.operations), &rows(&WORKSTATION)),
        "wkssvc: an operation has no row"
    );
    assert!(
        !missing_row(&numbers::<L>(LSARPC.operations), &rows(&AUTHORITY)),
        "lsarpc: an operation has no row"
    );
    assert!(!missing_row(&numbers::<A>(SAMR.operations), &rows(&ACCOUNTS)), "samr: an operation has no row");
};

static SERVER: [Row; S] = [
    closed(8, |_| {
        stub(|out| {
            out.wide("vm");
            out.flush();
            list(out, 1);
        })
    }),
    closed(9, |_| {
        stub(|out| {
            out.pointer(false);
            out.pointer(false);
            list(out, 3);
        })
    }),
    row(10, |_| stub(|out| [99, 3].iter().for_each(|word| out.u32(*word))), Answer::Returns(2314), DENIED),
    row(11, |_| stub(|out| out.u32(99)), Answer::Returns(2314), DENIED),
    closed(12, |_| {
        stub(|out| {
            out.pointer(false);
            out.pointer(false);
            list(out, 502);
        })
    }),
    changing(closed(13, |_| {
        stub(|out| {
            out.pointer(false);
            out.wide("bob");
            out.flush();
        })
    })),
    // With nothing to be made.
    row(14, |_| stub(|out| [2, 2, 0, 0].iter().for_each(|word| out.u32(*word))), Answer::Returns(87), DENIED),
    // At the level that tells paths.
    closed(15, |_| stub(|out| list(out, 2))),
    closed(16, |_| text_and("vm", &[502])),
    row(17, |_| text_and("vm", &[1004, 1004, 0, 0]), Answer::Returns(87), DENIED),
    changing(closed(18, |_| text_and("vm", &[0]))),
    changing(closed(19, |_| text_and("vm", &[0]))),
    open(20, |_| text_and("C:\\vm", &[])),
    open(21, |_| stub(|out| out.u32(101))),
    closed(23, |_| stub(|out| [0, 0, 0, u32::MAX, 0].iter().for_each(|word| out.u32(*word)))),
    closed(26, |_| stub(|out| list(out, 0))),
    open(28, |_| stub(|_| {})),
    open(30, |_| text_and("C:\\vm", &[0])),
    open(31, |_| {
        stub(|out| {
            text(out, "C:\\vm");
            out.u32(200);
            text(out, "");
            out.u32(0);
            out.u32(0);
        })
    }),
    open(32, |_| names(["C:\\vm", "C:\\vm"])),
    open(33, |_| text_and("vm", &[9, 0])),
    open(34, |_| text_and("vm", &[200, 9, 0])),
    open(35, |_| names(["vm", "vm"])),
    closed(36, |_| stub(|out| list(out, 502))),
    closed(37, |_| text_and("vm", &[0])),
    // Who is no administrator any more does not finish what it began either.
    Row { object: Some(removal), changes: true, ..closed(38, |handle| handle.to_vec()) },
];

static WORKSTATION: [Row; W] = [open(0, |_| stub(|out| out.u32(100)))];

/// A policy for looking names up; and one for changing it.
fn open_policy(access: u32) -> Vec<u8> {
    stub(|out| [24, 0, 0, 0, 0, 0, access].iter().for_each(|word| out.u32(*word)))
}

static AUTHORITY: [Row; L] = [
    on(0, policy),
    row(6, |_| open_policy(0x800), DONE, DONE),
    on(7, policy),
    on(11, policy),
    on(13, policy),
    on(14, policy),
    on(15, policy),
    on(36, policy),
    // For changing.
    row(44, |_| open_policy(0x10), DONE, Answer::Returns(0xc000_0022)),
    // Who the caller is.
    row(45, |_| stub(|out| [0, 0].iter().for_each(|word| out.u32(*word))), DONE, DONE),
    on(46, policy),
    on(50, policy),
    on(57, policy),
    on(58, policy),
    on(68, policy),
    // They have no handle: lookups that a server is asked for by another.
    row(76, |_| vec![0; 128], Answer::Reaches, Answer::Reaches),
    row(77, |_| vec![0; 128], Answer::Reaches, Answer::Reaches),
];

static ACCOUNTS: [Row; A] = [
    accounts(0, |_| stub(|out| out.u32(0x30))),
    on(1, server),
    on(5, server),
    on(6, server),
    on(7, server),
    on(8, domain),
    on(11, domain),
    on(13, domain),
    on(15, domain),
    on(16, domain),
    on(17, domain),
    on(18, domain),
    on(19, domain),
    on(20, group),
    on(25, group),
    on(27, domain),
    on(28, alias),
    on(33, alias),
    on(34, domain),
    on(36, account),
    on(39, account),
    on(40, domain),
    on(44, account),
    on(46, domain),
    on(47, account),
    on(48, domain),
    on(51, domain),
    accounts(56, |_| stub(|_| {})),
    accounts(57, |_| stub(|out| out.u32(0x30))),
    accounts(62, |_| stub(|out| [2, 0x30].iter().for_each(|word| out.u32(*word)))),
    accounts(64, |_| stub(|out| [0x30, 1, 1, 3, 0].iter().for_each(|word| out.u32(*word)))),
    on(65, domain),
];

/// Calls; the handle is `owner`'s. What is returned, and whether anything has changed.
fn called(
    interface: &Interface,
    row: &Row,
    caller: &RpcClient,
    owner: &RpcClient,
) -> (Result<u32, Fault>, bool) {
    let memory = Memory::sample();
    let mut handles = Handles::default();
    let handle = match row.object {
        Some(object) => handles.open(owner.sid, object(), [9; 16]).unwrap(),
        None => [0; 20],
    };
    let state = |memory: &Memory| {
        let lists = (memory.shares(caller), memory.sessions(), memory.opens());
        format!("{lists:?} {:?}", memory.users())
    };
    let before = state(&memory);
    let sent = (row.stub)(&handle);
    let mut call = Call { view: &memory, client: caller, handles: &mut handles };
    let result = interface.run(&mut call, row.number as u16, &mut NdrIn::new(&sent, Order::Little));
    let returned = result.map(|out| u32::from_le_bytes(*out.finish().last_chunk().unwrap()));
    (returned, state(&memory) != before)
}

fn judge(
    (got, changed): (Result<u32, Fault>, bool),
    expected: Answer,
    may_change: bool,
) -> Result<(), String> {
    let right = match (expected, got) {
        (Answer::Returns(expected), Ok(got)) => expected == got,
        (Answer::Fails(expected), Err(got)) => expected == got,
        (Answer::Reaches, got) => !matches!(got, Err(Fault::CONTEXT_MISMATCH | Fault::OP_RANGE)),
        _ => false,
    };
    let changes = may_change && expected == DONE;
    match right && changed == changes {
        true => Ok(()),
        false => Err(format!("got {got:x?}, changed: {changed}")),
    }
}

#[test]
fn access_matrix_of_calls() {
    let about = "Who is an administrator is asked anew before each call. \"reached\" is said of operations on a handle that come to its object.";
    let columns = &["administrator", "plain user", "another's handle"];
    let mut matrix = Matrix::new("RPC", about, columns);
    let (administrator, user) = (client(true), client(false));
    let other = RpcClient { sid: machine().child(1001).unwrap(), ..client(true) };
    for (interface, rows) in
        [(&SRVSVC, &SERVER[..]), (&WKSSVC, &WORKSTATION), (&LSARPC, &AUTHORITY), (&SAMR, &ACCOUNTS)]
    {
        for row in rows {
            let name = interface.name_of(row.number as u16);
            for (caller, expected) in [(&administrator, row.administrator), (&user, row.user)] {
                let got = judge(called(interface, row, caller, caller), expected, row.changes);
                matrix.cell(name, &expected.to_string(), got);
            }
            match row.object {
                Some(_) => {
                    let expected = Answer::Fails(Fault::CONTEXT_MISMATCH);
                    let got = judge(called(interface, row, &other, &user), expected, false);
                    matrix.cell(name, &expected.to_string(), got);
                }
                None => matrix.cell(name, "", Ok(())),
            }
        }
    }
    matrix.finish();
}

/// The attempts that a view is told of when somebody calls this, as operation, object and error.
fn attempts(
    interface: &Interface,
    number: u16,
    sent: &[u8],
    caller: &RpcClient,
) -> Vec<(&'static str, String, u32)> {
    let memory = Memory::sample();
    let mut handles = Handles::default();
    let handle = handles.open(caller.sid, removal(), [9; 16]).unwrap();
    let sent = if sent.is_empty() { handle.to_vec() } else { sent.to_vec() };
    let mut call = Call { view: &memory, client: caller, handles: &mut handles };
    let _ = interface.run(&mut call, number, &mut NdrIn::new(&sent, Order::Little));
    let told = memory.lists().refused.into_iter();
    told.map(|(user, operation, object, why)| {
        assert_eq!(user, caller.user);
        (operation, object, why.0)
    })
    .collect()
}

#[test]
fn changes_that_are_refused_are_told_of() {
    let (administrator, user) = (client(true), client(false));
    let share = |name: &str| text_and(name, &[0]);
    let session = stub(|out| {
        out.wide("192.0.2.9");
        out.flush();
        out.wide("nobody");
        out.flush();
    });
    let added = stub(|out| [2, 2, 0, 0].iter().for_each(|word| out.u32(*word)));
    let one = |number, sent: &[u8], caller| match &attempts(&SRVSVC, number, sent, caller)[..] {
        [(operation, object, why)] => (*operation, object.clone(), *why),
        other => panic!("{number}: {other:?}"),
    };
    let told = |operation, object: &str, why| (operation, object.to_owned(), why);
    for (number, sent, operation, object) in [
        (14, added.clone(), "NetrShareAdd", ""),
        (17, text_and("vm", &[1004, 1004, 0, 0]), "NetrShareSetInfo", "vm"),
        (18, share("vm"), "NetrShareDel", "vm"),
        (19, share("vm"), "NetrShareDel", "vm"),
        (37, share("vm"), "NetrShareDelStart", "vm"),
        (38, Vec::new(), "NetrShareDelCommit", "vm"),
        (13, session.clone(), "NetrSessionDel", "nobody 192.0.2.9"),
        (11, stub(|out| out.u32(7)), "NetrFileClose", "open 7"),
    ] {
        assert_eq!(one(number, &sent, &user), told(operation, object, 5));
    }
    // An administrator's, too, where they come to nothing before the server is asked.
    assert_eq!(one(14, &added, &administrator), told("NetrShareAdd", "", 87));
    assert_eq!(
        one(17, &text_and("vm", &[1004, 1004, 0, 0]), &administrator),
        told("NetrShareSetInfo", "vm", 87)
    );
    assert_eq!(one(18, &share("none"), &administrator), told("NetrShareDel", "none", 2310));
    assert_eq!(one(18, &share("IPC$"), &administrator), told("NetrShareDel", "IPC$", 5));
    assert_eq!(one(13, &session, &administrator), told("NetrSessionDel", "nobody 192.0.2.9", 2312));
    // What is done, and who only looks, is none.
    assert!(attempts(&SRVSVC, 18, &share("vm"), &administrator).is_empty());
    assert!(attempts(&SRVSVC, 16, &text_and("vm", &[502]), &user).is_empty());
    // Changes that nobody serves.
    for caller in [&administrator, &user] {
        let told = attempts(&SAMR, 50, &[0; 64], caller);
        assert_eq!(told, [("SamrCreateUser2InDomain", String::new(), 50)]);
    }
    assert!(attempts(&SAMR, 200, &[0; 64], &user).is_empty());
    for interface in [&SRVSVC, &LSARPC, &SAMR] {
        for (number, name) in interface.unserved_changes {
            assert_eq!(interface.name_of(*number), "?", "{name} is served");
        }
    }
}
