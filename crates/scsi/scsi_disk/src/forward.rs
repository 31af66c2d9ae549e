//! Units that another node serves: what brings commands there, for whoever has one.

use std::sync::Arc;

use scsi_core::{
    Nexus, ScsiCommand, ScsiFuture, ScsiResponse, TaskManagement, TaskManagementOutcome, WireLun,
};

/// Where a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node that serves it.
    pub node: u16,
    /// The number under which the initiator sees it.
    pub lun: WireLun,
    /// Its identity: numbers may be given anew.
    pub unit: [u8; 16],
}

/// What became of a command that was sent to another node.
#[derive(Debug)]
pub enum Brought {
    /// It has ended there; `None` when it was aborted and must not be answered.
    Ended(Option<ScsiResponse>),
    /// It was not begun anywhere; it may be tried again, as long as it is not too old.
    NotBegun,
    /// It was not begun anywhere, and must not be tried again: nobody knows how old it is, or in which life of this node it came.
    Stale,
    /// It may have been done, or not.
    Unknown,
}

/// Brings commands to other nodes.
///
/// A future of [`Forward::execute`] that is dropped takes its command back: whoever has it does not begin it any more, or ends it as if its
/// own transport had dropped it. [`Forward::settled`] ends when that is so of all commands that were dropped before.
pub trait Forward: Send + Sync + 'static {
    /// A nexus came into being at this node.
    fn nexus_established(&self, nexus: &Arc<Nexus>);
    /// It is gone, also from wherever commands of it were brought.
    fn nexus_lost(&self, nexus: &Arc<Nexus>);
    /// Nanoseconds on a clock that never goes back and goes on while the machine sleeps.
    fn now(&self) -> u64;
    /// Has a command carried out that arrived from its initiator at this time.
    fn execute<'a>(
        &'a self,
        to: Place,
        nexus: &'a Arc<Nexus>,
        command: ScsiCommand,
        arrived: u64,
    ) -> ScsiFuture<'a, Brought>;
    /// Has a task management function carried out; `None` when nobody knows whether it was.
    fn task_management<'a>(
        &'a self,
        to: Place,
        nexus: &'a Arc<Nexus>,
        function: TaskManagement,
    ) -> ScsiFuture<'a, Option<TaskManagementOutcome>>;
    /// Ends when nothing that was dropped here is begun anywhere any more.
    fn settled(&self) -> ScsiFuture<'_, ()>;
}
