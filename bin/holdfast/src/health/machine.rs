//! What the machine is: kernel, processors, memory, the network, and what the service wrote into the journal.

use std::path::Path;
use std::process::{Command, Stdio};

use network_facts::Network;
use serde::{Deserialize, Serialize};

/// Lines of the journal at most: some days of a node that is well.
const LOG_LINES: &str = "20000";

/// Bytes of one fact at most.
const MOST_BYTES: usize = 4096;

/// Facts of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) kernel: String,
    pub(super) system: String,
    pub(super) processor: String,
    pub(super) processors: u64,
    pub(super) memory_bytes: u64,
    pub(super) memory_available_bytes: u64,
    /// Mean numbers of tasks that ran or waited: over 1, 5 and 15 minutes.
    pub(super) load: String,
    pub(super) network: Network,
}

fn read(path: impl AsRef<Path>) -> String {
    let mut text = std::fs::read_to_string(path).unwrap_or_default();
    let end = (0..=MOST_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text.trim().to_owned()
}

/// The value behind `name:` or `name=` of a file of such lines.
fn value(text: &str, name: &str, separator: char) -> String {
    let found = text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
    });
    found.unwrap_or_default()
}

/// Kilobytes as `/proc/meminfo` writes them, in bytes.
fn kilobytes(text: &str, name: &str) -> u64 {
    value(text, name, ':').split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0) << 10
}

impl Machine {
    /// This one. What cannot be read is empty.
    pub(super) fn here() -> Self {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = read("/proc/meminfo");
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            system: value(&read("/etc/os-release"), "PRETTY_NAME", '='),
            processor: value(&processors, "model name", ':'),
            processors: processors.lines().filter(|line| line.starts_with("processor")).count() as u64,
            memory_bytes: kilobytes(&memory, "MemTotal"),
            memory_available_bytes: kilobytes(&memory, "MemAvailable"),
            load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            network: Network::here(),
        }
    }
}

/// What the service wrote into the journal.
///
/// # Errors
/// Why there is nothing.
pub(super) fn journal() -> Result<Vec<u8>, String> {
    let mut journalctl = Command::new("journalctl");
    journalctl.args(["--unit=holdfast.service", "--no-pager", "--output=short-iso", "--lines", LOG_LINES]);
    let written = journalctl.stdin(Stdio::null()).stderr(Stdio::null()).output();
    match written {
        // Of a unit that never ran journalctl prints a remark.
        Ok(written) if written.status.success() && !written.stdout.starts_with(b"-- No entries") => {
            Ok(written.stdout)
        }
        Ok(_) => Err("the journal has nothing of holdfast.service".into()),
        Err(error) => Err(format!("journalctl: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_lines() {
        assert_eq!(value("NAME=x\nPRETTY_NAME=\"Debian 12\"\n", "PRETTY_NAME", '='), "Debian 12");
        assert_eq!(
            kilobytes("MemTotal:       24000000 kB\nMemAvailable: 5 kB", "MemTotal"),
            24_000_000 << 10
        );
        assert_eq!(value("", "x", '='), "");
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_processor() {
        let machine = Machine::here();
        assert!(
            !machine.kernel.is_empty() && machine.processors > 0 && machine.memory_bytes > 0,
            "{machine:?}"
        );
    }
}
