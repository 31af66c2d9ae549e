//! What clients have with all nodes of a cluster, for who is asked before some of it ends. `sessions_elsewhere` gathers it.

use control_api::{Session, SmbSession, many};
use smb_users::names::upper;

/// Sentences of one kind that are told one by one; of more there is the number.
const NAMED: usize = 10;

/// What there is of one kind, with nodes that have answered.
pub(super) struct OfAll<T> {
    pub(super) items: Vec<T>,
    /// The nodes that have not answered.
    pub(super) silent: Vec<String>,
}

/// Sessions of both protocols.
pub(super) type AllSessions = OfAll<Session>;

/// What other nodes have.
pub(super) struct Elsewhere<T>(pub(super) OfAll<T>);

impl<T> Elsewhere<T> {
    /// For who does not need to know.
    pub(super) fn none() -> Self {
        Self(OfAll { items: Vec::new(), silent: Vec::new() })
    }
}

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

pub(super) fn is(who: &str, name: &str) -> bool {
    upper(who) == upper(name)
}

/// Whether a session of shares is one of this user: by its SID, as a session goes on under the name that the user had when it began.
pub(super) fn is_session_of(session: &SmbSession, user: &str, sid: &str) -> bool {
    if session.sid.is_empty() { is(&session.user, user) } else { session.sid == sid }
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
