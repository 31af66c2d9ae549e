//! An interface: the table of its operations, and what these get.

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::client::RpcClient;
use crate::error::{Fault, Win32};
use crate::handles::{Handles, Name, Object};
use crate::ndr::{NdrIn, NdrOut};
use crate::pdu::Syntax;
use crate::view::{Attempt, ServerView};

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
    /// Operations of the specification that change something and are not served: who asks for them is told of.
    pub(crate) unserved_changes: &'static [(u16, &'static str)],
}

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
        if let Some(found) = self.operations.iter().find(|operation| operation.number == number) {
            return (found.run)(call, r);
        }
        if let Some((_, name)) = self.unserved_changes.iter().find(|change| change.0 == number) {
            call.refused(name, "", Win32::NOT_SUPPORTED);
        }
        Err(Fault::OP_RANGE)
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

    /// A change is refused, before the view is asked for it.
    pub(crate) fn refused(&self, operation: &'static str, object: &str, why: Win32) -> Win32 {
        self.view.change_refused(self.client, &Attempt { operation, object, why });
        why
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
