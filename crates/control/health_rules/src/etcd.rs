//! Rules of the etcd that a cluster keeps its shared state in.

use control_api::{ClusterStatus, EtcdMemberStatus, Issue, Severity};

use crate::{FindingCode, issue};

/// Members that do not answer, and databases that are full or will be.
pub(crate) fn of_etcd(cluster: &ClusterStatus) -> impl Iterator<Item = Issue> {
    let all = cluster.etcd.len();
    let answer = cluster.etcd.iter().filter(|member| member.bytes.is_some()).count();
    cluster.etcd.iter().filter_map(move |member| match member.bytes {
        None => Some(of_silent(member, answer, all)),
        Some(bytes) => of_space(member, bytes),
    })
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
    let detail = format!("it does not answer ({why}); {answer} of {all} members of etcd do{then}");
    let todo = "Start its machine, or the node that runs it, again; of a node that is gone for good `holdfast node remove` takes it away. `holdfast cluster status` shows all members.";
    let severity = if answer < majority { Severity::Error } else { Severity::Warning };
    issue(FindingCode::EtcdMemberAway, severity, format!("etcd {}", member.url), detail, todo.to_owned())
}

fn of_space(member: &EtcdMemberStatus, bytes: u64) -> Option<Issue> {
    let free = "Find out what fills it (another program in the same etcd?); then free it on each member with `etcdctl defrag`, and lift the alarm with `etcdctl alarm disarm`.";
    let (severity, detail) = if member.is_full {
        (
            Severity::Error,
            "its database has reached its quota, and it takes no changes: no pool can be taken over, and nothing of the configuration be changed".to_owned(),
        )
    } else {
        let quota = member.quota_bytes?;
        // Of a GiB of quota some 20 MiB are used by a cluster: at four fifths something is wrong, and there is time left.
        if bytes < quota / 5 * 4 {
            return None;
        }
        let percent = bytes.saturating_mul(100).checked_div(quota).unwrap_or(100);
        (
            Severity::Warning,
            format!("its database has {percent} % of its quota; at 100 % it takes no changes"),
        )
    };
    Some(issue(FindingCode::EtcdSpace, severity, format!("etcd {}", member.url), detail, free.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u16, bytes: Option<u64>) -> EtcdMemberStatus {
        EtcdMemberStatus {
            url: format!("https://10.0.0.{number}:7402"),
            bytes,
            quota_bytes: Some(1 << 30),
            trouble: bytes.is_none().then(|| "connection refused".to_owned()),
            ..EtcdMemberStatus::default()
        }
    }

    fn found(members: Vec<EtcdMemberStatus>) -> Vec<Issue> {
        let cluster = ClusterStatus {
            cluster: "c".into(),
            node: "n1".into(),
            takes_part: true,
            trouble: None,
            store_went_back: None,
            etcd: members,
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
    fn a_database_is_said_to_fill_before_it_is_full() {
        assert_eq!(found(vec![member(1, Some(800 << 20))]), []);
        let fills = found(vec![member(1, Some(900 << 20))]);
        assert_eq!((fills[0].code.as_str(), fills[0].severity), ("etcd-space", Severity::Warning));
        assert!(fills[0].detail.contains("87 %"), "{}", fills[0].detail);
        let given = EtcdMemberStatus { quota_bytes: None, ..member(1, Some(900 << 20)) };
        assert_eq!(found(vec![given.clone()]), [], "nobody knows the quota of an etcd that others run");
        let full = found(vec![EtcdMemberStatus { is_full: true, ..given }]);
        assert_eq!((full[0].code.as_str(), full[0].severity), ("etcd-space", Severity::Error));
    }
}
