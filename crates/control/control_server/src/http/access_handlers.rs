//! Handlers of who may ask: logging in, tokens, the listener of the network, the record of changes, metrics.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{
    ApiTokenCreate, Code, Confirm, Done, HttpUpdate, List, Login, Password, Problem, SESSION_COOKIE,
};
use serde::Deserialize;

use super::failure::Failure;
use super::gate::Known;
use super::handle;
use super::parts::{Json, Params, S, Sent, answer};
use super::subject::Subject;
use crate::network::Peer;
use crate::node::Node;

#[derive(Deserialize)]
struct LimitQuery {
    limit: Option<usize>,
}

fn nobody() -> Problem {
    Problem::new(Code::Unauthenticated, "Nobody is logged in.")
}

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type K = Extension<Known>;
    Some(match id {
        "login" => handle(f, log_in),
        "logout" => handle(f, log_out),
        "me" => handle(f, async |Extension(k): K| answer(k.map(|asker| asker.me()).ok_or_else(nobody))),
        "http_show" => handle(f, async |State(n): S| Json(n.http_show())),
        "http_update" => {
            handle(f, async |State(n): S, Sent(b): Sent<HttpUpdate>| answer(n.http_update(b).await))
        }
        "token_list" => handle(f, async |State(n): S| Json(List::from(n.token_list()))),
        "token_create" => handle(f, async |State(n): S, Extension(k): K, Sent(b): Sent<ApiTokenCreate>| {
            answer(k.ok_or_else(nobody).and_then(|asker| n.token_create(b, &asker)))
        }),
        "token_revoke" => handle(f, async |State(n): S, Path(t): Path<String>, Sent(b): Sent<Confirm>| {
            answer(n.token_revoke(&t, b.confirm))
        }),
        "audit_list" => handle(f, async |State(n): S, Params(q): Params<LimitQuery>| {
            let listed = tokio::task::spawn_blocking(move || n.audit_list(q.limit)).await;
            let failed =
                |error| Err(Problem::new(Code::Internal, format!("the record can't be read: {error}")));
            answer(listed.unwrap_or_else(failed).map(List::from))
        }),
        "event_stream" => handle(f, super::event_stream::listen),
        "metrics" => handle(f, async |State(n): S| {
            let text = n.metrics().await.map_err(Failure::from)?;
            Ok::<_, Failure>(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
        }),
        _ => return None,
    })
}

fn cookie(value: &str, more: &str) -> Result<HeaderValue, Failure> {
    let text = format!("{SESSION_COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{more}");
    HeaderValue::from_str(&text).map_err(|error| Problem::new(Code::Internal, error.to_string()).into())
}

async fn log_in(
    State(node): S,
    Extension(peer): Extension<Peer>,
    Extension(subject): Extension<Subject>,
    Sent(Login { user, password: Password(password) }): Sent<Login>,
) -> Result<Response, Failure> {
    let Peer::Network(from) = peer else {
        let problem = Problem::new(
            Code::WrongState,
            "On the node's socket nobody logs in: who is here may do everything.",
        );
        return Err(problem.into());
    };
    // What somebody types as a name may be a password: only names that there are get into the record, and nothing of what was sent.
    subject.given(&serde_json::Value::Null);
    subject.names(node.user_show(&user).ok().map(|user| user.name));
    let (asker, secret) = node.log_in(&user, &password, from)?;
    subject.asker(asker.clone());
    let mut response = Json(asker.me()).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie(&secret, "")?);
    Ok(response)
}

async fn log_out(State(node): S, Extension(known): Extension<Known>) -> Result<Response, Failure> {
    let asker = known.ok_or_else(nobody)?;
    let said = if node.log_out(&asker) { "The session has ended." } else { "There was no session to end." };
    let mut response = Json(Done::new(said)).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie("", "; Max-Age=0")?);
    Ok(response)
}
