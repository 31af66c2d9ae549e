//! Which sessions end when users, groups and roles change: who changes them is told before it is done.

use control_api::{HttpConfig, Session, SmbSession, many};
use smb_protocol::security::Sid;
use smb_users::Directory;

use super::Node;
use crate::node::accounts::{is, is_session_of};

/// Sessions of shares that are named one by one; of more there is the number.
const NAMED: usize = 10;

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
        ending.into_iter().map(told).collect()
    }

    /// What ends with a user's sessions of shares, in sentences; none where it has nothing that ends.
    pub(in crate::node) fn share_sessions_ending(&self, user: &str, sid: Sid) -> Vec<String> {
        let sid = sid.to_string();
        let its = |smb: &SmbSession| is_session_of(smb, user, &sid);
        let all = self.backends.smb.sessions().into_iter();
        let sessions: Vec<Session> = all.filter(|session| session.smb.as_ref().is_some_and(its)).collect();
        let one = |session: &Session| {
            let opens = session.smb.as_ref().map_or(0, |smb| smb.opens);
            format!(
                "The session of {user} from {} ends, and what it has open is closed ({}).",
                session.address,
                many(opens, "open file")
            )
        };
        let mut told: Vec<String> = sessions.iter().take(NAMED).map(one).collect();
        let more = sessions.len().saturating_sub(NAMED);
        if more > 0 {
            told.push(format!("So do {} more of {user}.", many(more as u64, "session")));
        }
        let opens = self.backends.smb.opens().into_iter();
        let away = opens.filter(|open| open.session.is_none() && is(&open.user, user)).count();
        if away > 0 {
            told.push(format!(
                "{} of {user} whose clients are away, and may come back for it, {} closed.",
                many(away as u64, "open file"),
                if away == 1 { "is" } else { "are" }
            ));
        }
        told
    }
}
