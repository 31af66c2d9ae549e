//! What people may say to the opening of a pool.

/// What people have said to the opening of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenTold {
    /// Newer changes may be elsewhere, and are given up.
    pub accept_loss: bool,
    /// It is this node's from now on, although another one has not let go of it.
    pub take_over: bool,
    /// Whoever had it last is off for certain, as nothing keeps it from the disks.
    pub accept_unfenced: bool,
}
