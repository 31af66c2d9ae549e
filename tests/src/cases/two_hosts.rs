//! Two hosts with CHAP and masking at one target: neither sees, ends or fences the other's, whatever name it gives itself.
//! Here with libiscsi, which chooses the ISID; the case `multipath` has the kernel's initiator do it (tests/guest/two_hosts.sh).

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::reservations::Tool;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, Running, command};
use crate::{Outcome, Result, ensure};

const TARGET: &str = "iqn.2000-01.test.target:two-hosts";
/// The node has to notice a change and end a session; on a busy machine that takes its time.
const LIMIT: Duration = Duration::from_secs(60);

/// User and secret of a host; its initiator's number is its `who` (see tests/tools/iscsi_pr.c).
struct Host {
    who: &'static str,
    user: &'static str,
    secret: &'static str,
}

const A: Host = Host { who: "1", user: "alice", secret: "the secret of alice" };
const B: Host = Host { who: "2", user: "bob", secret: "the secret of bob" };

impl Host {
    fn initiator(&self) -> String {
        format!("iqn.2000-01.test.initiator:{}", self.who)
    }

    /// Blanks are not for a URL.
    fn secret(&self) -> String {
        self.secret.replace(' ', "_")
    }
}

/// A session that goes on until it is told to end.
struct Watch {
    process: Running,
    end: PathBuf,
}

impl Watch {
    fn start(context: &Context, tool: &Tool, who: &str, host: &Host) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let end = context.folder.join(format!("end-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut watch = command(&tool.binary);
        watch.args([&tool.url, who, "watch"]).arg(&end);
        let process = Running::start("iscsi_pr", watch, &context.folder.join("watch.log"))?;
        let mut watch = Self { process, end };
        let said = watch.says()?;
        ensure(said == "WATCHING", || format!("{} cannot log in: {said}", host.user))?;
        Ok(watch)
    }

    fn says(&mut self) -> Result<String> {
        Ok(self.process.line(Deadline::after(LIMIT))?.unwrap_or_default())
    }

    /// What became of the session: GOOD or LOST.
    fn finish(mut self) -> Result<String> {
        std::fs::write(&self.end, "")?;
        self.says()
    }
}

/// The two hosts' tools, and what each may do.
struct Pair<'a> {
    context: &'a Context,
    portal: String,
    binary: PathBuf,
}

impl Pair<'_> {
    /// The tool as a user, at the LUN with number 0.
    fn tool(&self, host: &Host) -> Tool {
        let secret = host.secret();
        let url = format!("iscsi://{}%{secret}@{}/{TARGET}/0", host.user, self.portal);
        Tool { binary: self.binary.clone(), url }
    }

    fn refused(&self, who: &str, host: &Host, words: &[&str]) -> Result {
        match self.tool(host).ask(who, words) {
            Err(_) => Ok(()),
            Ok(said) => Err(Outcome::Fail(format!(
                "{} is let in as initiator {who}, and is answered {said:?} to {words:?}",
                host.user
            ))),
        }
    }
}

fn secret_file(context: &Context, host: &Host) -> Result<String> {
    let file = context.folder.join(host.user);
    std::fs::write(&file, host.secret())?;
    Ok(file.to_string_lossy().into_owned())
}

/// What the guest's script wants to know of the two.
pub(super) fn guest_env() -> Vec<(&'static str, String)> {
    vec![
        ("HOSTS_IQN", TARGET.into()),
        ("A_NAME", A.initiator()),
        ("A_USER", A.user.into()),
        ("A_SECRET", A.secret()),
        ("B_NAME", B.initiator()),
        ("B_USER", B.user.into()),
        ("B_SECRET", B.secret()),
    ]
}

/// One target with a disk for each host, both with the number 0, and another one for the first.
pub(super) fn set_up(context: &Context, node: &Node) -> Result {
    let volume = node.told("volume");
    for host in [&A, &B] {
        node.cli(&["initiator-group", "create", host.user, &host.initiator()])?;
    }
    let (a, b) = (secret_file(context, &A)?, secret_file(context, &B)?);
    let user = ["--chap-user", A.user, "--chap-secret-file", &a, "--chap-group", A.user];
    node.cli(&[&["target", "create", TARGET][..], &user].concat())?;
    node.cli(&["target", "set-user", TARGET, B.user, "--secret-file", &b, "--group", B.user])?;
    for (host, number) in [(&A, "0"), (&A, "1"), (&B, "0")] {
        let disk = format!("disk-{number}-of-{}", host.user);
        let place = ["--volume", &volume, "--size", "64MiB", "--target", TARGET, "--number", number];
        node.cli(&[&["lun", "create", &disk, "--group", host.user][..], &place].concat())?;
    }
    Ok(())
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    let mut server = Server::start(context, Options::default())?;
    let portal = server.portal().to_owned();
    let binary = Tool::build(context, server.url())?.binary;
    let Some(node) = server.node() else { return server.finish() };
    set_up(context, node)?;
    let pair = Pair { context, portal, binary };
    let (a, b) = (pair.tool(&A), pair.tool(&B));

    // The first host has a session and a reservation, as a member of a cluster does.
    a.expect(A.who, &["register", "0xabc1", "aptpl"], "GOOD")?;
    a.expect(A.who, &["reserve", "0xabc1", "3"], "GOOD")?;
    let watch = Watch::start(pair.context, &a, A.who, &A)?;

    // The second gives itself the first one's name and ISID, with its own secret and with a guessed one.
    pair.refused(A.who, &B, &["read"])?;
    pair.refused(A.who, &B, &["preempt", "0xabc1", "0xabc1", "3"])?;
    pair.refused(A.who, &Host { secret: "a guess of twelve", ..A }, &["clear", "0xabc1"])?;
    pair.refused(B.who, &A, &["read"])?;

    // As itself it has its own disk under the same number, and takes nothing of the other's.
    b.expect(B.who, &["luns"], "0")?;
    b.expect(B.who, &["holder"], "none")?;
    b.expect(B.who, &["register", "0xabc2", "aptpl"], "GOOD")?;
    b.expect(B.who, &["keys"], "0xabc2")?;
    b.expect(B.who, &["write"], "GOOD")?;
    let reset = b.ask(B.who, &["cold-reset"])?;
    ensure(reset != "0", || "a cold reset is carried out for one of two hosts".into())?;
    ensure(watch.finish()? == "GOOD", || "the first host's session was ended".into())?;
    a.expect(A.who, &["holder"], "0xabc1 type 3")?;
    a.expect(A.who, &["keys"], "0xabc1")?;

    // Discovery: by its name alone a host is told of the target; where it has to prove itself, only as itself.
    let open = node.ready().iqn.clone(); // without CHAP, for everyone
    node.cli(&["target", "discovery", "--chap", "on"])?;
    a.expect(A.who, &["targets"], &format!("{TARGET}\n{open}\nEND"))?;
    pair.refused(A.who, &B, &["targets"])?;
    let nobody = Tool { url: format!("iscsi://{}/{TARGET}/0", pair.portal), ..pair.tool(&A) };
    ensure(nobody.ask(A.who, &["targets"]).is_err(), || "discovery asks for no proof".into())?;

    // A user that is taken away is out at once; the other one notices nothing.
    let (mut lost, stays) = (Watch::start(context, &b, B.who, &B)?, Watch::start(context, &a, A.who, &A)?);
    node.cli(&["target", "remove-user", TARGET, B.user])?;
    let said = lost.says()?;
    ensure(said == "LOST", || format!("the session of a user that is gone goes on: {said}"))?;
    pair.refused(B.who, &B, &["read"])?;
    ensure(stays.finish()? == "GOOD", || "the session of another user was ended".into())?;
    server.finish()
}
