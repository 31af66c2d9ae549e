//! Quotas of users: set by the command line and by smbcquotas, refused at the limit, told to who asks, counted again after a kill.

use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::node::{Node, Options};
use crate::process::{Deadline, Finished, command, need, need_root, run as run_program};
use crate::{Outcome, Result, ensure};

/// One run of a client.
const LIMIT: Duration = Duration::from_secs(30);
/// An address of our own: smbcquotas knows SMB's own port only.
const ADDRESS: &str = "127.0.44.7";
const PASSWORD: &str = "Secret-of-quotas-1";
const SHARE: &str = "depot";
const MIB: u64 = 1 << 20;

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("smbclient", "smbclient")?;
    need("smbcquotas", "smbclient")?;
    need_root("serving SMB on its own port")?;
    let smb = Some(format!("{ADDRESS}:445"));
    let mut node = Node::start(&context.folder, Options { smb, ..Options::default() })?;
    // Who is refused space is told of in the log, by a quota or not.
    node.expect_log("SMB write refused: no space");
    let secret = format!("{PASSWORD}\n");
    node.cli_with(&["user", "create", "boss", "--group", "Administrators", "--password-stdin"], &secret)?;
    for user in ["bob", "ann"] {
        node.cli_with(&["user", "create", user, "--password-stdin"], &secret)?;
    }
    node.cli(&["share", "create", SHARE, "--full", "boss", "--full", "bob", "--full", "ann"])?;
    let volume = node.told("volume");
    let sent = context.folder.join("sent");
    std::fs::write(&sent, vec![7; 4 << 20])?;
    let put = |user: &str, name: &str| client(user, &format!("put {} {name}", sent.display()));

    put("bob", "before")?.ok("put")?;
    node.cli(&[
        "volume",
        "quota",
        &volume,
        "--mode",
        "enforce",
        "--default-limit",
        "10M",
        "--default-warning",
        "6M",
    ])?;
    counted(&node, &volume)?;
    ensure(used(&node, &volume, "bob")? == 4 * MIB, || "what was there is not counted".into())?;
    put("bob", "second")?.ok("put")?;
    refused(&put("bob", "third")?)?;
    ensure(used(&node, &volume, "bob")? <= 10 * MIB, || "more than the limit".into())?;
    put("ann", "hers")?.ok("another user")?;
    let said = client("bob", "rm third; du")?.ok("du")?;
    // 10 MiB in all and 2 MiB free, in units of 64 KiB.
    ensure(said.contains("160 blocks of size 65536. 32 blocks available"), || {
        format!("bob is told of other space than his:\n{said}")
    })?;

    over_smb(&node, &volume)?;
    put("bob", "third")?.ok("put below the new limit")?;
    let listed = node.json(&["volume", "quota", "list", &volume])?;
    let owner = |at: usize| listed["owners"][at]["owner"].as_str().unwrap_or_default().to_owned();
    // 12 of 20 MiB, 4 of 10, and who has no limit.
    ensure(owner(0) == "bob" && owner(1) == "ann", || format!("not by what hurts most: {listed}"))?;

    // What is not given stays; what would let nobody write, or hold for nobody, is refused.
    node.cli(&["volume", "quota", "set", &volume, "bob", "--warning", "18M"])?;
    let bob = find(&node.json(&["volume", "quota", "list", &volume])?, "bob");
    ensure(bob["limit_bytes"] == 20 * MIB && bob["warning_bytes"] == 18 * MIB, || format!("bob has {bob}"))?;
    for (user, limit, code) in [("bob", "0", 2), ("", "1M", 2), ("Administrators", "1M", 1)] {
        let socket = node.told("api_socket");
        let asked =
            node.offline(&["--node", &socket, "volume", "quota", "set", &volume, user, "--limit", limit])?;
        ensure(asked.status.code() == Some(code), || format!("{user:?}, {limit}: {}", asked.errors))?;
    }

    node.crash_and_restart()?;
    counted(&node, &volume)?;
    for (user, wanted) in [("bob", 12 * MIB), ("ann", 4 * MIB)] {
        let found = used(&node, &volume, user)?;
        ensure(found == wanted, || format!("{user} has {found} bytes after a kill, {wanted} before"))?;
    }
    put("bob", "fourth")?.ok("put")?;
    put("bob", "fifth")?.ok("put up to the limit")?;
    refused(&put("bob", "sixth")?)?;
    node.cli(&["volume", "quota", "set", &volume, "bob", "--default"])?;
    node.cli(&["volume", "quota", &volume, "--mode", "off"])?;
    put("bob", "seventh")?.ok("put without quotas")?;
    node.finish()
}

fn said(finished: &Finished) -> String {
    format!("{}{}", finished.output, finished.errors)
}

fn refused(finished: &Finished) -> Result {
    let said = said(finished);
    ensure(said.contains("NT_STATUS_DISK_FULL"), || format!("not refused as a full disk:\n{said}"))
}

fn client(user: &str, commands: &str) -> Result<Finished> {
    let mut client = command("smbclient");
    client.args(["-U", &format!("{user}%{PASSWORD}"), &format!("//{ADDRESS}/{SHARE}"), "-c", commands]);
    run_program(LIMIT, &client)
}

fn smbcquotas(user: &str, arguments: &[&str]) -> Result<Finished> {
    let mut client = command("smbcquotas");
    client.args(["-U", &format!("{user}%{PASSWORD}")]).args(arguments).arg(format!("//{ADDRESS}/{SHARE}"));
    run_program(LIMIT, &client)
}

/// An administrator lists and sets; who is none sees what is his, and sets nothing.
fn over_smb(node: &Node, volume: &str) -> Result {
    let listed = smbcquotas("boss", &["-L"])?.ok("smbcquotas -L")?;
    ensure(listed.contains("bob") && listed.contains("ann"), || format!("users are missing:\n{listed}"))?;
    smbcquotas("boss", &["-S", &format!("UQLIM:bob:{}/{}", 19 * MIB, 20 * MIB)])?.ok("smbcquotas -S")?;
    let quotas = node.json(&["volume", "quota", "list", volume])?;
    let bob = find(&quotas, "bob");
    ensure(bob["limit_bytes"] == 20 * MIB && bob["own_limits"] == true, || format!("not set: {quotas}"))?;
    // What the command line refuses, too: a group's quota, and a warning that would never be given.
    for wrong in ["UQLIM:Users:1048576/2097152", "UQLIM:bob:2097152/1048576"] {
        let refused = said(&smbcquotas("boss", &["-S", wrong])?);
        ensure(refused.contains("NT_STATUS_INVALID_PARAMETER"), || format!("{wrong} was set: {refused}"))?;
    }
    ensure(node.json(&["volume", "quota", "list", volume])? == quotas, || {
        "what was refused changed something".into()
    })?;
    let file_system = smbcquotas("boss", &["-F"])?.ok("smbcquotas -F")?;
    ensure(file_system.to_lowercase().contains("deny disk"), || format!("not enforced?\n{file_system}"))?;
    let own = said(&smbcquotas("bob", &["-L"])?);
    ensure(!own.contains("ann"), || format!("bob sees what is not his:\n{own}"))?;
    let set = said(&smbcquotas("bob", &["-S", &format!("UQLIM:bob:{}/{}", 90 * MIB, 90 * MIB)])?);
    ensure(set.contains("NT_STATUS_ACCESS_DENIED"), || format!("bob sets his quota:\n{set}"))?;
    let quotas = node.json(&["volume", "quota", "list", volume])?;
    ensure(find(&quotas, "bob")["limit_bytes"] == 20 * MIB, || format!("bob has set it: {quotas}"))?;
    recorded(node)
}

/// The record of changes has what was set over SMB, and who was refused. It is written beside, so it may take a moment.
fn recorded(node: &Node) -> Result {
    Deadline::after(LIMIT).poll("the record of what was set over SMB", || {
        let record = node.json(&["audit"])?;
        let entries = record["items"].as_array().cloned().unwrap_or_default();
        let of = |who: &str, result: &str| {
            let found = entries.iter().find(|entry| {
                entry["operation"] == "quota_set"
                    && entry["who"] == format!("user {who}")
                    && entry["result"] == result
                    && entry["from"].as_str().is_some_and(|from| from.starts_with("smb 127."))
            });
            found.cloned()
        };
        let (Some(set), Some(wrong), Some(refused)) =
            (of("boss", "done"), of("boss", "invalid-request"), of("bob", "forbidden"))
        else {
            return Ok(None);
        };
        let changes = set["changes"].as_array().cloned().unwrap_or_default();
        let limit = changes.iter().find(|change| change["field"] == "owners[bob].limit_bytes");
        ensure(limit.is_some_and(|limit| limit["new"] == 20 * MIB), || format!("it tells {set}"))?;
        for each in [wrong, refused] {
            let reason = each["reason"].as_str().unwrap_or_default();
            ensure(!reason.is_empty() && each["changes"].is_null(), || format!("it tells {each}"))?;
        }
        Ok(Some(()))
    })
}

fn find(quotas: &Value, name: &str) -> Value {
    let owners = quotas["owners"].as_array().cloned().unwrap_or_default();
    owners.into_iter().find(|owner| owner["owner"] == name).unwrap_or_default()
}

fn used(node: &Node, volume: &str, name: &str) -> Result<u64> {
    let quotas = node.json(&["volume", "quota", "list", volume])?;
    Ok(find(&quotas, name)["used_bytes"].as_u64().unwrap_or_default())
}

fn counted(node: &Node, volume: &str) -> Result {
    Deadline::after(LIMIT).poll("the count of what is on a volume", || {
        let counting = node.json(&["volume", "quota", "list", volume])?["counting"] == true;
        Ok((!counting).then_some(()))
    })
}
