//! Commands.

use access_matrix::missing_row;

use super::*;

const READS: AccessMask = AccessMask(AccessMask::READ_DATA.0 | AccessMask::EXECUTE.0);
const WRITES: AccessMask = AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);
const DATA: AccessMask = AccessMask(READS.0 | WRITES.0);

const fn on_handle(command: Command, needs: &'static [AccessMask]) -> Row {
    row(Send::Command(command), needs, NtStatus::SUCCESS)
}

const fn elsewhere(command: Command, place: &'static str) -> Row {
    row(Send::Elsewhere(command, place), &[], NtStatus::SUCCESS)
}

const _: () = assert!(!missing_row(&named!(Command), &codes(&ROWS)), "a command has no row");

pub const ROWS: [Row; 20] = [
    elsewhere(Command::NEGOTIATE, "tests/sessions.rs: before anybody is known"),
    elsewhere(Command::SESSION_SETUP, "tests/sessions.rs: this is where it becomes known who asks"),
    elsewhere(Command::LOGOFF, "tests/sessions.rs: ends the sender's session"),
    elsewhere(Command::TREE_CONNECT, "creating.rs"),
    elsewhere(Command::TREE_DISCONNECT, "creating.rs"),
    elsewhere(Command::CREATE, "creating.rs"),
    elsewhere(Command::IOCTL, "controls.rs"),
    elsewhere(Command::QUERY_INFO, "queries.rs"),
    elsewhere(Command::QUERY_DIRECTORY, "queries.rs"),
    elsewhere(Command::SET_INFO, "changes.rs"),
    elsewhere(Command::CANCEL, "tests/sessions.rs: has no answer, and reaches the sender's connection only"),
    elsewhere(Command::ECHO, "tests/sessions.rs: about nothing"),
    elsewhere(Command::SERVER_TO_CLIENT_NOTIFICATION, "nowhere: the server's"),
    on_handle(Command::READ, &[READS]),
    on_handle(Command::WRITE, &[WRITES]).changing(&[Part::Data, Part::Size, Part::Attributes]),
    on_handle(Command::FLUSH, &[WRITES]),
    on_handle(Command::LOCK, &[DATA]).changing(&[Part::Opens]),
    on_handle(Command::CHANGE_NOTIFY, &[AccessMask::READ_DATA]),
    // There is no break to acknowledge.
    row(Send::Command(Command::OPLOCK_BREAK), &[], NtStatus::INVALID_OPLOCK_PROTOCOL),
    on_handle(Command::CLOSE, &[]).changing(&[Part::Opens]),
];
