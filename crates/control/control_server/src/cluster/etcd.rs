//! How the members of the cluster's etcd are: looked at from time to time, as nothing else notices one that is away.

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
        loop {
            let health = self.store.health().await;
            *self.seen.lock() = Seen::of(health, self.managed.then_some(QUOTA_BYTES));
            tokio::time::sleep(EVERY).await;
        }
    }
}

impl Seen {
    fn of(health: Vec<EtcdHealth>, quota_bytes: Option<u64>) -> Self {
        let told = || health.iter().filter_map(|member| Some((&member.url, member.told.as_ref().ok()?)));
        let mut alarms = Vec::new();
        for alarm in told().flat_map(|(_, told)| &told.alarms) {
            let whose = told().find(|(_, told)| Some(told.member) == alarm.member);
            let kind = match alarm.kind {
                AlarmKind::NoSpace => EtcdAlarmKind::Full,
                AlarmKind::Corrupt => EtcdAlarmKind::Damaged,
            };
            let alarm = EtcdAlarm { kind, url: whose.map(|(url, _)| url.clone()) };
            // Each member tells of all.
            if !alarms.contains(&alarm) {
                alarms.push(alarm);
            }
        }
        Self { alarms, members: health.into_iter().map(|member| shown(member, quota_bytes)).collect() }
    }
}

fn shown(member: EtcdHealth, quota_bytes: Option<u64>) -> EtcdMemberStatus {
    let url = member.url;
    match member.told {
        Ok(told) => EtcdMemberStatus {
            url,
            bytes: Some(told.bytes),
            quota_bytes,
            state: state_of(&told),
            trouble: (!told.troubles.is_empty()).then(|| told.troubles.join("; ")),
        },
        Err(why) => EtcdMemberStatus { url, quota_bytes, trouble: Some(why), ..EtcdMemberStatus::default() },
    }
}

fn state_of(told: &EtcdTold) -> EtcdMemberState {
    let has = |kind| told.alarms.contains(&Alarm { kind, member: Some(told.member) });
    match () {
        () if has(AlarmKind::Corrupt) => EtcdMemberState::Damaged,
        () if !told.has_leader => EtcdMemberState::NoLeader,
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

    #[test]
    fn an_alarm_is_said_once_and_also_when_its_member_is_gone() {
        let full = Alarm { kind: AlarmKind::NoSpace, member: Some(2) };
        let seen = Seen::of(vec![member(1, &[full]), member(2, &[full])], None);
        let url = Some("https://10.0.0.2:7402".to_owned());
        assert_eq!(seen.alarms, [EtcdAlarm { kind: EtcdAlarmKind::Full, url }]);
        let states: Vec<_> = seen.members.iter().map(|member| member.state).collect();
        assert_eq!(states, [EtcdMemberState::Serving, EtcdMemberState::Full]);
        let away = EtcdHealth { told: Err("connection refused".into()), ..member(2, &[]) };
        let seen = Seen::of(vec![member(1, &[full]), away], None);
        assert_eq!(seen.alarms, [EtcdAlarm { kind: EtcdAlarmKind::Full, url: None }]);
        assert_eq!(seen.members[1].state, EtcdMemberState::Away);
        let unknown = Alarm { kind: AlarmKind::Corrupt, member: None };
        let seen = Seen::of(vec![member(1, &[unknown]), member(2, &[unknown])], None);
        assert_eq!(seen.alarms, [EtcdAlarm { kind: EtcdAlarmKind::Damaged, url: None }]);
        assert!(seen.members.iter().all(|member| member.state == EtcdMemberState::Serving));
    }
}
