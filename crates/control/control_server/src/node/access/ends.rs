//! Which sessions end when users, groups and roles change: who changes them is told before it is done.

use control_api::{HttpConfig, Session, SmbOpen, SmbSession, many};
use smb_protocol::security::Sid;
use smb_users::Directory;

use super::Node;
use crate::access::Access;
use crate::node::all_sessions::{AllSessions, OfAll, first, is, is_session_of};

impl Node {
    /// The sessions with the API that end where users and groups are those of `directory`, and roles those of `http`, in sentences.
    pub(in crate::node) fn api_sessions_ending(
        &self,
        directory: &Directory,
        http: &HttpConfig,
    ) -> Vec<String> {
        let ending = self.with_known(|known| self.access.ending(known, directory, http));
        let told = |(user, sessions): (String, u64)| {
            format!(
                "{} of {user} with the management of the node {}: {user} may not use it any more.",
                many(sessions, "session"),
                if sessions == 1 { "ends" } else { "end" }
            )
        };
        let mut told: Vec<String> = ending.into_iter().map(told).collect();
        // Other nodes do not say who is logged in there.
        if self.others().is_some_and(|(peers, _)| !peers.is_empty()) {
            let losing = self.with_known(|known| Access::losing(known, directory, http)).into_iter();
            let one = |user| {
                format!(
                    "{user} may not use the management of any node any more: sessions with other nodes end as well."
                )
            };
            let more = |left| format!("The same holds for {}.", many(left, "more user"));
            told.extend(first(losing.map(one).collect(), more));
        }
        told
    }

    /// What ends with a user's sessions of shares, in sentences; none where it has nothing that ends.
    pub(in crate::node) fn share_sessions_ending(
        user: &str,
        sid: Sid,
        (all, opens): &(AllSessions, OfAll<SmbOpen>),
    ) -> Vec<String> {
        let sid = sid.to_string();
        let its = |smb: &SmbSession| is_session_of(smb, user, &sid);
        let sessions = all.items.iter().filter(|session| session.smb.as_ref().is_some_and(its));
        let one = |session: &Session| {
            let opens = session.smb.as_ref().map_or(0, |smb| smb.opens);
            format!(
                "The session of {user} from {} ends, and what it has open is closed ({}).",
                session.address,
                many(opens, "open file")
            )
        };
        let more = |left| {
            format!("So {} {} more of {user}.", if left == 1 { "does" } else { "do" }, many(left, "session"))
        };
        let mut told = first(sessions.map(one).collect(), more);
        let away = opens.items.iter().filter(|open| open.session.is_none() && is(&open.user, user)).count();
        if away > 0 {
            told.push(format!(
                "{} of {user} whose clients are away, and may come back for it, {} closed.",
                many(away as u64, "open file"),
                if away == 1 { "is" } else { "are" }
            ));
        }
        // Whether there are any with a node that does not answer is not known, and they end all the same.
        told.extend(all.unknown().or_else(|| opens.unknown()));
        told
    }
}
