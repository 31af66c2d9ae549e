//! A pool on an image of a real Ceph: dm-multipath in the guest verifies its data on it while an OSD is killed and comes back, and then the
//! node that owns the pool is killed. No request of the guest fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Context;
use super::cluster::{Member, TARGET, map_lun, owner_of, start};
use crate::guest::{Guest, Setup, cache, home};
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// Where the monitor listens: no other case's address.
const CEPH: &str = "127.0.79.1";
const OSDS: &str = "2";
/// Monitor, manager and OSDs are made and started one after the other.
const CEPH_IS_UP: Duration = Duration::from_secs(300);
/// A command for it.
const VERB: Duration = Duration::from_secs(90);
/// What happens, in this order.
const EVENTS: [&str; 3] = ["osd-killed", "osd-back", "owner-killed"];

/// A Ceph of one monitor, one manager and two OSDs, which ends with this.
struct Ceph {
    folder: PathBuf,
}

impl Ceph {
    fn start(folder: PathBuf) -> Result<Self> {
        for program in ["ceph-mon", "ceph-mgr", "ceph-osd"] {
            need(program, program)?;
        }
        need("rbd", "ceph-common")?;
        let ceph = Self { folder };
        ceph.up("up", &[OSDS, "bluestore", CEPH], CEPH_IS_UP)?;
        Ok(ceph)
    }

    fn up(&self, verb: &str, more: &[&str], limit: Duration) -> Result {
        let mut script = command(home().join("tools/ceph/ceph-up.sh"));
        script.arg(verb).arg(&self.folder).args(more);
        run_program(limit, &script)?.ok(&format!("ceph-up.sh {verb}")).map(drop)
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut asked = command(program);
        asked.arg("-c").arg(self.conf()).args(arguments);
        run_program(VERB, &asked)?.ok(&arguments.join(" "))
    }

    fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// A new image, as the address of a disk.
    fn image(&self, name: &str) -> Result<PathBuf> {
        self.ask("rbd", &["create", &format!("rbd/{name}"), "--size", "4G"])?;
        Ok(format!("rbd:rbd/{name}?conf={}", self.conf().display()).into())
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        let _ = self.up("down", &[], VERB);
    }
}

/// A volume in a pool of one image, which Ceph keeps two copies of, and a LUN for everybody.
fn make(first: &Member, image: &Path) -> Result {
    first.ask(&["pool", "create", "p", "--yes", &image.display().to_string()])?;
    first.ask(&["volume", "create", "v", "--pool", "p", "--size", "2G", "--resiliency", "simple"])?;
    map_lun(first)
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("etcd", "etcd-server")?;
    let ceph = Ceph::start(context.folder.join("ceph"))?;
    let image = ceph.image("disk1")?;
    let (_etcd, mut nodes) = start(context, std::slice::from_ref(&image))?;
    make(&nodes[0], &image)?;
    nodes[0].wait_for_owner("p", |owner| owner == "n1")?;

    let portals = ["10.0.2.101:3260", "10.0.2.102:3260"];
    let busybox = cache().join("busybox");
    let forward = |(portal, node): (&&str, &Member)| {
        let (ip, port) = node.portal().split_once(':').unwrap_or_default();
        format!(",guestfwd=tcp:{portal}-cmd:{} nc {ip} {port}", busybox.display())
    };
    let forwards: String = portals.iter().zip(&nodes).map(forward).collect();
    let setup = Setup {
        script: "alua.sh",
        env: vec![("IQN", TARGET.into()), ("PORTALS", portals.join(" ")), ("EVENTS", EVENTS.join(" "))],
        options: vec!["--net".into(), format!("user{forwards}")],
        net: None,
        limit: Duration::from_secs(1200),
    };
    let mut guest = Guest::start(&context.folder, setup)?;
    guest.wait_for("READY")?;

    ceph.up("kill", &["osd.1"], VERB)?;
    guest.tell(EVENTS[0])?;
    guest.wait_for("THROUGH-osd-killed")?;
    ceph.up("start", &["osd.1"], VERB)?;
    guest.tell(EVENTS[1])?;
    guest.wait_for("THROUGH-osd-back")?;

    nodes[0].kill()?;
    let taken = nodes[1].wait_for_owner("p", |owner| owner != "n1" && !owner.is_empty())?;
    guest.tell(EVENTS[2])?;
    guest.wait_for("THROUGH-owner-killed")?;
    // Its former owner was shut out by Ceph, and is no danger when it is back.
    let blocked = ceph.ask("ceph", &["osd", "blocklist", "ls"])?;
    ensure(blocked.contains("127."), || format!("nobody is on the blocklist: {blocked}"))?;
    nodes[0].start()?;
    let said = guest.finish()?;
    ensure(said.contains("ALUA "), || format!("the guest did not come to its end:\n{said}"))?;
    ensure(owner_of(&mut nodes, &taken)?.pool("p")?.0 == taken, || "the pool has moved once more".into())?;
    nodes.iter_mut().try_for_each(Member::stop)
}
