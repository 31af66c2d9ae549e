//! What the node needs of the iSCSI target.

use std::net::SocketAddr;
use std::sync::Arc;

use control_api::{Code, LunReservations, LunWriteCacheNow, PortalInfo, Problem, Session};
use observe::IoTotals;
use qos_gate::{FlowReport, VolumeReport};
use scsi_disk::{Forward, PortGroup, TargetDevice};
use tcp_service::{Listeners, Spawner};
use uuid::Uuid;

use super::{Current, VolumeHandle, Work};

/// Why a LUN is not served from its pool: its file is still open in another one, where it was before.
pub(crate) const HELD_ELSEWHERE: &str = "it has not been let go of yet where it was before";

/// Where the targets of this node are found, by name.
pub type Targets = Arc<dyn Fn(&str) -> Option<Arc<TargetDevice>> + Send + Sync>;

/// Begins to take commands from other nodes, on these shards and for these targets, and gives what brings commands to them.
pub type BeginForwarding = Box<dyn FnOnce(Arc<dyn Spawner>, Targets) -> (Arc<dyn Forward>, Listeners) + Send>;

/// Who serves a LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// This node, as far as the volume is there.
    Here,
    /// The node with this number.
    Node(u16),
    /// Nobody now: its pool is on its way from one node to another.
    Nobody,
}

/// A LUN of a pool, and whether it can be served.
#[derive(Clone)]
pub struct ServedLun {
    /// Its name in the configuration.
    pub name: String,
    /// The volume that its file lies in; none when that is not open.
    pub volume: Option<Arc<dyn VolumeHandle>>,
    /// Its pool is being opened: whoever asks meanwhile is to come again.
    pub comes: bool,
    /// Its pool is let go of: what is known here of its reservations others may change from now on.
    pub leaves: bool,
    /// Who serves it.
    pub served_by: ServedBy,
    /// The target port groups that it is reached through, of all nodes.
    pub groups: Vec<PortGroup>,
}

/// The image that a LUN is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageNow {
    /// Size of the disk in it; 0 while it is not open.
    pub size_bytes: u64,
    /// Why it does nothing now.
    pub problem: Option<String>,
}

/// Memory for write caches that keep writes from the files of LUNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRoom {
    /// Bytes for all of them.
    pub total_bytes: u64,
    /// Bytes that none has put by for itself.
    pub left_bytes: u64,
}

/// A flow, and the volume that its disk is on.
#[derive(Clone, Debug)]
pub struct FlowOn {
    /// The volume's name.
    pub volume: String,
    /// Which of that name, as far as the configuration says it.
    pub guid: Option<Uuid>,
    /// The flow.
    pub report: FlowReport,
}

/// The queue of a volume.
#[derive(Clone, Debug)]
pub struct QueueOf {
    /// The volume's name.
    pub volume: String,
    /// Which of that name, as far as the configuration says it.
    pub guid: Option<Uuid>,
    /// What it can do.
    pub report: VolumeReport,
}

/// iSCSI: targets, logical units, portals, sessions.
///
/// What a pool holds up is served apart from everything else: each pool's LUNs by a call of their own, of which several may be under way at
/// once, for each pool one. A call with an older configuration than one before changes nothing of what initiators see.
pub trait IscsiBackend: Send + Sync + 'static {
    /// Takes from initiators what a configuration takes: they see it no more, and who would not be let in any more is sent away. What it
    /// gives comes with [`Self::apply`].
    fn tighten(&self, config: &Current);
    /// Makes targets, portals, who sees what and queues equal to the configuration. Waits for no volume. Returns what could not be
    /// done, as ("portal 0.0.0.0:3260", "why").
    fn apply<'a>(&'a self, config: &'a Current) -> Work<'a, Vec<(String, String)>>;
    /// Makes what is served of a pool's LUNs equal to the configuration; `luns` are all of those that lie in this pool, or of which
    /// nobody knows in which. Those whose volume isn't there are shown as not ready; those that have been served keep what they know,
    /// and go on when their volume is back. What goes on unchanged is not disturbed. When this ends, nothing of a volume of the pool is held
    /// that is not in `luns`. Returns what could not be done, as ("lun web1", "why").
    fn apply_pool<'a>(
        &'a self,
        config: &'a Current,
        pool: Option<Uuid>,
        luns: Vec<ServedLun>,
    ) -> Work<'a, Vec<(String, String)>>;
    /// Commands for LUNs of other nodes are brought there, and those of others taken, from now on. To be called before anything is served.
    fn join(&self, begin: BeginForwarding) {
        drop(begin);
    }
    /// Discovery tells of these portals of other nodes, too, each with its tag.
    fn set_remote_portals(&self, portals: Vec<(SocketAddr, u16)>) {
        let _ = portals;
    }
    /// Portals and where they listen.
    fn portals(&self) -> Vec<PortalInfo>;
    /// Sessions now.
    fn sessions(&self) -> Vec<Session>;
    /// What initiators have read and written since each LUN was served, by name.
    fn lun_counters(&self) -> Vec<(String, IoTotals)> {
        Vec::new()
    }
    /// Whether each LUN that is served acknowledges writes before they are durable, by name.
    fn write_caches(&self) -> Vec<(String, bool)> {
        Vec::new()
    }
    /// The images that LUNs which are served are made of, by name.
    fn images(&self) -> Vec<(String, ImageNow)> {
        Vec::new()
    }
    /// Write caches that keep writes from the files of LUNs which are served, by name.
    fn caches(&self) -> Vec<(String, LunWriteCacheNow)> {
        Vec::new()
    }
    /// What memory there is for such caches, where that is known.
    fn cache_room(&self) -> Option<CacheRoom> {
        None
    }
    /// Initiators of LUNs that are served here which have not been told yet that writes they had cached may be lost, by the LUN's name.
    fn lost_writes(&self) -> Vec<(String, Vec<String>)> {
        Vec::new()
    }
    /// Forgets those of them that are not connected, or this one, and says whom. It comes to its end, whether or not somebody waits for it.
    fn forget_lost_writes<'a>(&'a self, lun: &'a str, host: Option<String>) -> Work<'a, Vec<String>> {
        let _ = host;
        Box::pin(async move { Err(Problem::new(Code::WrongState, format!("LUN {lun} is not open here."))) })
    }
    /// What initiators have reserved of LUNs that are served here, by name; of those of which nobody has, nothing.
    fn reservations(&self) -> Vec<(String, LunReservations)> {
        Vec::new()
    }
    /// Ends what initiators have reserved of a LUN, and says what that was. Whoever was registered is told. It comes to its end, whether
    /// or not somebody waits for it.
    fn clear_reservations<'a>(&'a self, lun: &'a str) -> Work<'a, LunReservations> {
        Box::pin(async move { Err(Problem::new(Code::WrongState, format!("LUN {lun} is not open here."))) })
    }
    /// Gives the disk in a LUN's image another size.
    fn resize_image<'a>(&'a self, lun: &'a str, size: u64) -> Work<'a, ()> {
        let _ = size;
        Box::pin(async move {
            Err(Problem::new(Code::WrongState, format!("The image of LUN {lun} is not open here.")))
        })
    }
    /// Holds the images of these LUNs, of those that are open here: nothing of them is read or written, and their files are whole
    /// without a log, until what this gives is dropped.
    fn hold_images(&self, luns: Vec<String>) -> Work<'_, Vec<vhdx::Held>> {
        let _ = luns;
        Box::pin(async { Ok(Vec::new()) })
    }
    /// What initiators do with LUNs now, and clients with files: they wait in the same queues.
    fn flows(&self) -> Vec<FlowOn> {
        Vec::new()
    }
    /// What the volumes of LUNs and shares can do.
    fn queues(&self) -> Vec<QueueOf> {
        Vec::new()
    }
    /// Ends a session; says whether it was there.
    fn end_session(&self, id: u64) -> Work<'_, bool>;
    /// Takes no more commands, lets those under way end, ends sessions.
    fn stop(&self) -> Work<'_, ()>;
    /// The live state, for diagnosis.
    fn inspect(&self) -> serde_json::Value;
}
