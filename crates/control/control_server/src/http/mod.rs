//! HTTP, over the socket and the network: each route of the table to a method of the node, each error to a problem.

mod access_handlers;
mod attempt;
mod cluster_handlers;
mod event_stream;
mod failure;
mod finding_handlers;
mod gate;
mod handlers;
mod headers;
mod look;
mod node_handlers;
mod pages;
mod parts;
mod qos_handlers;
mod quota_handlers;
mod relay;
mod smb_handlers;
mod snapshot_handlers;
mod subject;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};
use control_api::routes::{Method as RouteMethod, ROUTES, Route};
use control_api::{BASE_PATH, Code, Problem};

use crate::network::Peer;
use crate::node::Node;
pub(crate) use failure::Failure;
use gate::Gate;

/// Largest configuration, in bytes: one with 65,536 LUNs takes about 30 MB.
const MAX_CONFIG_BYTES: usize = 64 << 20;
/// Largest JSON request otherwise: a pool of all disks that it may have takes less. Files are streamed and not limited.
const MAX_REQUEST_BYTES: usize = 4 << 20;
/// Largest request to log in, in bytes: it is read of whoever connects.
const MAX_LOGIN_BYTES: usize = 4 << 10;

/// The largest body of a route that is read whole; none where it is streamed.
fn most_bytes(route: &Route) -> Option<usize> {
    match route.id {
        "file_put" | "snapshot_apply" => None,
        "config_apply" => Some(MAX_CONFIG_BYTES),
        "login" => Some(MAX_LOGIN_BYTES),
        _ => Some(MAX_REQUEST_BYTES),
    }
}

/// What things are looked at by, for the record of what is changed: this node's own handlers.
fn looked_at(node: &Arc<Node>) -> Router {
    let mut router = Router::new();
    for route in ROUTES.iter().filter(|route| look::is_looked_at(route)) {
        if let Some(handler) = handlers::handler(route.id, MethodFilter::GET) {
            router = router.route(route.path, handler);
        }
    }
    router.with_state(node.clone())
}

/// The router over the whole table.
pub(crate) fn router(node: Arc<Node>) -> Router {
    let mut router = Router::new();
    let remembered = Arc::<relay::Remembered>::default();
    let looks = look::Looks::new(looked_at(&node));
    for route in ROUTES {
        let filter = match route.method {
            RouteMethod::Get => MethodFilter::GET,
            RouteMethod::Post => MethodFilter::POST,
            RouteMethod::Put => MethodFilter::PUT,
            RouteMethod::Patch => MethodFilter::PATCH,
            RouteMethod::Delete => MethodFilter::DELETE,
        };
        // The test below makes sure that there is one.
        if let Some(handler) = handlers::handler(route.id, filter) {
            let gate =
                Gate { node: node.clone(), route, remembered: remembered.clone(), looks: looks.clone() };
            let handler = handler
                // The gate limits it.
                .layer(DefaultBodyLimit::disable())
                .layer(axum::middleware::from_fn_with_state(gate, gate::gate));
            if route.id == "metrics" {
                // Where everybody looks for them.
                router = router.route(route.path, handler.clone());
            }
            router = router.route(&format!("{BASE_PATH}{}", route.path), handler);
        }
    }
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_route)
        .layer(axum::middleware::map_response(headers::secure))
        .with_state(node)
}

async fn unknown_route(
    peer: Option<Extension<Peer>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let of_the_api = uri.path() == BASE_PATH || uri.path().starts_with(&format!("{BASE_PATH}/"));
    // The socket is no place for browsers.
    if let (false, Some(Extension(Peer::Network(_)))) = (of_the_api, peer)
        && let Some(page) = pages::answer(&method, &uri, &headers)
    {
        return page;
    }
    let problem = Problem::new(Code::NotFound, format!("There is no {method} {}.", uri.path()))
        .todo(format!("GET {BASE_PATH}/openapi.json lists all routes."));
    Failure::from(problem).into_response()
}

/// A handler for one method.
fn handle<H, T>(filter: MethodFilter, handler: H) -> MethodRouter<Arc<Node>>
where
    H: axum::handler::Handler<T, Arc<Node>>,
    T: 'static,
{
    on(filter, handler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_handler() {
        for route in ROUTES {
            assert!(handlers::handler(route.id, MethodFilter::GET).is_some(), "{}", route.id);
        }
    }
}
