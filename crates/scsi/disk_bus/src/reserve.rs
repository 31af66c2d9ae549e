//! PERSISTENT RESERVE, of the one kind that fencing needs: WRITE EXCLUSIVE – REGISTRANTS ONLY.

use block_device::{BlockDevice as _, BlockError, BlockErrorKind, ReservationKind, Reservations};
use scsi_defs::reservation::OutParameters;
use scsi_defs::{Cdb, Op, Sense, asc};

use crate::reply::{Failure, Outcome, Reply};
use crate::unit::{BusUnit, Session};

/// An answer to PERSISTENT RESERVE IN: its header and what follows.
fn listed(list: &[u8]) -> Vec<u8> {
    // The generation counts changes for people who look; nobody here does.
    let mut out = vec![0; 4];
    out.extend_from_slice(&(list.len() as u32).to_be_bytes());
    out.extend_from_slice(list);
    out
}

impl BusUnit {
    pub(crate) async fn reserve(&self, session: &Session, cdb: &Cdb, data: &[u8]) -> Outcome {
        let none = || Failure::from(BlockError::new(BlockErrorKind::Unsupported, "reserve"));
        let at: &dyn Reservations = session.disk.reservations().ok_or_else(none)?;
        match cdb.op {
            Op::PrInReadKeys => {
                let keys: Vec<u8> = at.keys().await?.into_iter().flat_map(u64::to_be_bytes).collect();
                return Reply::parameters(&listed(&keys), cdb.length());
            }
            Op::PrInReadReservation => {
                let mut list = Vec::new();
                if let Some(held) = at.reservation().await? {
                    list.extend_from_slice(&held.holder.to_be_bytes());
                    list.extend_from_slice(&[0, 0, 0, 0, 0, held.kind.0, 0, 0]);
                }
                return Reply::parameters(&listed(&list), cdb.length());
            }
            Op::PrOutRegisterIgnore | Op::PrOutReserve | Op::PrOutPreemptAbort => {}
            _ => return Err(Sense::cdb_field(1).into()),
        }
        let length = cdb.length();
        let data = data.get(..length as usize).ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR))?;
        let OutParameters { key, action_key, .. } = OutParameters::parse(data, false)?;
        if cdb.op != Op::PrOutRegisterIgnore
            && cdb.byte(2) != ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY.0
        {
            return Err(Sense::cdb_field(2).into());
        }
        match cdb.op {
            // Always kept, whether APTPL is asked for or not.
            Op::PrOutRegisterIgnore if action_key == 0 => at.unregister().await?,
            Op::PrOutRegisterIgnore => at.register(action_key).await?,
            Op::PrOutReserve => at.reserve(key).await?,
            _ => at.preempt_and_abort(key, action_key).await?,
        }
        Reply::took(u64::from(length))
    }
}
