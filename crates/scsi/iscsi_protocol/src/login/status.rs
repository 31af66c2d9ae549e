//! How a login is refused: what the initiator is told, and why, for the log.

/// Status class and detail of a login response (RFC 7143 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginStatus(pub u16);

impl LoginStatus {
    /// Going on.
    pub const SUCCESS: Self = Self(0x0000);
    /// The initiator did something wrong.
    pub const INITIATOR_ERROR: Self = Self(0x0200);
    /// Who are you?
    pub const AUTHENTICATION_FAILURE: Self = Self(0x0201);
    /// The initiator may not use this target.
    pub const FORBIDDEN: Self = Self(0x0202);
    /// No such target.
    pub const NOT_FOUND: Self = Self(0x0203);
    /// The target was removed.
    pub const REMOVED: Self = Self(0x0204);
    /// No common version.
    pub const VERSION: Self = Self(0x0205);
    /// The session has all its connections.
    pub const TOO_MANY_CONNECTIONS: Self = Self(0x0206);
    /// InitiatorName or TargetName is missing.
    pub const MISSING_PARAMETER: Self = Self(0x0207);
    /// This connection cannot join the session.
    pub const CANNOT_INCLUDE: Self = Self(0x0208);
    /// Unknown SessionType.
    pub const SESSION_TYPE: Self = Self(0x0209);
    /// No session has that TSIH.
    pub const NO_SESSION: Self = Self(0x020a);
    /// The request is not allowed during login.
    pub const INVALID_REQUEST: Self = Self(0x020b);
    /// Come back later.
    pub const UNAVAILABLE: Self = Self(0x0301);
    /// A limit was reached.
    pub const OUT_OF_RESOURCES: Self = Self(0x0302);

    /// The status in words, with its number.
    #[must_use]
    pub fn text(self) -> String {
        let what = match self {
            Self::AUTHENTICATION_FAILURE => "authentication failed: user or secret is wrong, or missing",
            Self::FORBIDDEN => "this initiator may not use it",
            Self::NOT_FOUND => "it has no target of this name, or none for this initiator",
            Self::REMOVED => "the target was removed",
            Self::VERSION => "no common version",
            Self::TOO_MANY_CONNECTIONS | Self::CANNOT_INCLUDE | Self::NO_SESSION => "no room in the session",
            Self::MISSING_PARAMETER => "a name is missing",
            Self::UNAVAILABLE => "not available at the moment",
            Self::OUT_OF_RESOURCES => "out of resources",
            Self(status) if status >> 8 == 3 => "a failure of its own",
            _ => "it does not like what we said",
        };
        format!("{what} (status {:04x}h)", self.0)
    }
}

/// A refusal: the initiator learns its status, only the log learns why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the initiator is told.
    pub status: LoginStatus,
    /// What an administrator is told; the same for whatever the initiator has sent.
    pub why: &'static str,
}

impl LoginStatus {
    /// A refusal with this status.
    #[must_use]
    pub const fn because(self, why: &'static str) -> Refusal {
        Refusal { status: self, why }
    }
}
