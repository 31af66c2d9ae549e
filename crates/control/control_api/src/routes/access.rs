//! Routes of who may ask: logging in, tokens, the listener of the network, the record of changes.

use super::Method::{Delete, Patch, Post};
use super::Role::{Administrator, Metrics, Viewer};
use super::{Body, Route, get, json, send, with_query};
use crate::*;

/// For whoever connects.
const fn for_anybody(mut route: Route) -> Route {
    route.least = None;
    route
}

/// The routes.
pub(super) const ACCESS: &[Route] = &[
    for_anybody(send(
        Viewer,
        Post,
        "/login",
        "login",
        "Logs a user in: the answer sets a cookie.",
        json::<Login>(),
        json::<Me>(),
    )),
    send(
        Metrics,
        Post,
        "/logout",
        "logout",
        "Ends the session of whoever asks.",
        Body::Empty,
        json::<Done>(),
    ),
    get(Metrics, "/me", "me", "Who asks, and with which role.", json::<Me>()),
    get(Viewer, "/http", "http_show", "The API over the network.", json::<HttpStatus>()),
    send(
        Administrator,
        Patch,
        "/http",
        "http_update",
        "Changes how the API is served over the network.",
        json::<HttpUpdate>(),
        json::<HttpStatus>(),
    ),
    get(Administrator, "/tokens", "token_list", "Tokens.", json::<List<ApiToken>>()),
    send(
        Administrator,
        Post,
        "/tokens",
        "token_create",
        "Makes a token, which is shown in this answer only.",
        json::<ApiTokenCreate>(),
        json::<ApiTokenCreated>(),
    ),
    send(
        Administrator,
        Delete,
        "/tokens/{token}",
        "token_revoke",
        "Revokes a token: it counts nothing from now on.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    with_query(
        get(
            Administrator,
            "/audit",
            "audit_list",
            "Who has changed what: the newest entries, the newest first.",
            json::<List<AuditEntry>>(),
        ),
        &["limit"],
    ),
    get(
        Metrics,
        "/metrics",
        "metrics",
        "Metrics in the text format of Prometheus; also at /metrics.",
        Body::Text("text/plain; version=0.0.4"),
    ),
    Route {
        response: Body::Text("text/event-stream"),
        ..get(
            Viewer,
            "/events",
            "event_stream",
            "Server-sent events: what has changed, as `Event` in JSON. A stream that ends is asked for again.",
            json::<Event>(),
        )
    },
];
