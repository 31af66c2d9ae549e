//! Remote administration over IPC$: smbclient lists shares, rpcclient asks for what administrators and users may and may
//! not see, shares are made and removed from afar and outlive the node, and smbtorture's suite for srvsvc.

use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::node::{Node, Options};
use crate::process::{Finished, command, need, run as run_program};
use crate::{Result, ensure};

/// One run of a client.
const LIMIT: Duration = Duration::from_secs(60);
/// An administrator's account.
const BOSS: &str = "boss";
/// Its password.
const BOSS_PASSWORD: &str = "Secret-of-boss-1";
/// Tests of smbtorture's rpc.srvsvc that need not pass, with the reason.
const NOT_PASSED: [(&str, &str); 5] = [
    ("NetCharDevEnum", "no server has character devices since Windows NT 4; nor has Samba"),
    ("NetCharDevQEnum", "likewise"),
    ("NetShareEnum", "wants level 1005 and others to be refused that Windows and Samba answer"),
    ("NetShareAddSetDel", "smbtorture leaves it out unless it is told that it may harm the server"),
    ("anonymous access", "nobody is let in without saying who it is"),
];

/// What rpcclient is told to do, what an administrator must then be told, and whether others may know it too.
const QUESTIONS: [(&str, &[&str], bool); 17] = [
    ("srvinfo", &["Holdfast", "platform_id", "500"], true),
    ("netshareenum 1", &["vmstore"], true),
    ("netshareenum 2", &["vmstore", "hideout", r"path:	C:\vm\shares\vmstore"], false),
    ("netshareenumall 2", &["vmstore", "IPC$"], false),
    ("netsharegetinfo vmstore 1", &["Virtual machines of the demo"], true),
    ("netsharegetinfo hideout 1", &["hideout"], true),
    ("netsharegetinfo vmstore 502", &["ACCESS ALLOWED", "0x1f01ff"], false),
    ("netsessenum", &["Received 1 entries"], false),
    ("netfileenum", &[], false),
    ("netconnenum IPC$", &[], false),
    ("lookupnames boss Everyone", &["boss S-1-5-21-", "(User: 1)", "Everyone S-1-1-0"], true),
    ("lookupsids S-1-5-32-544 S-1-5-18", &[r"BUILTIN\Administrators", r"NT AUTHORITY\SYSTEM"], true),
    ("lsaquery", &["WORKGROUP"], true),
    ("getusername", &["Account Name"], true),
    (
        "enumdomusers",
        &["user:[demo] rid:[0x3e8]", "user:[admin] rid:[0x3e9]", "user:[boss] rid:[0x3ea]"],
        false,
    ),
    ("queryuser demo", &["User of the demo"], false),
    ("enumalsgroups builtin", &["Administrators"], false),
];

pub(super) fn run(context: &Context) -> Result {
    need("smbclient", "smbclient")?;
    need("rpcclient", "smbclient")?;
    need("smbtorture", "samba-testsuite")?;
    let mut node = Node::start(&context.folder, Options::default())?;
    let secret = format!("{BOSS_PASSWORD}\n");
    node.cli_with(&["user", "create", BOSS, "--group", "Administrators", "--password-stdin"], &secret)?;
    node.cli(&["share", "create", "hideout", "--hidden", "--full", BOSS])?;

    lists(&node)?;
    questions(&node)?;
    node.expect_log("SMB login refused");
    changes(&mut node)?;
    torture(&node)?;
    node.finish()
}

/// The accounts by name: the demo's user is no administrator.
fn login(node: &Node, boss: bool) -> String {
    if boss {
        format!("{BOSS}%{BOSS_PASSWORD}")
    } else {
        format!("{}%{}", node.told("smb_user"), node.told("smb_password"))
    }
}

fn address(node: &Node) -> (String, String) {
    let address = node.told("smb_address");
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "445"));
    (host.to_string(), port.to_string())
}

fn rpcclient(node: &Node, boss: bool, question: &str) -> Result<Finished> {
    let (host, port) = address(node);
    let mut client = command("rpcclient");
    client.args(["-p", &port, "-U", &login(node, boss), &host, "-c", question]);
    run_program(LIMIT, &client)
}

/// What people browse: the shares, but for those that are hidden.
fn lists(node: &Node) -> Result {
    let (host, port) = address(node);
    for boss in [false, true] {
        let mut client = command("smbclient");
        client.args(["-p", &port, "-U", &login(node, boss), "-L", &format!("//{host}/")]);
        let said = run_program(LIMIT, &client)?.ok("smbclient -L")?;
        ensure(said.contains("vmstore") && said.contains("IPC$"), || format!("no shares listed:\n{said}"))?;
        ensure(!said.contains("hideout"), || format!("a hidden share is listed:\n{said}"))?;
    }
    Ok(())
}

fn questions(node: &Node) -> Result {
    for (question, wanted, everybody) in QUESTIONS {
        for boss in [true, false] {
            let Finished { status, output, errors } = rpcclient(node, boss, question)?;
            let said = format!("{output}{errors}");
            let told = status.success() && wanted.iter().all(|part| said.contains(part));
            let refused = said.contains("ACCESS_DENIED");
            let right = if boss || everybody { told && !refused } else { refused };
            ensure(right, || format!("rpcclient {question} (administrator: {boss}): {status}\n{said}"))?;
        }
    }
    // With keys of its own inside the pipe, signed and sealed.
    let (host, port) = address(node);
    for protection in ["sign", "seal", "connect"] {
        let mut client = command("rpcclient");
        let binding = format!("ncacn_np:{host}[{protection}]");
        client.args(["-p", &port, "-U", &login(node, true), &binding, "-c", "enumdomusers"]);
        let said = run_program(LIMIT, &client)?.ok(&format!("rpcclient {binding}"))?;
        ensure(said.contains("rid:[0x3e8]"), || format!("rpcclient {binding}:\n{said}"))?;
    }
    Ok(())
}

/// A share that is made from afar is as any other: it is in the configuration, outlives the node, and can be removed.
fn changes(node: &mut Node) -> Result {
    let refused = |node: &Node, boss, question: &str, why: &str| {
        let said = rpcclient(node, boss, question)?;
        let all = format!("{}{}", said.output, said.errors);
        ensure(all.contains(why), || format!("{question}: not refused with {why} but:\n{all}"))
    };
    let add = "netshareadd C:/vm/shares/vmstore afar";
    refused(node, false, add, "WERR_ACCESS_DENIED")?;
    refused(node, true, "netshareadd C:/vm/nowhere afar", "WERR_NERR_UNKNOWNDEVDIR")?;
    refused(node, true, "netshareadd C:/vm/shares/vmstore afar 5", "WERR_NOT_SUPPORTED")?;
    let shares = |node: &Node| node.cli(&["share", "list"]);
    ensure(!shares(node)?.contains("afar"), || "a refused share is there".to_string())?;

    let said = rpcclient(node, true, add)?.ok(add)?;
    ensure(!said.contains("WERR"), || format!("{add}:\n{said}"))?;
    refused(node, true, add, "WERR_NERR_DUPLICATESHARE")?;
    refused(node, false, "netsharedel afar", "WERR_ACCESS_DENIED")?;
    refused(node, false, "netsharesetinfo afar mine", "WERR_ACCESS_DENIED")?;
    let said = rpcclient(node, true, "netsharesetinfo afar a-remark")?.ok("netsharesetinfo")?;
    ensure(!said.contains("WERR"), || format!("netsharesetinfo:\n{said}"))?;
    recorded(node)?;
    node.crash_and_restart()?;
    let said = rpcclient(node, true, "netsharegetinfo afar 502")?.ok("netsharegetinfo")?;
    for wanted in ["a-remark", "S-1-1-0", "0x1200a9"] {
        ensure(said.contains(wanted), || format!("after a restart no {wanted} in:\n{said}"))?;
    }
    let said = rpcclient(node, true, "netsharedel afar")?.ok("netsharedel")?;
    ensure(!said.contains("WERR"), || format!("netsharedel:\n{said}"))?;
    ensure(!shares(node)?.contains("afar"), || "a removed share is there".to_string())
}

/// The record of changes has them like any others: who, from where, what was before and after, and why one was refused.
fn recorded(node: &Node) -> Result {
    let record = node.json(&["audit"])?;
    let entries = record["items"].as_array().cloned().unwrap_or_default();
    let by_boss = |entry: &&Value| {
        entry["who"] == format!("user {BOSS}")
            && entry["from"].as_str().is_some_and(|from| from.starts_with("smb 127.0.0.1:"))
            && entry["object"] == "share afar"
    };
    let find = |operation: &str, result: &str| {
        let of = |entry: &&Value| entry["operation"] == operation && entry["result"] == result;
        let found = entries.iter().filter(by_boss).find(of);
        found.ok_or_else(|| format!("no {operation}, {result}, in {record}"))
    };
    let wanted = [("share_create", "folder", "/shares/vmstore"), ("share_update", "comment", "a-remark")];
    for (operation, field, value) in wanted {
        let changes = find(operation, "done")?["changes"].as_array().cloned().unwrap_or_default();
        ensure(changes.iter().any(|change| change["field"] == field && change["new"] == value), || {
            format!("{operation} tells {changes:?}")
        })?;
    }
    let refused = find("share_create", "already-exists")?;
    ensure(!refused["reason"].as_str().unwrap_or_default().is_empty(), || format!("no reason: {refused}"))
}

fn torture(node: &Node) -> Result {
    let (host, port) = address(node);
    let mut suite = command("smbtorture");
    suite.args(["--format=subunit", "-p", &port, "-U", &login(node, true)]);
    suite.args([&format!("ncacn_np:{host}[smb2]"), "rpc.srvsvc"]);
    let said = run_program(LIMIT, &suite)?;
    let results = |word: &str| -> Vec<String> {
        let of = said.output.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(": "));
        of.map(|line| line.trim_end_matches(" [").to_string()).collect()
    };
    let is_known = |test: &&String| {
        NOT_PASSED.iter().any(|(name, _)| test.ends_with(&format!(".{name}")) || test.contains(name))
    };
    let failed: Vec<String> = [results("failure"), results("error")].concat();
    let surprises: Vec<&String> = failed.iter().filter(|test| !is_known(test)).collect();
    ensure(surprises.is_empty(), || format!("rpc.srvsvc: {surprises:?} failed:\n{}", said.output))?;
    let passed = results("success").len();
    crate::note!("     rpc.srvsvc: {passed} passed, {} failed as known", failed.len());
    ensure(passed >= 10, || format!("only {passed} tests of rpc.srvsvc passed:\n{}", said.output))
}
