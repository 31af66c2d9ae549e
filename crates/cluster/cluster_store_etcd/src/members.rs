//! Which machines etcd itself is made of: asked for, added, promoted and removed.
//!
//! A new one comes as a learner, which has no vote: the others decide without it until it has all that they have. Removing and
//! promoting are refused by etcd itself where too few members would be left that answer (`--strict-reconfig-check`, its default).

use cluster_store::StoreError;

use crate::messages::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberRequest, MembersResponse,
};
use crate::{EtcdStore, call, verdict};

/// The most members that are taken from an answer; etcd advises against more than seven.
const MAX_MEMBERS: usize = 64;

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMember {
    /// The number that etcd has given it.
    pub id: u64,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// Where the other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; none until it has started for the first time.
    pub client_urls: Vec<String>,
    /// It learns, and has no vote yet.
    pub learner: bool,
}

fn told(members: Vec<Member>) -> Vec<EtcdMember> {
    let told = members.into_iter().take(MAX_MEMBERS).map(|member| EtcdMember {
        id: member.id,
        name: member.name,
        peer_urls: member.peer_urls,
        client_urls: member.client_urls,
        learner: member.is_learner,
    });
    told.collect()
}

impl EtcdStore {
    /// The members.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn members(&self) -> Result<Vec<EtcdMember>, StoreError> {
        let request = MemberListRequest { linearizable: true };
        let answer: Result<MembersResponse, _> = self.0.call(call::MEMBER_LIST, &request).await;
        answer.map(|answer| told(answer.members)).map_err(verdict::of_read)
    }

    /// Adds a member that learns; the members afterwards. It has to be started with all of them then.
    ///
    /// # Errors
    /// What etcd says: one that learns already, a URL that another member has, too few members that answer. Like that of a transaction,
    /// [`StoreError::Unknown`] may have been done.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Vec<EtcdMember>, StoreError> {
        let request = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        let answer: Result<MemberAddResponse, _> = self.0.call(call::MEMBER_ADD, &request).await;
        answer.map(|answer| told(answer.members)).map_err(verdict::of_transaction)
    }

    /// A member that learns has a vote from now on.
    ///
    /// # Errors
    /// As long as it does not have what the others have; likewise.
    pub async fn promote(&self, id: u64) -> Result<(), StoreError> {
        let request = MemberRequest { id };
        let answer: Result<MembersResponse, _> = self.0.call(call::MEMBER_PROMOTE, &request).await;
        answer.map(drop).map_err(verdict::of_transaction)
    }

    /// A member is none any more; its process ends by itself.
    ///
    /// # Errors
    /// When too few members would be left that answer; likewise.
    pub async fn remove_member(&self, id: u64) -> Result<(), StoreError> {
        let request = MemberRequest { id };
        let answer: Result<MembersResponse, _> = self.0.call(call::MEMBER_REMOVE, &request).await;
        answer.map(drop).map_err(verdict::of_transaction)
    }
}
