//! Handlers of findings, and of who is told of them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{Acknowledge, Code, Confirm, FindingQuery, List, Notifier, Problem};

use super::gate::Known;
use super::handle;
use super::parts::{Params, Sent, answer};
use crate::node::Node;

type S = State<Arc<Node>>;

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type P = Path<String>;
    type K = Extension<Known>;
    Some(match id {
        "finding_list" => handle(f, async |State(n): S, Params(q): Params<FindingQuery>| {
            answer(n.finding_list(&q).map(List::from))
        }),
        "finding_acknowledge" => {
            handle(f, async |State(n): S, Path(p): P, Extension(k): K, Sent(b): Sent<Acknowledge>| {
                let nobody = || Problem::new(Code::Unauthenticated, "Nobody is logged in.");
                match k.ok_or_else(nobody) {
                    Ok(asker) => answer(n.finding_acknowledge(&p, b, &asker).await),
                    Err(problem) => answer(Err(problem)),
                }
            })
        }
        "finding_unacknowledge" => {
            handle(f, async |State(n): S, Path(p): P| answer(n.finding_unacknowledge(&p).await))
        }
        "notifier_list" => handle(f, async |State(n): S| answer(Ok(List::from(n.notifier_list())))),
        "notifier_set" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<Notifier>| {
            answer(n.notifier_set(&p, b).await)
        }),
        "notifier_remove" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<Confirm>| {
            answer(n.notifier_remove(&p, b.confirm).await)
        }),
        "notifier_test" => handle(f, async |State(n): S, Path(p): P| answer(n.notifier_test(&p).await)),
        _ => return None,
    })
}
