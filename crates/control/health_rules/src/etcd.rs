//! Rules of the etcd that a cluster keeps its shared state in.

use control_api::{
    ClusterStatus, EtcdAlarm, EtcdAlarmKind, EtcdMemberState, EtcdMemberStatus, Issue, Severity,
};

use crate::{FindingCode, issue};

/// Alarms, members that do not answer or are cut off, and databases that fill.
pub(crate) fn of_etcd(cluster: &ClusterStatus) -> impl Iterator<Item = Issue> {
    let all = cluster.etcd.len();
    let serves = |member: &&EtcdMemberStatus| {
        !matches!(member.state, EtcdMemberState::Away | EtcdMemberState::NoLeader)
    };
    let answer = cluster.etcd.iter().filter(serves).count();
    let members = cluster.etcd.iter().filter_map(move |member| match member.state {
        EtcdMemberState::Away | EtcdMemberState::NoLeader => Some(of_silent(member, answer, all)),
        // Their alarms say so.
        EtcdMemberState::Damaged | EtcdMemberState::Full => None,
        EtcdMemberState::Serving => of_space(member),
    });
    cluster.etcd_alarms.iter().map(of_alarm).chain(members)
}

/// An alarm stops all of etcd, whoever has raised it, and stays when that member is gone.
fn of_alarm(alarm: &EtcdAlarm) -> Issue {
    let whose = match &*alarm.urls {
        [] => "a member that is away, gone or not known".to_owned(),
        [url] => format!("member {url}"),
        urls => format!("members {}", urls.join(", ")),
    };
    let (code, detail, todo) = match alarm.kind {
        EtcdAlarmKind::Full => (
            FindingCode::EtcdSpace,
            format!(
                "it takes no changes, as the database of {whose} has reached its quota (alarm NOSPACE): no pool can be taken over, and nothing of the configuration be changed"
            ),
            FREE,
        ),
        EtcdAlarmKind::Damaged => (
            FindingCode::EtcdDamaged,
            format!(
                "it answers nothing, as the database of {whose} is not what those of others are (alarm CORRUPT): no pool can be taken over, and nothing be changed"
            ),
            "Find out which member differs (`etcdctl endpoint hashkv --cluster`; by default none is looked for), and stop its etcd alone. Then lift the alarm with `etcdctl alarm disarm`, take that node out with `holdfast node remove`, and let it join anew.",
        ),
    };
    issue(code, Severity::Error, "etcd".to_owned(), detail, todo.to_owned())
}

fn of_silent(member: &EtcdMemberStatus, answer: usize, all: usize) -> Issue {
    let why = member.trouble.as_deref().unwrap_or("it is not known why");
    let majority = all / 2 + 1;
    let then = match answer {
        _ if answer < majority => {
            "; that is no majority: no pool can be taken over, and nothing be changed, until one is back"
        }
        _ if answer == majority => {
            "; if one more is lost, no pool can be taken over, and nothing be changed, until it is back"
        }
        _ => "",
    };
    let does = match member.state {
        EtcdMemberState::NoLeader => "it is cut off from the leader, if there is one",
        _ => "it does not answer",
    };
    let detail = format!("{does} ({why}); {answer} of {all} members of etcd serve{then}");
    let todo = "Start its machine, or the node that runs it, again; of a node that is gone for good `holdfast node remove` takes it away. `holdfast cluster status` shows all members.";
    let severity = if answer < majority { Severity::Error } else { Severity::Warning };
    issue(FindingCode::EtcdMemberAway, severity, format!("etcd {}", member.url), detail, todo.to_owned())
}

/// What makes room in etcd.
const FREE: &str = "Find out what fills it (another program in the same etcd?); then free it on each member with `etcdctl defrag`, and lift the alarm with `etcdctl alarm disarm`.";

fn of_space(member: &EtcdMemberStatus) -> Option<Issue> {
    let (bytes, quota) = (member.bytes?, member.quota_bytes?);
    // Of a GiB of quota some 20 MiB are used by a cluster: at four fifths something is wrong, and there is time left.
    if bytes < quota / 5 * 4 {
        return None;
    }
    let percent = bytes.saturating_mul(100).checked_div(quota).unwrap_or(100);
    let detail = format!("its database has {percent} % of its quota; at 100 % it takes no changes");
    Some(issue(
        FindingCode::EtcdSpace,
        Severity::Warning,
        format!("etcd {}", member.url),
        detail,
        FREE.to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u16, bytes: Option<u64>) -> EtcdMemberStatus {
        EtcdMemberStatus {
            url: format!("https://10.0.0.{number}:7402"),
            bytes,
            quota_bytes: Some(1 << 30),
            state: bytes.map_or(EtcdMemberState::Away, |_| EtcdMemberState::Serving),
            trouble: bytes.is_none().then(|| "connection refused".to_owned()),
        }
    }

    fn found(members: Vec<EtcdMemberStatus>) -> Vec<Issue> {
        found_with(members, Vec::new())
    }

    fn found_with(members: Vec<EtcdMemberStatus>, alarms: Vec<EtcdAlarm>) -> Vec<Issue> {
        let cluster = ClusterStatus {
            cluster: "c".into(),
            node: "n1".into(),
            takes_part: true,
            trouble: None,
            store_went_back: None,
            store_unreadable: false,
            removed: false,
            cut_off: Vec::new(),
            etcd: members,
            etcd_voters: None,
            etcd_alarms: alarms,
            summary: Vec::new(),
            pools: Vec::new(),
            nodes: Vec::new(),
        };
        of_etcd(&cluster).collect()
    }

    #[test]
    fn members_that_answer_and_have_room_are_no_finding() {
        for count in 0..4 {
            assert_eq!(found((0..count).map(|number| member(number, Some(20 << 20))).collect()), []);
        }
    }

    #[test]
    fn a_member_that_is_away_is_said_with_what_a_further_loss_would_do() {
        let fine = Some(20 << 20);
        let one = found(vec![member(1, fine), member(2, fine), member(3, None)]);
        assert_eq!(one.len(), 1);
        assert_eq!((one[0].code.as_str(), one[0].severity), ("etcd-member-away", Severity::Warning));
        assert_eq!(one[0].subject, "etcd https://10.0.0.3:7402");
        assert!(one[0].detail.contains("connection refused") && one[0].detail.contains("2 of 3"));
        assert!(one[0].detail.contains("if one more is lost"), "{}", one[0].detail);
        let five = found((1..=4).map(|number| member(number, fine)).chain([member(5, None)]).collect());
        assert!(!five[0].detail.contains("one more"), "{}", five[0].detail);
        let two = found(vec![member(1, fine), member(2, None), member(3, None)]);
        assert!(two.len() == 2 && two.iter().all(|issue| issue.severity == Severity::Error));
        assert!(two[0].detail.contains("no majority"), "{}", two[0].detail);
    }

    #[test]
    fn a_member_without_a_leader_is_said() {
        let fine = Some(20 << 20);
        let cut = EtcdMemberStatus { state: EtcdMemberState::NoLeader, ..member(3, fine) };
        let found_cut = found(vec![member(1, fine), member(2, fine), cut.clone()]);
        assert_eq!((found_cut.len(), found_cut[0].code.as_str()), (1, "etcd-member-away"));
        assert!(
            found_cut[0].detail.contains("2 of 3") && found_cut[0].detail.contains("leader"),
            "{}",
            found_cut[0].detail
        );
        let all = found(vec![cut.clone(), cut.clone(), cut]);
        assert!(all.iter().all(|issue| issue.severity == Severity::Error), "no majority");
    }

    #[test]
    fn alarms_are_said_once_for_all_members() {
        let fine = Some(20 << 20);
        let full = EtcdMemberStatus { state: EtcdMemberState::Full, ..member(2, fine) };
        let alarm =
            |kind, url: Option<&str>| EtcdAlarm { kind, urls: url.map(str::to_owned).into_iter().collect() };
        let members = vec![member(1, fine), full.clone()];
        let space = found_with(members, vec![alarm(EtcdAlarmKind::Full, Some(&full.url))]);
        assert_eq!((space.len(), space[0].code.as_str()), (1, "etcd-space"));
        assert_eq!((space[0].severity, &*space[0].subject), (Severity::Error, "etcd"));
        assert!(space[0].detail.contains(&full.url), "{}", space[0].detail);
        // Its member is gone, and the alarm is not.
        let damaged = found_with(vec![member(1, fine)], vec![alarm(EtcdAlarmKind::Damaged, None)]);
        assert_eq!((damaged.len(), damaged[0].code.as_str()), (1, "etcd-damaged"));
        assert!(damaged[0].detail.contains("not known"), "{}", damaged[0].detail);
    }

    #[test]
    fn a_database_is_said_to_fill_before_it_is_full() {
        assert_eq!(found(vec![member(1, Some(800 << 20))]), []);
        let fills = found(vec![member(1, Some(900 << 20))]);
        assert_eq!((fills[0].code.as_str(), fills[0].severity), ("etcd-space", Severity::Warning));
        assert!(fills[0].detail.contains("87 %"), "{}", fills[0].detail);
        let given = EtcdMemberStatus { quota_bytes: None, ..member(1, Some(900 << 20)) };
        assert_eq!(found(vec![given]), [], "nobody knows the quota of an etcd that others run");
    }
}
