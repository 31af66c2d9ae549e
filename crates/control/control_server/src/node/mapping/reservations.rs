//! What initiators have reserved of LUNs: who is kept off by it, what it outlives, and how an administrator ends it.

use control_api::{Code, Config, Done, LunConfig, LunReservations, Problem, ReservationKind, Session, many};

use super::super::all_sessions::{AllSessions, first, more_sessions};
use super::masking::{lost, seen_through, shown, takes};
use super::{Node, confirm};

/// Most registrations that a question names.
const NAMED: usize = 16;

impl Node {
    /// What initiators have reserved of a LUN that this node serves.
    fn reservations_of(&self, lun: &str) -> Option<LunReservations> {
        let all = self.backends.iscsi.reservations();
        all.into_iter().find(|(name, _)| name == lun).map(|(_, held)| held)
    }

    /// The hosts that a change takes LUNs from which they are connected to, and what hosts that lose LUNs have reserved of them, in
    /// sentences.
    pub(in crate::node) fn losing(
        &self,
        before: &Config,
        after: &Config,
        all: &AllSessions,
        concerned: impl Fn(&LunConfig) -> bool,
    ) -> Vec<String> {
        let mut told = first(lost(before, after, &all.items, &concerned), more_sessions);
        if before.luns.iter().any(|lun| concerned(lun) && takes(before, after, lun)) {
            told.extend(all.unknown());
        }
        told.extend(staying(before, after, &self.backends.iscsi.reservations(), &concerned));
        told
    }

    /// Ends what initiators have reserved of a LUN, and their registrations.
    pub async fn lun_clear_reservations(
        &self,
        name: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let lun = self.lun_config(name)?;
        let Some(held) = self.reservations_of(name) else {
            // What is durable of one that is not open is not seen here, and stays.
            let is_open = self.backends.iscsi.write_caches().iter().any(|(open, _)| open == name);
            if !is_open {
                let detail = format!("LUN {name} is not open here, and what is reserved of it is not known.");
                return Err(Problem::new(Code::WrongState, detail)
                    .todo("Nothing was done. `holdfast status` says why; try again when it is served."));
            }
            let detail = format!("No initiator has reserved anything of LUN {name}, or is registered.");
            return Err(Problem::new(Code::WrongState, detail).todo("Nothing was done."));
        };
        let all = self.all_sessions(self.sessions_elsewhere().await);
        confirm(name, confirmed.as_deref(), || {
            let groups = self.config.with(|config| config.groups.clone());
            let mut told = clearing(name, &held, &seen_through(&lun, &groups, &all.items));
            told.extend(all.unknown());
            told
        })?;
        let held = self.backends.iscsi.clear_reservations(name).await?;
        let was = held.held().map_or_else(String::new, |was| format!(" It was {was}."));
        Ok(Done::new(format!(
            "Nobody has reserved LUN {name} any more, and nobody is registered ({} ended).{was}",
            many(held.registrants.len() as u64, "registration")
        )))
    }
}

/// What ends with the reservations of a LUN, and who is kept off by them now, of the sessions that see it.
fn clearing(name: &str, held: &LunReservations, sessions: &[&Session]) -> Vec<String> {
    let lasting = if held.aptpl { ", kept over a loss of power" } else { "" };
    let mut lines = vec![match held.held() {
        Some(what) => format!("LUN {name} is {what}{lasting}: that ends."),
        None => format!("LUN {name} is reserved by nobody; its registrations end."),
    }];
    for registrant in held.registrants.iter().take(NAMED) {
        let there = if registrant.connected { "connected" } else { "not connected" };
        lines.push(format!(
            "{} loses its registration (key {}, {there}), and with it what it holds against others: a cluster that relies on it may have two hosts that write.",
            registrant.port, registrant.key
        ));
    }
    if let Some(more) = held.registrants.len().checked_sub(NAMED).filter(|more| *more > 0) {
        lines.push(format!("So do {}.", many(more as u64, "other registration")));
    }
    let there = sessions.iter().map(|session| session.initiator.as_str());
    let mut fenced: Vec<&str> = there.filter(|initiator| held.fences(initiator)).collect();
    fenced.sort_unstable();
    fenced.dedup();
    let from = match held.kind.is_some_and(ReservationKind::lets_read) {
        true => "writing",
        false => "reading and writing",
    };
    match &*fenced {
        [] if held.kind.is_some() => {
            lines.push("No host that is connected to it is fenced off by that.".into())
        }
        [] => {}
        hosts => {
            lines.push(format!("Fenced off now, and free then: {} (kept from {from}).", hosts.join(", ")))
        }
    }
    lines
}

/// What stays reserved of LUNs by hosts that a change takes them from, in sentences: whoever has lost a LUN cannot release it.
fn staying(
    before: &Config,
    after: &Config,
    reserved: &[(String, LunReservations)],
    concerned: impl Fn(&LunConfig) -> bool,
) -> Vec<String> {
    let mut told = Vec::new();
    for lun in before.luns.iter().filter(|lun| concerned(lun)) {
        // One that goes altogether takes its reservations along.
        let Some(kept) = after.luns.iter().find(|there| there.name == lun.name) else { continue };
        let held = reserved.iter().filter(|(name, _)| *name == lun.name).map(|(_, held)| held);
        for held in held.filter(|held| held.kind.is_some_and(|kind| kind != ReservationKind::Reserve)) {
            let loses = |holder: &&String| shown(before, lun, holder) && !shown(after, kept, holder);
            for holder in held.holders.iter().filter(loses) {
                told.push(format!(
                    "LUN {0} stays reserved by {holder} ({1}), which keeps others off and which it cannot release any more: let it do so before, or end that with `holdfast lun clear-reservations {0}`.",
                    lun.name,
                    held.kind.map_or("", ReservationKind::text)
                ));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use control_api::Registrant;

    use super::*;

    const A: &str = "iqn.2026-01.org.example:a";
    const B: &str = "iqn.2026-01.org.example:b";

    fn config() -> Config {
        let config = serde_json::json!({
            "schema": 1,
            "target": [{ "name": "iqn.2026-01.org.example:t" }],
            "initiator_group": [{ "name": "a", "initiators": [A] }, { "name": "b", "initiators": [B] }],
            "lun": [{ "name": "l", "volume": "v", "path": "/l", "map": [
                { "target": "iqn.2026-01.org.example:t", "number": 0, "group": "a" },
                { "target": "iqn.2026-01.org.example:t", "number": 0, "group": "b" },
            ]}],
        });
        serde_json::from_value(config).expect("a configuration")
    }

    fn held(kind: ReservationKind) -> LunReservations {
        let registrant = |initiator: &str, key: &str, holds| Registrant {
            initiator: initiator.into(),
            port: format!("{initiator},i,0x800000000001"),
            target: "iqn.2026-01.org.example:t".into(),
            target_port: 1,
            key: key.into(),
            holds,
            connected: false,
        };
        LunReservations {
            kind: Some(kind),
            holders: vec![A.into()],
            registrants: vec![registrant(A, "0x000000000000000a", true)],
            generation: 2,
            aptpl: true,
        }
    }

    #[test]
    fn what_stays_behind_is_named() {
        let before = config();
        let reserved = [("l".to_owned(), held(ReservationKind::WriteExclusive))];
        let told = |after: &Config| staying(&before, after, &reserved, |_| true);
        assert!(told(&before).is_empty());
        let mut after = before.clone();
        after.luns[0].map.retain(|map| map.group == "b");
        let lines = told(&after);
        assert!(
            lines.len() == 1 && lines[0].contains(A) && lines[0].contains("clear-reservations l"),
            "{lines:?}"
        );
        let mut other = before.clone();
        other.luns[0].map.retain(|map| map.group == "a");
        assert!(told(&other).is_empty(), "the holder keeps it");
        other.luns.clear();
        assert!(told(&other).is_empty(), "what goes takes its reservations along");
    }

    #[test]
    fn a_question_says_who_is_fenced_and_who_loses_what() {
        let (config, held) = (config(), held(ReservationKind::ExclusiveAccessRegistrantsOnly));
        let session = |initiator: &str| Session {
            initiator: initiator.into(),
            target: "iqn.2026-01.org.example:t".into(),
            address: "192.0.2.1:1000".into(),
            ..Session::default()
        };
        let lun = &config.luns[0];
        let ask = |sessions: &[Session]| {
            clearing("l", &held, &seen_through(lun, &config.groups, sessions)).join("\n")
        };
        let lines = ask(&[session(A), session(B)]);
        assert!(
            lines.contains("exclusive access, registrants only") && lines.contains("loss of power"),
            "{lines}"
        );
        assert!(
            lines.contains(&format!("{A},i,0x800000000001 loses its registration (key 0x000000000000000a"))
        );
        assert!(
            lines.contains(&format!("Fenced off now, and free then: {B} (kept from reading and writing)."))
        );
        let lines = ask(&[session(A)]);
        assert!(lines.contains("No host that is connected to it is fenced off"), "{lines}");
    }
}
