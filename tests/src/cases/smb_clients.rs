//! smbclient on the demo's share: every version of the protocol, signed and encrypted, and errors as people meet them. All
//! of it is captured, and tshark must find no malformed frame of ours.

use std::path::Path;
use std::time::Duration;

use super::Context;
use super::smb_capture::Capture;
use crate::node::{Node, Options};
use crate::process::{Finished, command, need, need_root, run as run_program};
use crate::{Result, ensure};

/// One run of smbclient.
const LIMIT: Duration = Duration::from_secs(60);
/// SMB's own port.
const PORT: u16 = 445;
/// Bytes of the file that goes there and back: more than one message of any version.
const SIZE: usize = 9 << 20;

pub(super) fn run(context: &Context) -> Result {
    need("smbclient", "smbclient")?;
    need("smbcacls", "smbclient")?;
    need("tshark", "tshark")?;
    need("dumpcap", "tshark")?;
    need_root("capturing packets")?;
    // The dissector knows packets of more than 128 KiB on SMB's own port only; an address of our own has it free.
    let smb = Some(format!("127.0.44.5:{PORT}"));
    let mut node = Node::start(&context.folder, Options { smb, ..Options::default() })?;
    let capture = Capture::start(&context.folder, PORT)?;

    let sent = context.folder.join("sent");
    std::fs::write(
        &sent,
        (0..SIZE).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>(),
    )?;
    for version in ["SMB2_02", "SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11"] {
        there_and_back(context, &node, &sent, &["-m", version])?;
    }
    there_and_back(context, &node, &sent, &["--client-protection=encrypt"])?;
    hard_links(context, &node, &sent)?;
    descriptors(&node, &sent)?;
    errors(&mut node, &sent)?;

    capture.finish(200)?;
    node.finish()
}

/// smbclient with these options and commands, as the demo's user.
fn smbclient(node: &Node, password: Option<&str>, options: &[&str], commands: &str) -> Result<Finished> {
    let address = node.told("smb_address");
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "445"));
    let told = node.told("smb_password");
    let mut client = command("smbclient");
    client.args(["-p", port, "-U", &format!("{}%{}", node.told("smb_user"), password.unwrap_or(&told))]);
    client.args(options).arg(format!("//{host}/{}", node.told("smb_share"))).args(["-c", commands]);
    run_program(LIMIT, &client)
}

fn there_and_back(context: &Context, node: &Node, sent: &Path, options: &[&str]) -> Result {
    let got = context.folder.join("got");
    let _ = std::fs::remove_file(&got);
    let commands = format!(
        "mkdir \"a folder ü\"; cd \"a folder ü\"; put {sent} one.vhdx; rename one.vhdx Two.VHDX; ls; get two.vhdx {got}; \
         del two.vhdx; cd ..; rmdir \"a folder ü\"; ls",
        sent = sent.display(),
        got = got.display()
    );
    let what = format!("smbclient {}", options.join(" "));
    let said = smbclient(node, None, options, &commands)?.ok(&what)?;
    ensure(!said.contains("NT_STATUS"), || format!("{what} was refused something:\n{said}"))?;
    ensure(said.contains("Two.VHDX"), || format!("{what}: the name did not keep its case:\n{said}"))?;
    ensure(std::fs::read(sent)? == std::fs::read(&got)?, || format!("{what}: the file came back changed"))
}

/// A file has two more names, and is all there under the last that is left.
fn hard_links(context: &Context, node: &Node, sent: &Path) -> Result {
    let got = context.folder.join("linked");
    let commands = format!(
        "mkdir links; put {sent} first; hardlink first second; hardlink second links\\third; del first; del second; \
         cd links; get third {got}; del third; cd ..; rmdir links",
        sent = sent.display(),
        got = got.display()
    );
    let said = smbclient(node, None, &[], &commands)?.ok("smbclient hardlink")?;
    ensure(!said.contains("NT_STATUS"), || format!("hard links: {said}"))?;
    ensure(std::fs::read(got)? == std::fs::read(sent)?, || "the linked file has other content".into())
}

/// Samba's tool reads a file's list of permissions, replaces it, and takes an entry out again: it writes lists of a revision that Windows never does.
fn descriptors(node: &Node, sent: &Path) -> Result {
    smbclient(node, None, &[], &format!("put {} listed", sent.display()))?.ok("put")?;
    let user = node.told("smb_user");
    let own = format!("ACL:{user}:ALLOWED/0x0/FULL");
    let everyone = "ACL:Everyone:ALLOWED/0x0/READ";
    smbcacls(node, &["-S", &format!("{own},{everyone}")])?.ok("smbcacls -S")?;
    let listed = smbcacls(node, &[])?.ok("smbcacls")?;
    ensure(listed.contains(everyone) && listed.contains("FULL"), || format!("not what was set:\n{listed}"))?;
    smbcacls(node, &["-a", "ACL:Users:ALLOWED/0x0/READ"])?.ok("smbcacls --add")?;
    smbcacls(node, &["-D", everyone])?.ok("smbcacls --delete")?;
    let listed = smbcacls(node, &[])?.ok("smbcacls")?;
    ensure(!listed.contains("Everyone") && listed.contains("Users"), || format!("not deleted:\n{listed}"))?;
    smbcacls(node, &["-I", "remove"])?.ok("smbcacls -I remove")?;
    smbclient(node, None, &[], "del listed")?.ok("del").map(drop)
}

/// smbcacls on that file, as the demo's user.
fn smbcacls(node: &Node, arguments: &[&str]) -> Result<Finished> {
    let address = node.told("smb_address");
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "445"));
    let mut client = command("smbcacls");
    client.args([&format!("--option=smb ports={port}"), "-U"]);
    client.arg(format!("{}%{}", node.told("smb_user"), node.told("smb_password"))).args(arguments);
    client.arg(format!("//{host}/{}", node.told("smb_share"))).arg("listed");
    run_program(LIMIT, &client)
}

/// What goes wrong is told rightly to the client, and with its reason in the server's log.
fn errors(node: &mut Node, sent: &Path) -> Result {
    node.expect_log("SMB login refused");
    let refused = |said: &Finished, status: &str| {
        let all = format!("{}\n{}", said.output, said.errors);
        ensure(all.contains(status), || format!("not refused with {status} but:\n{all}"))
    };
    refused(&smbclient(node, Some("wrong"), &[], "ls")?, "NT_STATUS_LOGON_FAILURE")?;
    refused(&smbclient(node, None, &[], "cd nowhere")?, "NT_STATUS_OBJECT_NAME_NOT_FOUND")?;
    let long = "x".repeat(256);
    let put = format!("put {} {long}", sent.display());
    refused(&smbclient(node, None, &[], &put)?, "NT_STATUS_OBJECT_NAME_INVALID")?;
    node.expect_log("SMB 1");
    let old = smbclient(node, None, &["-m", "NT1", "--option=client min protocol=NT1"], "ls")?;
    refused(&old, "protocol negotiation failed")?;
    Ok(())
}
