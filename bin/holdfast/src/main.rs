//! The Holdfast node and its command line, in one binary.
//!
//! `holdfast serve` is the node; `holdfast demo` is a node that makes its own disks; every other verb asks a
//! node over its socket. A verb is one file: its arguments, what it sends, how the answer looks.
//!
//! Called `diskspd` or `sqlio` it is the load generator, with that tool's command line (`spd`).
//!
//! Exit codes: 0 done, 1 it could not be done, 2 the command line makes no sense.

#[macro_use]
mod output;

mod absolute_path;
mod api;
mod audit;
mod cache;
mod cli;
mod cluster;
mod command_line;
mod config;
mod context;
mod demo;
mod demo_cluster;
mod demo_pages;
mod demo_share;
mod disk;
mod disk_image;
mod error;
mod file;
mod finding;
mod group;
mod health;
mod interrupt;
mod job;
mod lun;
mod lun_cache;
mod manual;
mod net;
mod node;
mod notify;
mod offline;
mod open;
mod output_file;
mod part_file;
mod perf;
mod pool;
mod portal;
mod progress;
mod qos;
mod quota;
mod serve;
mod session;
mod share;
mod smb;
mod snapshot;
mod spd;
mod status;
mod supervisor;
mod table;
mod target;
mod units;
mod user;
mod user_group;
mod volume;

use std::process::ExitCode;

use crate::error::CliError;

fn main() -> ExitCode {
    if let Some(code) = spd::by_name() {
        return code;
    }
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let args = match command_line::parse(&words) {
        Ok(args) => args,
        // What `--help` and the like print is no error.
        Err(error) if error.use_stderr() && std::env::args().any(|arg| arg == "--json") => {
            return ended(&error::of_clap(&error), true);
        }
        Err(error) => error.exit(),
    };
    let json = args.json;
    args.run().unwrap_or_else(|error| ended(&error, json))
}

fn ended(error: &CliError, json: bool) -> ExitCode {
    error.print(json);
    ExitCode::from(error.exit_code())
}
