//! What handlers are made of: bodies and queries that fail with problems, numbers in paths, answers.

use std::sync::Arc;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Method as HttpMethod, header};
use axum::response::{IntoResponse, Response};
use control_api::{Code, Problem};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Failure;
use super::subject::{BODY, Subject};
use crate::node::Node;

/// What every handler is given.
pub(super) type S = State<Arc<Node>>;

/// What a handler answers.
pub(crate) type Answer<T> = Result<Json<T>, Failure>;

/// A JSON answer.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                Failure::from(Problem::new(Code::Internal, format!("the answer can't be written: {error}")))
                    .into_response()
            }
        }
    }
}

/// Turns what a method of the node returns into an answer.
pub(crate) fn answer<T>(result: Result<T, Problem>) -> Answer<T> {
    result.map(Json).map_err(Failure::from)
}

/// A JSON request. An empty body counts as `{}`, so that `curl -X POST` without one works where nothing is
/// needed.
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Node>> for Sent<T> {
    type Rejection = Failure;

    async fn from_request(request: Request<Body>, state: &Arc<Node>) -> Result<Self, Failure> {
        let wrong =
            |why: String| Failure::from(Problem::new(Code::InvalidRequest, format!("{BODY}: {why}.")));
        let subject = request.extensions().get::<Subject>().cloned();
        // What a thing is to be called or where it is to be is no name of the thing that is changed, but a field of it.
        let names_things = matches!(*request.method(), HttpMethod::POST | HttpMethod::DELETE);
        let bytes = Bytes::from_request(request, state).await.map_err(|error| wrong(error.to_string()))?;
        let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let named = || serde_json::from_slice::<Named>(bytes);
        if let (Some(subject), Some(Ok(named))) = (&subject, names_things.then(named)) {
            subject.names(named.told());
        }
        let sent = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if let (Some(subject), Ok(body)) = (&subject, serde_json::from_slice(bytes)) {
            subject.given(&body);
        }
        Ok(Self(sent))
    }
}

/// What of a request may be recorded: names, never what could be a secret. Whatever is no text is left out.
#[derive(Deserialize)]
struct Named {
    name: Option<Value>,
    path: Option<Value>,
    from: Option<Value>,
    to: Option<Value>,
    address: Option<Value>,
    lun: Option<Value>,
    policy: Option<Value>,
}

impl Named {
    fn told(self) -> Vec<String> {
        let Self { name, path, from, to, address, lun, policy } = self;
        let all = [name, path, from, to, address, lun, policy].into_iter().flatten();
        all.filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }
}

/// Query parameters.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Node>> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Node>) -> Result<Self, Failure> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(query) => Ok(Self(query.0)),
            Err(error) => {
                Err(Failure::from(Problem::new(Code::InvalidRequest, format!("The query: {error}."))))
            }
        }
    }
}

/// What of a refused body is still taken: a second's worth. Who sends more finds the connection closed.
const DISCARD_MAX: usize = 256 << 20;

pub(super) async fn discard(data: &mut BodyDataStream) {
    let mut taken = 0;
    while let Some(Ok(chunk)) = data.next().await {
        taken += chunk.len();
        if taken > DISCARD_MAX {
            return;
        }
    }
}

/// A number in a path, of something that each node numbers itself; in a cluster with the name of its node, as lists say it.
pub(super) fn number(node: &Node, text: &str) -> Result<u64, Problem> {
    let own = text.split_once(':').filter(|(of, _)| *of == node.name()).map(|(_, number)| number);
    let not = || Problem::new(Code::InvalidRequest, format!("{text:?} is not a number."));
    own.unwrap_or(text).parse().map_err(|_| not())
}
