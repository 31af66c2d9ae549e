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
/// What a member did not answer it is asked again so soon, before anything is said of it: one look that fails, as that of a node that has just started
/// on a busy machine, is no member that is away.
const AGAIN: Duration = Duration::from_secs(2);

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
    /// How many members have a vote; none while that is not known.
    pub(super) voters: Option<u64>,
}

impl SharedEtcd {
    pub(super) fn new(store: EtcdStore, managed: bool) -> Self {
        Self { store, managed, seen: Mutex::default() }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// How many members have a vote, and how many learn; none where others run it, or there is no answer.
    async fn voters(&self) -> Option<(u64, u64)> {
        if !self.managed {
            return None;
        }
        let members = self.store.members().await.ok()?;
        let learners = members.iter().filter(|member| member.learner).count() as u64;
        Some((members.len() as u64 - learners, learners))
    }

    /// Looks, for ever.
    pub(super) async fn watch_over(self: Arc<Self>) {
        let mut troubled = BTreeSet::new();
        loop {
            let health = self.store.health().await;
            let now: BTreeSet<String> =
                health.iter().filter(|member| is_troubled(member)).map(|member| member.url.clone()).collect();
            let is_new = !now.is_subset(&troubled);
            let voters = self.voters().await;
            {
                let mut seen = self.seen.lock();
                let looked = Seen::of(&health, self.managed.then_some(QUOTA_BYTES), &troubled, &seen);
                *seen = Seen { voters: voters.map(|(voters, _)| voters).or(seen.voters), ..looked };
            }
            troubled = now;
            // A member that learns is about to get its vote.
            let is_coming = voters.is_some_and(|(_, learners)| learners > 0);
            tokio::time::sleep(if is_new || is_coming { AGAIN } else { EVERY }).await;
        }
    }
}

/// Whether a member does not answer, or knows no leader.
fn is_troubled(member: &EtcdHealth) -> bool {
    member.told.as_ref().map_or(true, |told| !told.has_leader)
}

impl Seen {
    /// `troubled` are members that did not answer, or had no leader, at the look before, either: an election lasts a second, and one look may fail. One
    /// that has not been so before is as it was `before`, and is not told of where nothing was known of it.
    fn of(
        health: &[EtcdHealth],
        quota_bytes: Option<u64>,
        troubled: &BTreeSet<String>,
        before: &Self,
    ) -> Self {
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
        let of = |member: &EtcdHealth| {
            let was_troubled = troubled.contains(&member.url);
            if member.told.is_err() && !was_troubled {
                return before.members.iter().find(|known| known.url == member.url).cloned();
            }
            Some(shown(member, quota_bytes, was_troubled))
        };
        Self { alarms, members: health.iter().filter_map(of).collect(), voters: before.voters }
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
        Seen::of(health, None, &BTreeSet::new(), &Seen::default())
    }

    /// The second of two looks that find the same.
    fn seen_again(health: &[EtcdHealth]) -> Seen {
        let troubled = health.iter().filter(|member| is_troubled(member)).map(|member| member.url.clone());
        Seen::of(health, None, &troubled.collect(), &seen(health))
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
        let told = seen_again(&[member(1, &[full(2)]), away]);
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
        assert_eq!(seen_again(&[one]).members[0].state, EtcdMemberState::NoLeader);
    }

    #[test]
    fn one_look_that_fails_is_no_member_that_is_away() {
        let fine = [member(1, &[]), member(2, &[])];
        let failing = fine.clone().map(|member| EtcdHealth { told: Err("no answer in 5s".into()), ..member });
        let states = |seen: &Seen| seen.members.iter().map(|member| member.state).collect::<Vec<_>>();
        let first = seen(&failing);
        assert_eq!(states(&first), [], "a node that has just started knows nothing of them");
        let both = BTreeSet::from([fine[0].url.clone(), fine[1].url.clone()]);
        assert_eq!(states(&Seen::of(&failing, None, &both, &first)), [EtcdMemberState::Away; 2]);
        // Later they are as they were until a second look has failed, too.
        let before = seen(&fine);
        let serving = [EtcdMemberState::Serving; 2];
        assert_eq!(states(&Seen::of(&failing, None, &BTreeSet::new(), &before)), serving);
        let other = BTreeSet::from([fine[1].url.clone()]);
        assert_eq!(
            states(&Seen::of(&failing, None, &other, &before)),
            [EtcdMemberState::Serving, EtcdMemberState::Away]
        );
    }
}
