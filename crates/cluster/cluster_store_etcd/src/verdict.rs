//! What an error means: whether a transaction was certainly not done.

use cluster_store::StoreError;

use crate::call::{CallError, Status};

/// Codes of gRPC.
mod code {
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const OUT_OF_RANGE: u32 = 11;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// What etcd answers before it looks at a request, word for word: nothing was proposed to the other members then. "database space
/// exceeded" is not among them, as etcd also answers it to a transaction that it has applied.
const REFUSED: [&str; 4] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: not capable",
    "etcdserver: rpc not supported for learner",
];

/// For a request that changes something.
pub(crate) fn of_transaction(error: CallError) -> StoreError {
    match error {
        CallError::NotSent(why) => StoreError::NotDone(why),
        CallError::Broken(why) => StoreError::Unknown(why),
        CallError::TooLong => StoreError::Unknown("an answer that is too long".into()),
        CallError::Status(status) => {
            let text = status.to_string();
            match status.code {
                code::INVALID_ARGUMENT => StoreError::Invalid(text),
                code::PERMISSION_DENIED | code::UNIMPLEMENTED | code::UNAUTHENTICATED => {
                    StoreError::NotDone(text)
                }
                _ if REFUSED.contains(&status.message.as_str()) => StoreError::NotDone(text),
                _ => StoreError::Unknown(text),
            }
        }
    }
}

/// For a request that changes nothing: it is never unknown.
pub(crate) fn of_read(error: CallError) -> StoreError {
    match of_transaction(error) {
        StoreError::Unknown(why) => StoreError::NotDone(why),
        other => other,
    }
}

/// What was asked for is forgotten.
pub(crate) fn is_compacted(status: &Status) -> bool {
    status.code == code::OUT_OF_RANGE && status.message.contains("compacted")
}

/// Whether another member may do better.
pub(crate) fn blames_the_member(status: &Status) -> bool {
    !matches!(
        status.code,
        code::INVALID_ARGUMENT | code::PERMISSION_DENIED | code::OUT_OF_RANGE | code::UNAUTHENTICATED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u32, message: &str) -> StoreError {
        of_transaction(CallError::Status(Status { code, message: message.into() }))
    }

    #[test]
    fn only_what_etcd_says_before_it_begins_is_certain() {
        assert!(matches!(of(14, "etcdserver: no leader"), StoreError::NotDone(_)));
        assert!(matches!(of(8, "etcdserver: too many requests"), StoreError::NotDone(_)));
        assert!(matches!(of(7, "etcdserver: permission denied"), StoreError::NotDone(_)));
        assert!(matches!(of(3, "etcdserver: duplicate key given in txn request"), StoreError::Invalid(_)));
        for (code, message) in [
            (8, "etcdserver: mvcc: database space exceeded"),
            (14, "etcdserver: request timed out"),
            (14, "etcdserver: leader changed"),
            (14, "etcdserver: request timed out, possibly due to previous leader failure"),
            (4, "context deadline exceeded"),
            (1, "cancelled"),
            (2, ""),
            (13, "internal"),
            (99, "?"),
        ] {
            assert!(matches!(of(code, message), StoreError::Unknown(_)), "{code} {message}");
        }
    }
}
