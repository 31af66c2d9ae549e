//! How the members of the cluster's etcd are: looked at from time to time, as nothing else notices one that is away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster_store_etcd::{Alarm, AlarmKind, EtcdHealth, EtcdStore, EtcdTold};
use control_api::{EtcdAlarm, EtcdAlarmKind, EtcdMemberState, EtcdMemberStatus};
use managed_etcd::QUOTA_BYTES;
use parking_lot::Mutex;

/// Between looks.
const EVERY: Duration = Duration::from_secs(10);

/// The etcd that nodes share, where it is one.
pub(super) struct SharedEtcd {
    store: EtcdStore,
    /// Its nodes run it, with a quota that is known.
    managed: bool,
    seen: Mutex<Seen>,
}

/// As it was found last.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) members: Vec<EtcdMemberStatus>,
    pub(super) alarms: Vec<EtcdAlarm>,
}

impl SharedEtcd {
    pub(super) fn new(store: EtcdStore, managed: bool) -> Self {
        Self { store, managed, seen: Mutex::default() }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Looks, for ever.
    pub(super) async fn watch_over(self: Arc<Self>) {
        let mut leaderless = BTreeSet::new();
        loop {
            let health = self.store.health().await;
            *self.seen.lock() = Seen::of(&health, self.managed.then_some(QUOTA_BYTES), &leaderless);
            let lacks = |member: &EtcdHealth| member.told.as_ref().is_ok_and(|told| !told.has_leader);
            leaderless = health.into_iter().filter(lacks).map(|member| member.url).collect();
            tokio::time::sleep(EVERY).await;
        }
    }
}

impl Seen {
    /// `leaderless` are members that had no leader at the look before, either: an election lasts a second.
    fn of(health: &[EtcdHealth], quota_bytes: Option<u64>, leaderless: &BTreeSet<String>) -> Self {
        let told = || health.iter().filter_map(|member| Some((&member.url, member.told.as_ref().ok()?)));
        // Each member tells of all.
        let of_kind = |kind: AlarmKind, called: EtcdAlarmKind| {
            let mut alarms =
                told().flat_map(|(_, told)| &told.alarms).filter(|alarm| alarm.kind == kind).peekable();
            alarms.peek()?;
            let members: Vec<u64> = alarms.filter_map(|alarm| alarm.member).collect();
            let urls = told().filter(|(_, told)| members.contains(&told.member)).map(|(url, _)| url.clone());
            Some(EtcdAlarm { kind: called, urls: urls.collect() })
        };
        let alarms = [
            of_kind(AlarmKind::NoSpace, EtcdAlarmKind::Full),
            of_kind(AlarmKind::Corrupt, EtcdAlarmKind::Damaged),
        ];
        let alarms = alarms.into_iter().flatten().collect();
        let members = health
            .iter()
            .map(|member| shown(member, quota_bytes, leaderless.contains(&member.url)))
            .collect();
        Self { alarms, members }
    }
}

fn shown(member: &EtcdHealth, quota_bytes: Option<u64>, was_leaderless: bool) -> EtcdMemberStatus {
    let url = member.url.clone();
    match &member.told {
        Ok(told) => EtcdMemberStatus {
            url,
            bytes: Some(told.bytes),
            quota_bytes,
            state: state_of(told, was_leaderless),
            trouble: (!told.troubles.is_empty()).then(|| told.troubles.join("; ")),
        },
        Err(why) => {
            EtcdMemberStatus { url, quota_bytes, trouble: Some(why.clone()), ..EtcdMemberStatus::default() }
        }
    }
}

fn state_of(told: &EtcdTold, was_leaderless: bool) -> EtcdMemberState {
    let has = |kind| told.alarms.contains(&Alarm { kind, member: Some(told.member) });
    match () {
        () if has(AlarmKind::Corrupt) => EtcdMemberState::Damaged,
        () if !told.has_leader && was_leaderless => EtcdMemberState::NoLeader,
        () if has(AlarmKind::NoSpace) => EtcdMemberState::Full,
        () => EtcdMemberState::Serving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u64, alarms: &[Alarm]) -> EtcdHealth {
        let told = EtcdTold {
            bytes: 1 << 20,
            member: number,
            alarms: alarms.to_vec(),
            has_leader: true,
            troubles: Vec::new(),
        };
        EtcdHealth { url: format!("https://10.0.0.{number}:7402"), told: Ok(told) }
    }

    fn seen(health: &[EtcdHealth]) -> Seen {
        Seen::of(health, None, &BTreeSet::new())
    }

    #[test]
    fn an_alarm_is_said_once_and_also_when_its_member_is_gone() {
        let full = |member| Alarm { kind: AlarmKind::NoSpace, member: Some(member) };
        let both = [full(2), full(1)];
        let told = seen(&[member(1, &both), member(2, &both)]);
        let urls = ["https://10.0.0.1:7402", "https://10.0.0.2:7402"].map(str::to_owned).to_vec();
        assert_eq!(told.alarms, [EtcdAlarm { kind: EtcdAlarmKind::Full, urls }]);
        let states = |seen: &Seen| seen.members.iter().map(|member| member.state).collect::<Vec<_>>();
        assert_eq!(states(&told), [EtcdMemberState::Full, EtcdMemberState::Full]);
        let away = EtcdHealth { told: Err("connection refused".into()), ..member(2, &[]) };
        let told = seen(&[member(1, &[full(2)]), away]);
        assert_eq!(told.alarms, [EtcdAlarm { kind: EtcdAlarmKind::Full, urls: Vec::new() }]);
        assert_eq!(states(&told), [EtcdMemberState::Serving, EtcdMemberState::Away]);
        let unknown = Alarm { kind: AlarmKind::Corrupt, member: None };
        let told = seen(&[member(1, &[unknown]), member(2, &[unknown])]);
        assert_eq!(told.alarms, [EtcdAlarm { kind: EtcdAlarmKind::Damaged, urls: Vec::new() }]);
        assert!(told.members.iter().all(|member| member.state == EtcdMemberState::Serving));
    }

    #[test]
    fn an_election_is_no_trouble() {
        let mut one = member(1, &[]);
        if let Ok(told) = &mut one.told {
            told.has_leader = false;
        }
        assert_eq!(seen(std::slice::from_ref(&one)).members[0].state, EtcdMemberState::Serving);
        let before = BTreeSet::from([one.url.clone()]);
        assert_eq!(Seen::of(&[one], None, &before).members[0].state, EtcdMemberState::NoLeader);
    }
}
