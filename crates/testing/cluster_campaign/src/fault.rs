//! Which faults there are, and the ways between what they may cut.

use crate::life::Time;

/// One end of a way that can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Node(usize),
    Disk(usize),
    Store,
    Clients,
}

pub(crate) enum Fault {
    /// The next one of the seed's choice.
    Any,
    /// A process begins on a node, if none runs.
    Start(usize),
    GoOn(usize, u64),
    /// The supervisor of this life says that its process is gone.
    Supervisor(usize, u64),
    Cut(End, End),
    Mend(End, End),
    Stall(Time),
    Isolate(usize, Time),
    FairWeather,
    Mode(usize, bool, bool),
    /// An owner is deposed with requests under way.
    Depose,
    /// Nodes are as quick as ever.
    Quick,
}
