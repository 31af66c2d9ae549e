//! What `SendTargets` says (RFC 7143 appendix C).

use crate::name::IscsiName;
use crate::text::{MAX_TEXT_BYTES, put};

/// One target as an initiator may know it.
#[derive(Clone, Debug)]
pub struct TargetListing {
    /// Its name.
    pub name: IscsiName,
    /// `address:port,tag`, IPv6 addresses in brackets.
    pub addresses: Vec<String>,
}

/// Writes the listing, cut after the last target that fits [`MAX_TEXT_BYTES`].
#[must_use]
pub fn send_targets<'a>(targets: impl Iterator<Item = &'a TargetListing>) -> Vec<u8> {
    let mut out = Vec::new();
    for target in targets {
        let before = out.len();
        put(&mut out, "TargetName", target.name.as_str());
        for address in &target.addresses {
            put(&mut out, "TargetAddress", address);
        }
        if out.len() > MAX_TEXT_BYTES {
            out.truncate(before);
            break;
        }
    }
    out
}
