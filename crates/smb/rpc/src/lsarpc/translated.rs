//! What translations in both directions have in common: the domains that they refer to, and how well they went (MS-LSAT
//! 2.2.12, 3.1.4.1).

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::status::SOME_NOT_MAPPED;
use crate::ndr::NdrOut;
use crate::view::accounts::{Principal, PrincipalKind};

/// Domains in the order in which they were referred to.
#[derive(Debug, Default)]
pub(super) struct Domains(Vec<(String, Option<Sid>)>);

impl Domains {
    /// The number of a principal's domain. A machine's or domain's own SID is its own domain.
    pub(super) fn index(&mut self, principal: &Principal) -> u32 {
        let sid = match principal.kind {
            PrincipalKind::Domain => Some(principal.sid),
            _ => principal.sid.domain(),
        };
        let wanted = (principal.domain.clone(), sid);
        let at = self.0.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            self.0.push(wanted);
            self.0.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// LSAPR_REFERENCED_DOMAIN_LIST behind its pointer.
    pub(super) fn put(&self, out: &mut NdrOut) {
        out.pointer(true);
        out.count(self.0.len());
        out.pointer(!self.0.is_empty());
        // MaxEntries, which means nothing (MS-LSAT 2.2.12).
        out.u32(32);
        if !self.0.is_empty() {
            out.array(&self.0, |out, (name, sid)| {
                out.unicode(name);
                out.sid(*sid);
            });
        }
    }
}

/// What a lookup returns when `mapped` of `all` were found.
pub(super) fn outcome(mapped: usize, all: usize) -> NtStatus {
    match mapped {
        mapped if mapped == all => NtStatus::SUCCESS,
        0 => NtStatus::NONE_MAPPED,
        _ => SOME_NOT_MAPPED,
    }
}

/// Levels that a lookup may have (MS-LSAT 2.2.16): LsapLookupWksta to LsapLookupXForestResolve.
pub(super) fn is_level(level: u16) -> bool {
    (1..=7).contains(&level)
}
