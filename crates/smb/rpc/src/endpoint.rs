//! The interfaces that there are, and which pipe each is behind.

use crate::interface::Interface;
use crate::pdu::Syntax;
use crate::{lsarpc, samr, srvsvc, wkssvc};

/// 4b324fc8-1670-01d3-1278-5a47bf6ee188 (MS-SRVS 1.9).
pub(crate) const SRVSVC: Interface = Interface {
    name: "srvsvc",
    syntax: Syntax::new(0x4b32_4fc8, 0x1670, 0x01d3, [0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88], 3, 0),
    operations: srvsvc::OPERATIONS,
    unserved_changes: srvsvc::UNSERVED_CHANGES,
};

/// 6bffd098-a112-3610-9833-46c3f87e345a (MS-WKST 1.9).
pub(crate) const WKSSVC: Interface = Interface {
    name: "wkssvc",
    syntax: Syntax::new(0x6bff_d098, 0xa112, 0x3610, [0x98, 0x33, 0x46, 0xc3, 0xf8, 0x7e, 0x34, 0x5a], 1, 0),
    operations: wkssvc::OPERATIONS,
    unserved_changes: &[],
};

/// 12345778-1234-abcd-ef00-0123456789ab (MS-LSAD 1.9, MS-LSAT 1.9).
pub(crate) const LSARPC: Interface = Interface {
    name: "lsarpc",
    syntax: Syntax::new(0x1234_5778, 0x1234, 0xabcd, [0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab], 0, 0),
    operations: lsarpc::OPERATIONS,
    unserved_changes: lsarpc::UNSERVED_CHANGES,
};

/// 12345778-1234-abcd-ef00-0123456789ac (MS-SAMR 1.9).
pub(crate) const SAMR: Interface = Interface {
    name: "samr",
    syntax: Syntax::new(0x1234_5778, 0x1234, 0xabcd, [0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xac], 1, 0),
    operations: samr::OPERATIONS,
    unserved_changes: samr::UNSERVED_CHANGES,
};

/// A pipe and what answers there.
pub(crate) struct Endpoint {
    /// The pipe's name in the answer to a bind.
    pub(crate) address: &'static str,
    pub(crate) interfaces: &'static [Interface],
}

static SERVER: Endpoint = Endpoint { address: "\\PIPE\\srvsvc", interfaces: &[SRVSVC] };
static WORKSTATION: Endpoint = Endpoint { address: "\\PIPE\\wkssvc", interfaces: &[WKSSVC] };
/// On Windows `lsarpc` and `samr` are other names of one pipe, and clients use either interface on either.
static SECURITY: Endpoint = Endpoint { address: "\\PIPE\\lsass", interfaces: &[LSARPC, SAMR] };

/// The pipe of this name, with or without `\PIPE\` or a backslash before it.
pub(crate) fn endpoint(name: &str) -> Option<&'static Endpoint> {
    let name = name.strip_prefix('\\').unwrap_or(name).to_ascii_lowercase();
    match name.strip_prefix("pipe\\").unwrap_or(&name) {
        "srvsvc" => Some(&SERVER),
        "wkssvc" => Some(&WORKSTATION),
        "lsarpc" | "lsass" | "samr" => Some(&SECURITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_by_their_names() {
        for name in ["srvsvc", "\\srvsvc", "\\PIPE\\SrvSvc", "pipe\\srvsvc"] {
            assert_eq!(endpoint(name).unwrap().address, "\\PIPE\\srvsvc", "{name}");
        }
        for name in ["", "spoolss", "pipe\\", "srvsvc\\x"] {
            assert!(endpoint(name).is_none(), "{name}");
        }
        assert_eq!(endpoint("samr").unwrap().interfaces.len(), 2);
    }
}
