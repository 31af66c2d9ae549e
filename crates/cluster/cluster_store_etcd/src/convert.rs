//! Between the store's words and etcd's.

use cluster_store::{Change, Condition, Found, Outcome, Range, Revision, Step, StoreError, Transaction};

use crate::call::CallError;
use crate::messages::{
    Compare, Compared, Comparison, DeleteRangeRequest, Event, KeyValue, Op, PutRequest, RangeRequest,
    RequestOp, TxnRequest, TxnResponse, With,
};

/// The first key of a range and the one after its last; none after it when it is one key.
pub(crate) fn bounds(range: &Range) -> (Vec<u8>, Vec<u8>) {
    match range {
        Range::Key(key) => (key.clone().into_bytes(), Vec::new()),
        Range::Prefix(prefix) => (first_of(prefix), after(prefix)),
    }
}

/// The key at which those with a prefix begin: etcd has no empty key.
pub(crate) fn first_of(prefix: &str) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() }
}

/// The first key after all that begin so.
pub(crate) fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // etcd's word for "to the end".
    vec![0]
}

pub(crate) fn revision_out(revision: Revision) -> Result<i64, StoreError> {
    i64::try_from(revision.0)
        .map_err(|_| StoreError::Invalid(format!("{} is the number of no revision", revision.0)))
}

pub(crate) fn revision_in(revision: i64) -> Result<Revision, CallError> {
    match u64::try_from(revision) {
        Ok(revision) if revision != 0 => Ok(Revision(revision)),
        _ => Err(CallError::Broken(format!("etcd says that it is at revision {revision}"))),
    }
}

/// What is there under a key; `None` for a key that is nobody's here.
pub(crate) fn found(kv: KeyValue) -> Option<Found> {
    Some(Found {
        key: String::from_utf8(kv.key).ok()?,
        value: kv.value,
        created: Revision(u64::try_from(kv.create_revision).ok()?),
        modified: Revision(u64::try_from(kv.mod_revision).ok()?),
    })
}

/// A change with the revision that made it.
pub(crate) fn change(event: Event) -> Option<(Revision, Option<Change>)> {
    let deleted = event.kind == 1;
    let kv = event.kv?;
    let revision = Revision(u64::try_from(kv.mod_revision).ok()?);
    let change = if deleted {
        String::from_utf8(kv.key).ok().map(|key| Change { revision, key, now: None })
    } else {
        found(kv).map(|found| Change { revision, key: found.key.clone(), now: Some(found) })
    };
    Some((revision, change))
}

pub(crate) fn transaction(transaction: &Transaction) -> Result<TxnRequest, StoreError> {
    let compare = transaction.conditions.iter().map(compare).collect::<Result<_, _>>()?;
    let reads = transaction.reads.iter().map(|key| {
        let range = RangeRequest { key: key.clone().into_bytes(), ..RangeRequest::default() };
        RequestOp { op: Some(Op::Range(range)) }
    });
    let steps = transaction.steps.iter().map(|step| {
        let op = match step {
            Step::Put(key, value) => {
                Op::Put(PutRequest { key: key.clone().into_bytes(), value: value.clone() })
            }
            Step::Delete(key) => Op::Delete(DeleteRangeRequest { key: key.clone().into_bytes() }),
        };
        RequestOp { op: Some(op) }
    });
    Ok(TxnRequest { compare, success: steps.chain(reads.clone()).collect(), failure: reads.collect() })
}

fn compare(condition: &Condition) -> Result<Compare, StoreError> {
    let (result, target, with) = match condition {
        Condition::Modified(_, revision) => {
            (Comparison::Equal, Compared::Modified, With::Modified(revision_out(*revision)?))
        }
        Condition::Created(_, revision) => {
            (Comparison::Equal, Compared::Created, With::Created(revision_out(*revision)?))
        }
        Condition::Value(_, value) => (Comparison::Equal, Compared::Value, With::Value(value.clone())),
        Condition::Absent(_) => (Comparison::Equal, Compared::Created, With::Created(0)),
        Condition::Present(_) => (Comparison::Greater, Compared::Created, With::Created(0)),
    };
    let key = condition.key().as_bytes().to_vec();
    Ok(Compare { result: result as i32, target: target as i32, key, with: Some(with) })
}

/// What came of a transaction. An answer that does not fit says nothing about it.
pub(crate) fn outcome(asked: &Transaction, answer: TxnResponse) -> Result<Outcome, StoreError> {
    let unfit = |what: &str| StoreError::Unknown(format!("an answer that does not fit: {what}"));
    let header = answer.header.ok_or_else(|| unfit("no header"))?;
    let revision = revision_in(header.revision).map_err(|_| unfit("no revision"))?;
    let steps = if answer.succeeded { asked.steps.len() } else { 0 };
    if answer.responses.len() != steps + asked.reads.len() {
        return Err(unfit("another number of answers than of questions"));
    }
    let reads = answer.responses.into_iter().skip(steps).map(|response| {
        let mut range = response.range.ok_or_else(|| unfit("no answer to a read"))?;
        Ok(range.kvs.pop().and_then(found))
    });
    Ok(Outcome { done: answer.succeeded, revision, reads: reads.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(after("/a/"), b"/a0");
        assert_eq!(after("/\u{7f}"), b"/\x80");
        assert_eq!(after(""), [0]);
        assert_eq!(first_of(""), [0]);
    }

    /// An answer is not believed because it decodes.
    #[test]
    fn an_answer_that_does_not_fit_is_none() {
        let asked = Transaction {
            steps: vec![Step::Delete("/a".into())],
            reads: vec!["/a".into()],
            ..Transaction::default()
        };
        let header = Some(crate::messages::ResponseHeader { cluster_id: 1, member_id: 2, revision: 7 });
        let answer = |responses: Vec<crate::messages::ResponseOp>, succeeded| TxnResponse {
            header: header.clone(),
            succeeded,
            responses,
        };
        let read = crate::messages::ResponseOp { range: Some(crate::messages::RangeResponse::default()) };
        let step = crate::messages::ResponseOp::default();
        assert!(
            outcome(&asked, answer(vec![step.clone(), read.clone()], true)).is_ok_and(|outcome| outcome.done)
        );
        assert!(outcome(&asked, answer(vec![read.clone()], false)).is_ok_and(|outcome| !outcome.done));
        for wrong in [
            answer(vec![read.clone()], true),
            answer(vec![read.clone(), step.clone()], true),
            answer(vec![step, read.clone()], false),
            TxnResponse { header: None, ..answer(vec![read], false) },
        ] {
            let error = outcome(&asked, wrong).expect_err("does not fit");
            assert!(!error.is_certainly_not_done(), "{error}");
        }
    }
}
