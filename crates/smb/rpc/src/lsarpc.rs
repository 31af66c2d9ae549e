//! The local security authority: who has a name or a SID (MS-LSAT), and the little of its policy that clients read
//! (MS-LSAD).

mod lookup_names;
mod lookup_sids;
mod policy;
mod rights;
mod translated;

use smb_protocol::NtStatus;

use crate::error::Fault;
use crate::handles::Object;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};

pub(crate) fn dispatch(call: &mut Call<'_>, operation: u16, r: &mut NdrIn<'_>) -> Result<NdrOut, Fault> {
    match operation {
        0 => call.close(r),
        6 => policy::open(call, r, false),
        7 | 46 => policy::query(call, r),
        11 => rights::enumerate_accounts(call, r),
        13 | 50 => policy::no_trusted_domains(call, r),
        14 => lookup_names::lookup(call, r, lookup_names::Version::Names),
        15 => lookup_sids::lookup(call, r, lookup_sids::Version::Sids),
        36 => rights::enumerate_rights(call, r),
        44 => policy::open(call, r, true),
        45 => policy::user_name(call, r),
        57 => lookup_sids::lookup(call, r, lookup_sids::Version::Sids2),
        58 => lookup_names::lookup(call, r, lookup_names::Version::Names2),
        68 => lookup_names::lookup(call, r, lookup_names::Version::Names3),
        76 => lookup_sids::lookup(call, r, lookup_sids::Version::Sids3),
        77 => lookup_names::lookup(call, r, lookup_names::Version::Names4),
        _ => Err(Fault::OP_RANGE),
    }
}

/// Takes a handle of the policy; another one is a client's mistake that has a status.
fn policy_handle(call: &Call<'_>, r: &mut NdrIn<'_>) -> Result<Result<(), NtStatus>, Fault> {
    Ok(match call.object(r)? {
        Object::Policy => Ok(()),
        _ => Err(NtStatus::INVALID_HANDLE),
    })
}
