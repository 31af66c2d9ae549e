//! Where members, and nodes that want to join, are answered.

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use cluster_identity::ClusterIdentity;
use cluster_join::{ADMIT_PATH, JoinRequest, Kind, MAX_REQUEST_BYTES, Steward, admit};
use cluster_node::is_of;
use cluster_store_etcd::EtcdStore;
use control_api::{Code, Problem};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use shard_runtime::Clock;
use tokio::sync::Semaphore;

use super::Cluster;
use super::calls::BY_HEADER;
use super::told::told;
use crate::network::{Limits, Members, Peer, Place, Shown, Through};

/// Strangers that are looked at once: each costs readings of etcd, which beats must not wait for. Nodes join one after the other.
const STRANGERS: usize = 2;

/// What answers requests that other nodes pass on, from when it is there.
pub(crate) type Api = Arc<OnceLock<(Router, Arc<Cluster>)>>;

/// What answers need.
struct Answering {
    strangers: Semaphore,
    steward: Arc<Steward>,
    store: EtcdStore,
    clock: Arc<dyn Clock>,
}

/// Begins to answer.
///
/// # Errors
/// When the address cannot be had.
pub(crate) fn listen(
    identity: &ClusterIdentity,
    steward: Arc<Steward>,
    store: EtcdStore,
    clock: Arc<dyn Clock>,
    api: Api,
) -> Result<Members, Problem> {
    let answering = Arc::new(Answering { strangers: Semaphore::new(STRANGERS), steward, store, clock });
    let router = Router::new().route(ADMIT_PATH, post(let_in)).with_state(answering);
    Members::listen(identity, router.fallback_service(of_members(api)))
}

/// What nodes ask for somebody who has asked them (`calls`); `api` answers, from when it is there.
pub(crate) fn of_members(api: Api) -> Router {
    Router::new().fallback(passed_on).with_state(api)
}

async fn passed_on(State(api): State<Api>, mut request: Request) -> Response {
    let Some((router, cluster)) = api.get() else {
        return refused(&Problem::new(Code::Unavailable, "This node is about to start."));
    };
    let shown = request.extensions_mut().remove::<Shown>().and_then(|shown| shown.0);
    let said = request.headers_mut().remove(BY_HEADER);
    let is_of = |node| is_of(shown.as_deref(), node);
    match cluster.believed(said.as_ref().map_or(b"", HeaderValue::as_bytes), is_of) {
        Ok((number, by)) => {
            request.extensions_mut().insert(Peer::Node(number));
            request.extensions_mut().insert(Through { who: by.who, role: by.role, proof: by.proof });
            match TowerToHyperService::new(router.clone()).call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        }
        Err(problem) => refused(&problem),
    }
}

async fn let_in(
    State(answering): State<Arc<Answering>>,
    Extension(place): Extension<Arc<Place>>,
    body: Body,
) -> Response {
    let reading = axum::body::to_bytes(body, MAX_REQUEST_BYTES);
    let body = match tokio::time::timeout(Limits::default().stranger, reading).await {
        Ok(Ok(body)) => body,
        _ => {
            let what = format!(
                "The request's body does not come in time, or is longer than {MAX_REQUEST_BYTES} bytes."
            );
            return refused(&Problem::new(Code::InvalidRequest, what));
        }
    };
    // Whoever has asked may go away: what is begun comes to its end, and is the answer when it asks again. It has its place among the requests
    // of its peer until then.
    let work = tokio::spawn(async move {
        let _place = place;
        let request: JoinRequest = serde_json::from_slice(&body)
            .map_err(|error| Problem::new(Code::InvalidRequest, format!("The request's body: {error}.")))?;
        let Answering { strangers, steward, store, clock } = &*answering;
        // It is never closed.
        let _turn = strangers.acquire().await;
        // With where etcd is now.
        let identity = steward.identity().await;
        let now = clock.wall().0 / 1_000_000_000;
        let admitted = admit(store, &identity, env!("CARGO_PKG_VERSION"), &request, now).await;
        match &admitted {
            Ok(admission) => {
                tracing::info!(node = %admission.node, name = %request.name, "a node was let into the cluster")
            }
            // Anybody may guess, and fill the log.
            Err(error) if error.kind == Kind::Token => tracing::debug!(%error, "a node was not let in"),
            Err(error) => tracing::warn!(name = %request.name, %error, "a node was not let into the cluster"),
        }
        admitted.map_err(told)
    });
    match work.await {
        Ok(Ok(admission)) => answer(StatusCode::OK, &admission),
        Ok(Err(problem)) => refused(&problem),
        Err(error) => refused(&Problem::new(Code::Internal, error.to_string())),
    }
}

fn refused(problem: &Problem) -> Response {
    answer(StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), problem)
}

fn answer(status: StatusCode, what: &impl Serialize) -> Response {
    match serde_json::to_vec(what) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
