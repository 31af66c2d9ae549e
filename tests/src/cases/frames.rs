//! What Wireshark's dissector, written from the same RFC by others, says about our frames.

use std::time::Duration;

use super::{Context, Server};
use crate::node::Options;
use crate::process::{Deadline, Finished, Running, command, need, need_root, run as run_program};
use crate::{Result, ensure};

pub(super) fn run(context: &Context) -> Result {
    need("tshark", "tshark")?;
    need("dumpcap", "tshark")?;
    need("iscsi-test-cu", "libiscsi-bin")?;
    need_root("capturing packets")?;
    let server = Server::start(context, Options::default())?;
    let port = server.portal().rsplit(':').next().unwrap_or_default().to_string();
    let file = context.folder.join("session.pcapng");
    let log = context.folder.join("dumpcap.log");
    let mut capture = command("dumpcap");
    capture.args(["-q", "-i", "lo", "-f", &format!("tcp port {port}"), "-w"]).arg(&file);
    let mut capture = Running::start("dumpcap", capture, &log)?;
    Deadline::after(Duration::from_secs(20)).poll("dumpcap", || {
        let said = std::fs::read_to_string(&log)?;
        Ok(said.contains("File:").then_some(()))
    })?;
    // Discovery, digests, reads, writes, errors, task management, a reservation: small suites of everything.
    for suite in [
        "ALL.Inquiry",
        "ALL.Read16",
        "ALL.Write10",
        "ALL.ReportSupportedOpcodes",
        "ALL.iSCSITMF",
        "ALL.ModeSense6",
    ] {
        let mut test = command("iscsi-test-cu");
        test.args(["--dataloss", "-t", suite, &server.url()]);
        let _: Finished = run_program(Duration::from_secs(60), &test)?;
    }
    let mut list = command("iscsi-ls");
    list.args(["-s", &format!("iscsi://{}", server.portal())]);
    run_program(Duration::from_secs(20), &list)?.ok("iscsi-ls")?;
    capture.signal("INT")?;
    capture.wait(Deadline::after(Duration::from_secs(20)))?;

    let frames = |filter: &str| -> Result<Vec<String>> {
        let mut shark = command("tshark");
        shark.arg("-r").arg(&file).args(["-d", &format!("tcp.port=={port},iscsi"), "-Y", filter]);
        let text = run_program(Duration::from_secs(120), &shark)?.ok("tshark")?;
        Ok(text.lines().filter(|l| !l.trim().is_empty()).map(str::to_string).collect())
    };
    let all = frames("iscsi")?;
    ensure(all.len() > 100, || format!("only {} iSCSI frames were captured", all.len()))?;
    let bad = frames(&format!("_ws.malformed && tcp.srcport=={port}"))?;
    ensure(bad.is_empty(), || {
        format!("{} malformed frames from the target:\n{}", bad.len(), bad.join("\n"))
    })?;
    crate::note!("     {} iSCSI frames, none malformed", all.len());
    server.finish()
}
