//! What handlers are made of: bodies and queries that fail with problems, answers, errors.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control_api::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::node::Node;

/// A problem as an answer.
pub(crate) struct Failure(Problem);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}

/// What a handler answers.
pub(crate) type Answer<T> = Result<Json<T>, Failure>;

/// A JSON answer.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                Failure(Problem::new(Code::Internal, format!("the answer can't be written: {error}")))
                    .into_response()
            }
        }
    }
}

/// Turns what a method of the node returns into an answer.
pub(crate) fn answer<T>(result: Result<T, Problem>) -> Answer<T> {
    result.map(Json).map_err(Failure)
}

/// A JSON request. An empty body counts as `{}`, so that `curl -X POST` without one works where nothing is
/// needed.
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Node>> for Sent<T> {
    type Rejection = Failure;

    async fn from_request(request: Request<Body>, state: &Arc<Node>) -> Result<Self, Failure> {
        let wrong =
            |why: String| Failure(Problem::new(Code::InvalidRequest, format!("The request's body: {why}.")));
        let bytes = Bytes::from_request(request, state).await.map_err(|error| wrong(error.to_string()))?;
        let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(bytes).map(Self).map_err(|error| wrong(error.to_string()))
    }
}

/// Query parameters.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Node>> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Node>) -> Result<Self, Failure> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(query) => Ok(Self(query.0)),
            Err(error) => Err(Failure(Problem::new(Code::InvalidRequest, format!("The query: {error}.")))),
        }
    }
}
