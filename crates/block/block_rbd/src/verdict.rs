//! What the library's errors mean to a disk's user.

use block_device::BlockErrorKind;
use librbd::Failure;

/// `ESHUTDOWN`: this client is shut out of the cluster (blocklist).
const SHUT_OUT: i32 = 108;

/// Whether the cluster has shut this client out.
pub(crate) fn is_shut_out(failure: &Failure) -> bool {
    failure.code() == Some(SHUT_OUT)
}

/// The kind of a failure.
pub(crate) fn kind(failure: &Failure) -> BlockErrorKind {
    match failure.code() {
        Some(SHUT_OUT) => BlockErrorKind::Fenced,
        // EROFS: another client has the exclusive lock and keeps it. EBUSY: somebody else has it by now.
        Some(30 | 16) => BlockErrorKind::Fenced,
        // ENOSPC, EDQUOT: the cluster, the Ceph pool or its quota is full.
        Some(28 | 122) => BlockErrorKind::NoSpace,
        // ETIMEDOUT, ENOTCONN, ENOENT, ENODEV: Ceph does not answer, or the image was removed.
        Some(110 | 107 | 2 | 19) => BlockErrorKind::Gone,
        // EOPNOTSUPP
        Some(95) => BlockErrorKind::Unsupported,
        _ => BlockErrorKind::Io,
    }
}
