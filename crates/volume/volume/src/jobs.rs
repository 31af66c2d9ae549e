//! What a job of the metadata thread needs of what was changed before it, and when it is answered.

/// When a job is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When it is done, unless it may have seen what somebody waits for to become durable.
    Look,
    /// When it is done: it becomes durable with what comes after it.
    Made,
    /// When it is durable, and all that was changed before it.
    Durable,
}

/// What a job needs of what was changed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing, and the job changes nothing.
    Look,
    /// Nothing: it may be in the metadata log only.
    Any,
    /// As [`Before::Any`], and it looks at no rows of maps: those that others have put there need not be there yet.
    Maps,
    /// That it takes little of the room in the database: the job may need much of that.
    MakeRoom,
    /// That it is committed: the job looks at the database as it is on the device.
    Commit,
}

impl Before {
    /// What a job needs that changes something, or only looks.
    pub(crate) fn of(changes: bool) -> Self {
        if changes { Self::Any } else { Self::Look }
    }
}

/// Whether a volume takes changes of its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Taken,
    /// There was no space for a commit at the opening: only looks are taken.
    Full {
        /// They are taken in a transaction that has what the log has, and the database on the disks lacks.
        replayed: bool,
    },
}
