//! Packets of a case, and what tshark says of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Deadline, Running, command, run as run_program};
use crate::{Result, ensure};

/// A running capture on the loopback.
pub(super) struct Capture {
    process: Running,
    file: PathBuf,
    port: u16,
}

impl Capture {
    /// Begins to capture what goes over a port. The dissector knows packets of more than 128 KiB on SMB's own port only.
    pub(super) fn start(folder: &Path, port: u16) -> Result<Self> {
        let (file, log) = (folder.join("smb.pcapng"), folder.join("dumpcap.log"));
        let mut capture = command("dumpcap");
        // A buffer that holds all of it: what is dropped looks malformed.
        capture.args(["-q", "-B", "256", "-i", "lo", "-f", &format!("tcp port {port}"), "-w"]).arg(&file);
        let process = Running::start("dumpcap", capture, &log)?;
        Deadline::after(Duration::from_secs(20))
            .poll("dumpcap", || Ok(std::fs::read_to_string(&log)?.contains("File:").then_some(())))?;
        Ok(Self { process, file, port })
    }

    /// Ends it: at least so many SMB frames, and no malformed one of the server.
    pub(super) fn finish(mut self, least: usize) -> Result {
        self.process.signal("INT")?;
        self.process.wait(Deadline::after(Duration::from_secs(20)))?;
        let mut shark = command("tshark");
        let port = self.port;
        shark.arg("-r").arg(&self.file);
        // One pass: a line for each SMB frame, and one that says so for each that is malformed.
        shark.args([
            "-Y",
            "smb2 || _ws.malformed",
            "-T",
            "fields",
            "-e",
            "frame.number",
            "-e",
            "tcp.srcport",
        ]);
        shark.args([
            "-e",
            "_ws.malformed",
            "-e",
            "smb2.header.transform.msg_size",
            "-e",
            "_ws.expert.message",
        ]);
        let text = run_program(Duration::from_secs(300), &shark)?.ok("tshark")?;
        let frames = text.lines().filter(|line| !line.trim().is_empty());
        let (mut all, mut bad) = (0, Vec::new());
        for frame in frames {
            all += 1;
            let mut parts = frame.split('\t');
            let (_number, from, malformed) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
            // What is encrypted cannot be read here, but now and then looks as if: the dissector trips over chance.
            let sealed = parts.next().is_some_and(|size| !size.is_empty());
            if !malformed.is_empty() && !sealed && from == Some(port.to_string().as_str()) {
                bad.push(frame);
            }
        }
        ensure(all >= least, || format!("only {all} SMB frames were captured"))?;
        ensure(bad.is_empty(), || {
            format!("{} malformed frames from the server:\n{}", bad.len(), bad.join("\n"))
        })?;
        crate::note!("     {all} SMB frames, none malformed");
        Ok(())
    }
}
