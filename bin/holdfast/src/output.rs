//! Standard output, whose reader may go away: `holdfast status | head -1` is no reason to panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// What a shell reports for a program that died of SIGPIPE: 128 + 13.
const BROKEN_PIPE: i32 = 141;

/// Writes to standard output. Ends the process quietly when nobody reads any more.
pub(crate) fn write(text: Arguments<'_>, end: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_fmt(text).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush());
    if let Err(error) = written {
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("holdfast: standard output: {error}");
            std::process::exit(1);
        }
        std::process::exit(BROKEN_PIPE);
    }
}

/// `println!` that survives a reader that has gone.
macro_rules! outln {
    () => { crate::output::write(format_args!(""), "\n") };
    ($($text:tt)*) => { crate::output::write(format_args!($($text)*), "\n") };
}

/// `print!` that survives a reader that has gone.
macro_rules! out {
    ($($text:tt)*) => { crate::output::write(format_args!($($text)*), "") };
}
