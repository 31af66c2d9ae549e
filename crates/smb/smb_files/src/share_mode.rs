//! Share modes (MS-FSA 2.1.5.1.2.2): what two opens of one stream may do at the same time.

use smb_protocol::access::{AccessMask, ShareAccess};

/// Rights that a share mode speaks of, and the bit that lets others have them.
const RULES: [(AccessMask, ShareAccess); 3] = [
    (AccessMask(AccessMask::READ_DATA.0 | AccessMask::EXECUTE.0), ShareAccess::READ),
    (AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0), ShareAccess::WRITE),
    (AccessMask::DELETE, ShareAccess::DELETE),
];

/// Rights with which an open takes no part in share modes at all, nor in oplocks.
const ATTRIBUTES: AccessMask =
    AccessMask(AccessMask::READ_ATTRIBUTES.0 | AccessMask::WRITE_ATTRIBUTES.0 | AccessMask::SYNCHRONIZE.0);

/// Whether both opens cannot be at the same time.
pub(crate) fn conflict(a: (AccessMask, ShareAccess), b: (AccessMask, ShareAccess)) -> bool {
    if !takes_part(a.0) || !takes_part(b.0) {
        return false;
    }
    RULES.iter().any(|(rights, share)| {
        (a.0.intersects(*rights) && !b.1.contains(*share))
            || (b.0.intersects(*rights) && !a.1.contains(*share))
    })
}

/// Whether an open has any right that share modes speak of.
pub(crate) fn takes_part(access: AccessMask) -> bool {
    RULES.iter().any(|(rights, _)| access.intersects(*rights))
}

/// Whether an open looks at attributes only: it breaks no oplock (MS-FSA 2.1.4.12).
pub(crate) fn is_stat_open(access: AccessMask) -> bool {
    access.without(ATTRIBUTES).is_empty()
}

/// The same for leases, which reading the descriptor does not disturb either.
pub(crate) fn is_lease_stat_open(access: AccessMask) -> bool {
    access.without(ATTRIBUTES | AccessMask::READ_CONTROL).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_must_share_what_the_other_does() {
        let (read, write, delete) = (AccessMask::READ_DATA, AccessMask::APPEND_DATA, AccessMask::DELETE);
        let all = ShareAccess(7);
        assert!(!conflict((read, ShareAccess::READ), (read, ShareAccess::READ)));
        assert!(conflict((read, ShareAccess::READ), (write, all)));
        assert!(conflict((write, all), (read, ShareAccess::READ)));
        assert!(conflict((delete, all), (read, ShareAccess::READ | ShareAccess::WRITE)));
        assert!(!conflict((AccessMask::READ_ATTRIBUTES, ShareAccess::NONE), (write, ShareAccess::NONE)));
        assert!(conflict((AccessMask::EXECUTE, all), (write, ShareAccess::WRITE)));
    }

    #[test]
    fn opens_that_only_look() {
        assert!(is_stat_open(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE));
        assert!(!is_stat_open(AccessMask::READ_CONTROL) && is_lease_stat_open(AccessMask::READ_CONTROL));
        assert!(!is_lease_stat_open(AccessMask::READ_DATA) && !is_lease_stat_open(AccessMask::DELETE));
    }
}
