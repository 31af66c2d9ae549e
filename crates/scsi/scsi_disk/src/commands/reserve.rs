//! RESERVE, RELEASE and the PERSISTENT RESERVE commands over the state machine of `reservations`.

use file_store::StoreError;
use scsi_core::ScsiStatus;
use scsi_defs::reservation::{OutParameters, transport_id};
use scsi_defs::{Cdb, Op, Sense, asc};

use crate::reply::{Failure, Outcome, Reply};
use crate::reservations::{Effects, Refused, Reservations};
use crate::unit::{LogicalUnit, UnitState};
use crate::view::Caller;

impl LogicalUnit {
    pub(crate) async fn reservation_command(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        data: &[u8],
    ) -> Outcome {
        let me = caller.nexus.id;
        match cdb.op {
            Op::Reserve6 | Op::Reserve10 => {
                let mut inner = self.inner.lock();
                if !inner.reservations.registrations.is_empty() {
                    return Err(Failure::Status(ScsiStatus::ReservationConflict));
                }
                inner.legacy = Some(me);
                Reply::good(0)
            }
            Op::Release6 | Op::Release10 => {
                let mut inner = self.inner.lock();
                if !inner.reservations.registrations.is_empty() {
                    return Err(Failure::Status(ScsiStatus::ReservationConflict));
                }
                if inner.legacy == Some(me) {
                    inner.legacy = None;
                }
                Reply::good(0)
            }
            Op::PrInReadKeys
            | Op::PrInReadReservation
            | Op::PrInReportCapabilities
            | Op::PrInReadFullStatus => {
                let bytes = reservation_data(&self.inner.lock().reservations, cdb.op);
                Reply::parameters(&bytes, cdb.length())
            }
            _ => self.reserve_out(caller, task, cdb, data).await,
        }
    }

    async fn reserve_out(&self, caller: &Caller<'_>, task: u64, cdb: &Cdb, data: &[u8]) -> Outcome {
        let length = cdb.length();
        let short = Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR);
        let data = data.get(..length as usize).ok_or(short)?;
        let parameters = OutParameters::parse(data, cdb.op == Op::PrOutRegisterMove)?;
        let _one_at_a_time = self.changes.lock().await;
        let (before, port, ports) = {
            let inner = self.inner.lock();
            let me = caller.nexus.id;
            let Some(port) = inner.port_of(me) else {
                let conflict = Failure::Status(ScsiStatus::ReservationConflict);
                return Err(if inner.left_behind(me) { Failure::OnTheWay } else { conflict });
            };
            (inner.reservations.clone(), port, inner.target_ports())
        };
        let mut after = before.clone();
        let effects =
            after.apply(cdb.op, cdb.byte(2), &port, &parameters, &ports).map_err(
                |refused| match refused {
                    Refused::Conflict => Failure::Status(ScsiStatus::ReservationConflict),
                    Refused::Sense(sense) => Failure::Sense(sense),
                },
            )?;
        self.keep_change(&before, after, &effects).await?;
        if !effects.aborted.is_empty() {
            let victims: Vec<u64> = {
                let inner = self.inner.lock();
                effects.aborted.iter().flat_map(|port| inner.nexuses_of(port)).collect()
            };
            // The new state already refuses their next commands; those that run must end before we answer, also
            // those of sessions that are gone.
            self.abort(|nexus| victims.contains(&nexus), Some(task)).await;
        }
        Reply::good(u64::from(length))
    }

    /// Makes a change of the reservations durable where it has to be, then that which counts, and raises its attentions. Whoever calls
    /// holds `changes`.
    async fn keep_change(
        &self,
        before: &Reservations,
        mut after: Reservations,
        effects: &Effects,
    ) -> Result<(), StoreError> {
        let keeps = self.config.keep_reservations;
        if after.aptpl || before.aptpl || keeps {
            // Where it is kept anyway, whoever was the last to be registered leaves nothing behind.
            after.aptpl &= !keeps || !after.registrations.is_empty();
            let is_kept = after.aptpl || keeps && !after.registrations.is_empty();
            let row = is_kept.then(|| after.encode());
            self.store().save(&Self::row_key(&self.config.id, b'r'), row).await?;
        }
        let mut inner = self.inner.lock();
        // Some may have come while the row was written.
        inner.nexuses.values().for_each(|entry| after.know(&entry.port));
        inner.reservations = after;
        effects.attentions.iter().for_each(|(port, code)| inner.raise(port, *code));
        Ok(())
    }

    /// The administrator ends whatever initiators hold here: the reservation, all registrations, and what was taken with RESERVE. Whoever
    /// was registered is told as CLEAR tells it. What was held comes back. To be carried out to its end, as whatever is durable is to be
    /// known.
    ///
    /// # Errors
    /// It could not be made durable: then nothing has changed. Or the unit is not served here.
    pub async fn clear_reservations(&self) -> Result<Reservations, ClearError> {
        let _one_at_a_time = self.changes.lock().await;
        let before = {
            let inner = self.inner.lock();
            if inner.closed || inner.moves || matches!(inner.state, UnitState::Elsewhere(_) | UnitState::Busy)
            {
                return Err(ClearError::NotHere);
            }
            inner.reservations.clone()
        };
        let mut after = before.clone();
        let effects = after.clear();
        self.keep_change(&before, after, &effects).await?;
        self.inner.lock().legacy = None;
        Ok(before)
    }

    /// The initiator that keeps others off with RESERVE, of SCSI-2, as long as its session lasts.
    #[must_use]
    pub fn reserved_by(&self) -> Option<String> {
        let inner = self.inner.lock();
        let port = inner.port_of(inner.legacy?)?;
        Some(port.initiator_name().to_owned())
    }
}

/// Why what initiators hold could not be ended.
#[derive(Debug)]
pub enum ClearError {
    /// It is served elsewhere, or on its way.
    NotHere,
    /// Its volume does not take it.
    Store(StoreError),
}

impl From<StoreError> for ClearError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn reservation_data(state: &Reservations, op: Op) -> Vec<u8> {
    if op == Op::PrInReportCapabilities {
        // ATP_C, PTPL_C; TMV, PTPL_A; all six types.
        return vec![0, 8, 0x05, 0x80 | u8::from(state.aptpl), 0xea, 0x01, 0, 0];
    }
    let mut list = Vec::new();
    match op {
        Op::PrInReadKeys => {
            state.registrations.iter().for_each(|r| list.extend_from_slice(&r.key.to_be_bytes()))
        }
        Op::PrInReadReservation => {
            if let Some((kind, holder)) = &state.reservation {
                let key = if kind.all() { 0 } else { state.key_of(holder).unwrap_or(0) };
                list.extend_from_slice(&key.to_be_bytes());
                list.extend_from_slice(&[0, 0, 0, 0, 0, *kind as u8, 0, 0]);
            }
        }
        _ => {
            for r in &state.registrations {
                let holds = state.holds(&r.port);
                let kind = state.reservation.as_ref().map_or(0, |(kind, _)| *kind as u8);
                let id = transport_id(&r.port.initiator);
                list.extend_from_slice(&r.key.to_be_bytes());
                list.extend_from_slice(&[
                    0,
                    0,
                    0,
                    0,
                    u8::from(holds),
                    if holds { kind } else { 0 },
                    0,
                    0,
                    0,
                    0,
                ]);
                list.extend_from_slice(&r.port.target.to_be_bytes());
                list.extend_from_slice(&(id.len() as u32).to_be_bytes());
                list.extend_from_slice(&id);
            }
        }
    }
    let mut out = state.generation.to_be_bytes().to_vec();
    out.extend_from_slice(&(list.len() as u32).to_be_bytes());
    out.extend_from_slice(&list);
    out
}
