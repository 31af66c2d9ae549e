//! Interfaces: which there are, behind which pipe, and what their operations get.

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::Fault;
use crate::handles::{Handles, Name, Object};
use crate::ndr::{NdrIn, NdrOut};
use crate::pdu::Syntax;
use crate::service::RpcClient;
use crate::view::ServerView;
use crate::{lsarpc, samr, srvsvc, wkssvc};

/// An operation of an interface.
pub(crate) struct Operation {
    pub(crate) number: u16,
    /// The specification's name.
    pub(crate) name: &'static str,
    /// Its arguments in, its results out.
    pub(crate) run: fn(&mut Call<'_>, &mut NdrIn<'_>) -> Result<NdrOut, Fault>,
}

/// A table of operations, which is all that an interface answers. The access matrix has a row for each (`tests/access.rs`).
macro_rules! operations {
    ($($number:literal $name:ident => $run:expr;)*) => {
        &[$(crate::interface::Operation { number: $number, name: stringify!($name), run: $run }),*]
    };
}
pub(crate) use operations;

/// An interface.
pub(crate) struct Interface {
    pub(crate) name: &'static str,
    pub(crate) syntax: Syntax,
    pub(crate) operations: &'static [Operation],
}

/// 4b324fc8-1670-01d3-1278-5a47bf6ee188 (MS-SRVS 1.9).
pub(crate) const SRVSVC: Interface = Interface {
    name: "srvsvc",
    syntax: Syntax::new(0x4b32_4fc8, 0x1670, 0x01d3, [0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88], 3, 0),
    operations: srvsvc::OPERATIONS,
};

/// 6bffd098-a112-3610-9833-46c3f87e345a (MS-WKST 1.9).
pub(crate) const WKSSVC: Interface = Interface {
    name: "wkssvc",
    syntax: Syntax::new(0x6bff_d098, 0xa112, 0x3610, [0x98, 0x33, 0x46, 0xc3, 0xf8, 0x7e, 0x34, 0x5a], 1, 0),
    operations: wkssvc::OPERATIONS,
};

/// 12345778-1234-abcd-ef00-0123456789ab (MS-LSAD 1.9, MS-LSAT 1.9).
pub(crate) const LSARPC: Interface = Interface {
    name: "lsarpc",
    syntax: Syntax::new(0x1234_5778, 0x1234, 0xabcd, [0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab], 0, 0),
    operations: lsarpc::OPERATIONS,
};

/// 12345778-1234-abcd-ef00-0123456789ac (MS-SAMR 1.9).
pub(crate) const SAMR: Interface = Interface {
    name: "samr",
    syntax: Syntax::new(0x1234_5778, 0x1234, 0xabcd, [0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xac], 1, 0),
    operations: samr::OPERATIONS,
};

impl Interface {
    /// What the specification calls an operation, for the log.
    pub(crate) fn name_of(&self, number: u16) -> &'static str {
        self.operations.iter().find(|operation| operation.number == number).map_or("?", |found| found.name)
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// OP_RANGE for one that there is not, and the operation's.
    pub(crate) fn run(&self, call: &mut Call<'_>, number: u16, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
        let found = self.operations.iter().find(|operation| operation.number == number);
        (found.ok_or(Fault::OP_RANGE)?.run)(call, r)
    }
}

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

/// What an operation has beside its arguments.
pub(crate) struct Call<'a> {
    pub(crate) view: &'a dyn ServerView,
    pub(crate) client: &'a RpcClient,
    pub(crate) handles: &'a mut Handles,
}

impl Call<'_> {
    /// Whether somebody who is not an administrator asks.
    pub(crate) fn is_plain_user(&self) -> bool {
        !self.client.is_administrator
    }

    pub(crate) fn open(&mut self, object: Object) -> Result<Name, NtStatus> {
        self.handles.open(self.client.sid, object, self.view.random())
    }

    pub(crate) fn object(&self, r: &mut NdrIn<'_>) -> Result<Object, Fault> {
        let name = r.context_handle()?;
        self.handles.get(self.client.sid, &name)
    }

    /// Closes a handle: zeros and success.
    pub(crate) fn close(&mut self, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
        let name = r.context_handle()?;
        self.handles.close(self.client.sid, &name)?;
        let mut out = NdrOut::new();
        out.context_handle(&[0; 20]);
        out.status(NtStatus::SUCCESS);
        Ok(out)
    }

    /// The results of an operation that opens something: a handle, or zeros, and the status.
    pub(crate) fn opened(&mut self, object: Result<Object, NtStatus>) -> NdrOut {
        let opened = object.and_then(|object| self.open(object));
        let mut out = NdrOut::new();
        out.context_handle(&opened.unwrap_or([0; 20]));
        out.status(opened.err().unwrap_or(NtStatus::SUCCESS));
        out
    }

    /// Whom the call is for, in the log.
    pub(crate) fn sid(&self) -> Sid {
        self.client.sid
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
