//! HTTP over the socket: each route of the table to a method of the node, each error to a problem.

mod handlers;
mod parts;
mod qos_handlers;
mod smb_handlers;
mod snapshot_handlers;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::routing::{MethodFilter, MethodRouter, on};
use control_api::routes::{Method as RouteMethod, ROUTES};
use control_api::{BASE_PATH, Code, Problem};

use crate::node::Node;
use parts::Failure;

/// Largest JSON request, in bytes: a configuration with 65,536 LUNs takes about 30 MB. Files are streamed and
/// not limited.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The router over the whole table.
pub(crate) fn router(node: Arc<Node>) -> Router {
    let mut router = Router::new();
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
            router = router.route(&format!("{BASE_PATH}{}", route.path), handler);
        }
    }
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_route)
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .with_state(node)
}

async fn unknown_route(method: Method, uri: Uri) -> Failure {
    Problem::new(Code::NotFound, format!("There is no {method} {}.", uri.path()))
        .todo(format!("GET {BASE_PATH}/openapi.json lists all routes."))
        .into()
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
