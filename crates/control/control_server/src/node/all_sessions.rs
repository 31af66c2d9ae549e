//! What clients have with all nodes of a cluster: who is asked before some of it ends is told of what other nodes have, too.
//!
//! Other nodes are asked before a turn or the lock of changes is taken: one that hangs keeps nobody else waiting.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use control_api::{BASE_PATH, Role, Session, SmbOpen, many};
use smb_protocol::security::Sid;

use super::Node;
use super::accounts::is_session_of;
use crate::cluster::{By, NodePeer};

/// Sentences of one kind that are told one by one; of more there is the number.
const NAMED: usize = 10;
/// So often it is looked whether a user has sessions with another node still: it may log in until that node knows the new password.
const LOOKS: usize = 5;

/// What there is of one kind, with this node and those that have answered.
pub(super) struct OfAll<T> {
    pub(super) items: Vec<T>,
    /// The nodes that have not answered.
    silent: Vec<String>,
}

/// Sessions of both protocols.
pub(super) type AllSessions = OfAll<Session>;

impl<T> OfAll<T> {
    /// Where all have answered.
    #[cfg(test)]
    pub(super) fn known(items: Vec<T>) -> Self {
        Self { items, silent: Vec::new() }
    }

    /// That there may be more, in a sentence.
    pub(super) fn unknown(&self) -> Option<String> {
        let silent = self.silent.join(", ");
        (!silent.is_empty()).then(|| format!("{silent} did not answer: who is connected there is not known."))
    }
}

impl Node {
    /// Sessions with all nodes.
    pub(super) async fn all_sessions(&self) -> AllSessions {
        let mut own = self.backends.iscsi.sessions();
        own.extend(self.backends.smb.sessions());
        self.with_others(own, "/sessions").await
    }

    /// What clients of shares have open with all nodes, or may come back for.
    pub(super) async fn all_opens(&self) -> OfAll<SmbOpen> {
        self.with_others(self.backends.smb.opens(), "/opens").await
    }

    async fn with_others<T: serde::de::DeserializeOwned>(&self, own: Vec<T>, path: &str) -> OfAll<T> {
        let (peers, _) = self.others().unwrap_or_default();
        let by = self.itself(Role::Viewer);
        let asking = peers.iter().map(|peer| self.list_of::<T>(peer, &by, path));
        let answers = futures_util::future::join_all(asking).await;
        let mut all = OfAll { items: own, silent: Vec::new() };
        for (peer, answer) in peers.into_iter().zip(answers) {
            match answer {
                Some(items) => all.items.extend(items),
                None => all.silent.push(peer.name),
            }
        }
        all
    }

    /// What this node asks others by itself.
    fn itself(&self, role: Role) -> By {
        By { who: format!("node {}", self.name()), proof: None, role: Some(role) }
    }

    /// Ends a user's sessions of shares with all other nodes. Says at which ones that is not certain.
    pub(super) async fn end_sessions_elsewhere(&self, user: &str, sid: Sid) -> Vec<String> {
        let (peers, _) = self.others().unwrap_or_default();
        let ending = peers.iter().map(|peer| self.end_sessions_at(peer, user, sid));
        let ended = futures_util::future::join_all(ending).await;
        peers.into_iter().zip(ended).filter(|(_, ended)| !ended).map(|(peer, _)| peer.name).collect()
    }

    /// Whether the user has no session with another node any more.
    async fn end_sessions_at(&self, peer: &NodePeer, user: &str, sid: Sid) -> bool {
        let by = self.itself(Role::Operator);
        let sid = sid.to_string();
        for _ in 0..LOOKS {
            let Some(sessions) = self.list_of::<Session>(peer, &by, "/sessions").await else { return false };
            let its =
                |session: &&Session| session.smb.as_ref().is_some_and(|smb| is_session_of(smb, user, &sid));
            let its: Vec<u64> = sessions.iter().filter(its).map(|session| session.id).collect();
            if its.is_empty() {
                return true;
            }
            for id in its {
                if !self.end_session_at(peer, &by, id).await {
                    return false;
                }
            }
        }
        false
    }

    /// Ends a session with another node; that it has ended by itself is fine.
    async fn end_session_at(&self, peer: &NodePeer, by: &By, id: u64) -> bool {
        let request = Request::delete(format!("{BASE_PATH}/sessions/{id}"))
            .header("content-type", "application/json")
            .body(Body::from(format!("{{\"confirm\":\"{id}\"}}")));
        let Ok(request) = request else { return false };
        let answer = self.call(peer, by.clone(), request).await;
        answer.is_ok_and(|answer| matches!(answer.status(), StatusCode::OK | StatusCode::NOT_FOUND))
    }
}

/// The first of many sentences of one kind, and how many more there are.
pub(super) fn first(mut told: Vec<String>, more: impl FnOnce(u64) -> String) -> Vec<String> {
    let left = told.len().saturating_sub(NAMED);
    if left > 0 {
        told.truncate(NAMED);
        told.push(more(left as u64));
    }
    told
}

/// How many more sessions there are than those that were told.
pub(super) fn more_sessions(left: u64) -> String {
    format!("And so on: {}.", many(left, "more session"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_are_told_and_how_many_more() {
        let lines = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        let more = |left: u64| format!("{left} more");
        assert_eq!(first(lines(NAMED), more), lines(NAMED));
        let told = first(lines(NAMED + 2), more);
        assert_eq!((told.len(), told.last().map(String::as_str)), (NAMED + 1, Some("2 more")));
    }

    #[test]
    fn nodes_that_do_not_answer_are_named() {
        let all = AllSessions { items: vec![], silent: vec!["n2".into(), "n3".into()] };
        assert!(all.unknown().is_some_and(|told| told.starts_with("n2, n3 did not answer")));
        assert_eq!(AllSessions::known(vec![]).unknown(), None);
    }
}
