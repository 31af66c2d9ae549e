//! What clients have with other nodes of a cluster: asked for, and ended.
//!
//! Other nodes are asked before a turn or the lock of changes is taken, as one that hangs keeps nobody else waiting then; this node's own are
//! looked at after it.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use control_api::{BASE_PATH, Proof, Role, Session, SmbOpen, User};
use smb_protocol::security::Sid;

use super::Node;
use super::all_sessions::{AllSessions, Elsewhere, OfAll, is_session_of};
use crate::cluster::{By, NodePeer};

/// Another node has so long to end a user's sessions.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// Between looks whether it knows a new password.
const PAUSE: Duration = Duration::from_millis(100);
/// A login that was let in by the old password is a session after this.
const LOGIN: Duration = Duration::from_millis(500);

impl Node {
    /// Sessions with other nodes.
    pub(super) async fn sessions_elsewhere(&self) -> Elsewhere<Session> {
        self.elsewhere_of("/sessions").await
    }

    /// What clients of shares have open with other nodes, or may come back for.
    pub(super) async fn opens_elsewhere(&self) -> Elsewhere<SmbOpen> {
        self.elsewhere_of("/opens").await
    }

    /// The same with those of this node.
    pub(super) fn all_sessions(&self, elsewhere: Elsewhere<Session>) -> AllSessions {
        let mut all = elsewhere.0;
        all.items.extend(self.backends.iscsi.sessions());
        all.items.extend(self.backends.smb.sessions());
        all
    }

    /// The same with those of this node.
    pub(super) fn all_opens(&self, elsewhere: Elsewhere<SmbOpen>) -> OfAll<SmbOpen> {
        let mut all = elsewhere.0;
        all.items.extend(self.backends.smb.opens());
        all
    }

    async fn elsewhere_of<T: serde::de::DeserializeOwned>(&self, path: &str) -> Elsewhere<T> {
        let (peers, _) = self.others().unwrap_or_default();
        let by = self.itself(Role::Viewer);
        let asking = peers.iter().map(|peer| self.list_of::<T>(peer, &by, path));
        let answers = futures_util::future::join_all(asking).await;
        let Elsewhere(mut all) = Elsewhere::none();
        for (peer, answer) in peers.into_iter().zip(answers) {
            match answer {
                Some(items) => all.items.extend(items),
                None => all.silent.push(peer.name),
            }
        }
        Elsewhere(all)
    }

    /// What this node asks others by itself.
    pub(super) fn itself(&self, role: Role) -> By {
        By { who: format!("node {}", self.name()), proof: Some(Proof::Socket), role: Some(role) }
    }

    /// Ends the sessions of shares that a user has with other nodes by an old password. Says at which ones that is not certain.
    pub(super) async fn end_sessions_elsewhere(
        &self,
        user: &str,
        sid: Sid,
        password_set: u64,
    ) -> Vec<String> {
        let (peers, _) = self.others().unwrap_or_default();
        let ending = peers.iter().map(|peer| {
            tokio::time::timeout(ENDED_WITHIN, self.end_sessions_at(peer, user, sid, password_set))
        });
        let ended = futures_util::future::join_all(ending).await;
        let not = peers.into_iter().zip(ended).filter(|(_, ended)| !matches!(ended, Ok(true)));
        not.map(|(peer, _)| peer.name).collect()
    }

    /// Whether none is left with another node, once that knows the new password and lets nobody in by the old one.
    async fn end_sessions_at(&self, peer: &NodePeer, user: &str, sid: Sid, password_set: u64) -> bool {
        let by = self.itself(Role::Administrator);
        let id = sid.to_string();
        // At once, whatever it knows.
        let _ = self.sweep_at(peer, &by, user, &id).await;
        loop {
            let users = self.list_of::<User>(peer, &by, "/users").await.unwrap_or_default();
            if users.iter().any(|user| user.sid == id && user.password_set >= password_set) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        // Twice: logins under way are sessions then. What comes after that has the new password.
        for pause in [Duration::ZERO, LOGIN] {
            tokio::time::sleep(pause).await;
            if !self.sweep_at(peer, &by, user, &id).await {
                return false;
            }
        }
        true
    }

    /// Ends the sessions that a user has with another node now; whether all have ended.
    async fn sweep_at(&self, peer: &NodePeer, by: &By, user: &str, sid: &str) -> bool {
        let Some(sessions) = self.list_of::<Session>(peer, by, "/sessions").await else { return false };
        let its = |session: &&Session| session.smb.as_ref().is_some_and(|smb| is_session_of(smb, user, sid));
        let mut all = true;
        for session in sessions.iter().filter(its) {
            all &= self.end_session_at(peer, by, session.id).await;
        }
        all
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
