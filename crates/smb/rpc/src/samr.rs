//! stub to be written soon
use crate::error::Fault;
use crate::interface::Call;
use crate::ndr::{NdrIn, NdrOut};
pub(crate) fn dispatch(_: &mut Call<'_>, _: u16, _: &mut NdrIn<'_>) -> Result<NdrOut, Fault> { Err(Fault::OP_RANGE) }
