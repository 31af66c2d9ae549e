//! What initiators hold of units, shown to people, and ended for them.

use control_api::{Code, LunReservations, Problem, Registrant, ReservationKind};
use scsi_defs::reservation::Kind;
use scsi_disk::reservations::{Registration, Reservations};
use scsi_disk::{ClearError, LogicalUnit};

use super::SystemUnits;

fn kind_of(kind: Kind) -> ReservationKind {
    match kind {
        Kind::WriteExclusive => ReservationKind::WriteExclusive,
        Kind::ExclusiveAccess => ReservationKind::ExclusiveAccess,
        Kind::WriteExclusiveRegistrants => ReservationKind::WriteExclusiveRegistrantsOnly,
        Kind::ExclusiveAccessRegistrants => ReservationKind::ExclusiveAccessRegistrantsOnly,
        Kind::WriteExclusiveAll => ReservationKind::WriteExclusiveAllRegistrants,
        Kind::ExclusiveAccessAll => ReservationKind::ExclusiveAccessAllRegistrants,
    }
}

/// What initiators hold of a unit; `None` for nothing.
fn told(unit: &LogicalUnit, held: &Reservations, by_reserve: Option<String>) -> Option<LunReservations> {
    if held.registrations.is_empty() && by_reserve.is_none() {
        return None;
    }
    let kind = held.reservation.as_ref().map(|(kind, _)| kind_of(*kind));
    let mut holders: Vec<String> = held.holders().map(|r| r.port.initiator_name().to_owned()).collect();
    holders.extend(by_reserve.clone());
    holders.sort();
    holders.dedup();
    let registrant = |r: &Registration| Registrant {
        initiator: r.port.initiator_name().to_owned(),
        port: r.port.initiator.clone(),
        target: r.port.device.clone(),
        target_port: r.port.target,
        key: format!("{:#018x}", r.key),
        holds: held.holds(&r.port),
        connected: unit.is_connected(&r.port),
    };
    Some(LunReservations {
        kind: kind.or(by_reserve.map(|_| ReservationKind::Reserve)),
        holders,
        registrants: held.registrations.iter().map(registrant).collect(),
        generation: held.generation,
        aptpl: held.aptpl,
    })
}

impl SystemUnits {
    /// What initiators hold of units of this node.
    pub(super) fn reserved(&self) -> Vec<(String, LunReservations)> {
        let state = self.state.lock();
        let open = state.units.iter().filter(|(_, entry)| entry.volume.is_some());
        let of = open.map(|(name, entry)| {
            let unit = &entry.unit;
            Some((name.clone(), told(unit, &unit.reservations(), unit.reserved_by())?))
        });
        of.flatten().collect()
    }

    /// Initiators that are still to be told that writes which they had cached may be lost, also of units that are away.
    pub(super) fn not_told(&self) -> Vec<(String, Vec<String>)> {
        let state = self.state.lock();
        let of = state.units.iter().map(|(name, entry)| (name.clone(), entry.unit.lost_writes_of()));
        of.filter(|(_, initiators)| !initiators.is_empty()).collect()
    }

    /// Forgets initiators that are to be told and are not connected, or this one of them, on the shard of the unit's file.
    pub(super) async fn forget(&self, lun: &str, host: Option<String>) -> Result<Vec<String>, Problem> {
        let found = {
            let state = self.state.lock();
            let entry = state.units.get(lun).filter(|entry| !entry.away);
            entry.and_then(|entry| Some((entry.volume.as_ref()?.shard(), entry.unit.clone())))
        };
        let (shard, unit) = found.ok_or_else(|| {
            Problem::new(Code::WrongState, format!("LUN {lun} is not open here."))
                .todo("`holdfast status` says why. Try again when it is served.")
        })?;
        let forgotten =
            self.shards.run(shard, move || async move { Ok(unit.forget_lost_writes(host.as_deref()).await) });
        forgotten.await?.map_err(|error| {
            Problem::new(
                Code::Io,
                format!("Nobody is forgotten: the volume of LUN {lun} does not take the change: {error}."),
            )
        })
    }

    /// Ends what initiators hold of a unit, on the shard of its file.
    pub(super) async fn clear(&self, lun: &str) -> Result<LunReservations, Problem> {
        let not_here = || {
            Problem::new(
                Code::WrongState,
                format!("LUN {lun} is not open here, and nobody changes what is reserved of it."),
            )
            .todo("`holdfast status` says why. Try again when it is served.")
        };
        let found = {
            let state = self.state.lock();
            let entry = state.units.get(lun).filter(|entry| !entry.away);
            entry.and_then(|entry| Some((entry.volume.as_ref()?.shard(), entry.unit.clone())))
        };
        let (shard, unit) = found.ok_or_else(not_here)?;
        let cleared = self.shards.run(shard, move || async move {
            let by_reserve = unit.reserved_by();
            let before = unit.clear_reservations().await;
            Ok(before.map(|before| told(&unit, &before, by_reserve)))
        });
        match cleared.await? {
            Ok(before) => before.ok_or_else(|| {
                Problem::new(
                    Code::WrongState,
                    format!("No initiator has reserved anything of LUN {lun}, or is registered."),
                )
            }),
            Err(ClearError::NotHere) => Err(not_here()),
            Err(ClearError::Store(error)) => Err(Problem::new(
                Code::Io,
                format!("What is reserved of LUN {lun} stays: its volume does not take the change: {error}."),
            )),
        }
    }

    /// The live state, for diagnosis.
    pub(super) fn inspected(&self) -> serde_json::Value {
        let state = self.state.lock();
        let units = state.units.iter().map(|(name, entry)| {
            let reservations = entry.unit.reservations();
            serde_json::json!({
                "lun": name,
                "open": entry.volume.is_some(),
                "state": format!("{:?}", entry.unit.state()),
                "generation": reservations.generation,
                "registrations": reservations.registrations.len(),
                "reserved": reservations.reservation.is_some(),
            })
        });
        serde_json::json!({ "units": units.collect::<Vec<_>>() })
    }
}
