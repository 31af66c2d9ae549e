//! How each member of etcd is, asked one by one: requests go to whichever answers, so nobody else notices that another one is away.

use crate::EtcdStore;
use crate::call::{self, framed};
use crate::messages::{StatusRequest, StatusResponse};

/// The most troubles that are taken from an answer, and characters of each.
const MAX_TROUBLES: usize = 8;
const MAX_TEXT: usize = 200;

/// An endpoint of etcd, as it answers now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdHealth {
    /// Its URL, as it was given.
    pub url: String,
    /// What it says of itself, or why it says nothing.
    pub told: Result<EtcdTold, String>,
}

/// An alarm of etcd: while it is in force no member takes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// What is the matter.
    pub kind: AlarmKind,
    /// The member with which it is; none where etcd does not know.
    pub member: Option<u64>,
}

/// What is the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The database has reached its quota (NOSPACE).
    NoSpace,
    /// The database is not what those of other members are (CORRUPT): nothing is answered either.
    Corrupt,
}

impl Alarm {
    /// `memberID:7 alarm:NOSPACE `, as etcd writes it; the id is left out where it is 0.
    fn parse(words: &str) -> Option<Self> {
        let of = |name: &str| words.split_whitespace().find_map(|word| word.strip_prefix(name));
        let kind = match of("alarm:")? {
            "NOSPACE" => AlarmKind::NoSpace,
            "CORRUPT" => AlarmKind::Corrupt,
            _ => return None,
        };
        Some(Self { kind, member: of("memberID:").and_then(|id| id.parse().ok()).filter(|id| *id != 0) })
    }
}

/// What a member of etcd says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTold {
    /// The size of its database's file, in bytes: what its quota is about.
    pub bytes: u64,
    /// Its id among the members.
    pub member: u64,
    /// The alarms that are in force, of any member. They outlive their member.
    pub alarms: Vec<Alarm>,
    /// It knows who leads; without a leader it answers nothing that all members have to agree on.
    pub has_leader: bool,
    /// What it has to complain of, in its words: also alarms of other members.
    pub troubles: Vec<String>,
}

impl EtcdTold {
    fn of(status: StatusResponse) -> Self {
        let plain = |text: String| {
            let text: String = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
            text.trim().to_owned()
        };
        Self {
            bytes: u64::try_from(status.db_size).unwrap_or(0),
            member: status.header.map_or(0, |header| header.member_id),
            alarms: status.errors.iter().take(MAX_TROUBLES).filter_map(|words| Alarm::parse(words)).collect(),
            has_leader: status.leader != 0,
            troubles: status.errors.into_iter().take(MAX_TROUBLES).map(plain).collect(),
        }
    }
}

impl EtcdStore {
    /// Asks every endpoint, one after the other; which one requests go to stays as it is. One that does not answer costs
    /// [`crate::Patience::connect`], or [`crate::Patience::request`] where it accepts connections and says nothing.
    pub async fn health(&self) -> Vec<EtcdHealth> {
        let mut all = Vec::new();
        for place in self.0.all() {
            let url = place.url().to_owned();
            let patience = self.0.patience.request;
            let told = match self.0.sender(&place).await {
                Ok(mut sender) => {
                    let request = framed(&StatusRequest {});
                    let asking =
                        call::unary::<StatusResponse>(&mut sender, &url, call::STATUS, request, patience);
                    match tokio::time::timeout(patience, asking).await {
                        Ok(status) => status.map(EtcdTold::of).map_err(|error| error.to_string()),
                        Err(_) => Err(format!("no answer in {patience:?}")),
                    }
                }
                Err(why) => Err(why),
            };
            all.push(EtcdHealth { url, told });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_says_is_bounded_and_no_control_of_a_terminal() {
        let errors = vec!["memberID:7 alarm:NOSPACE ".to_owned(), format!("\x1b[2J{}", "x".repeat(5000))];
        let errors = errors.into_iter().cycle().take(1000).collect();
        let told = EtcdTold::of(StatusResponse { db_size: -1, errors, ..StatusResponse::default() });
        assert_eq!((told.bytes, told.troubles.len()), (0, MAX_TROUBLES));
        assert_eq!(told.troubles[0], "memberID:7 alarm:NOSPACE");
        assert!(told.troubles[1].starts_with("[2J") && told.troubles[1].len() <= MAX_TEXT);
    }

    #[test]
    fn alarms_are_read_with_their_members() {
        let alarm = |kind, member| Some(Alarm { kind, member });
        assert_eq!(Alarm::parse("memberID:7 alarm:NOSPACE "), alarm(AlarmKind::NoSpace, Some(7)));
        assert_eq!(Alarm::parse("memberID:17 alarm:CORRUPT"), alarm(AlarmKind::Corrupt, Some(17)));
        assert_eq!(Alarm::parse("alarm:CORRUPT"), alarm(AlarmKind::Corrupt, None), "whose is not known");
        for other in ["", "etcdserver: no leader", "memberID:7", "memberID:7 alarm:NEW"] {
            assert_eq!(Alarm::parse(other), None, "{other}");
        }
        assert!(!EtcdTold::of(StatusResponse::default()).has_leader);
    }
}
