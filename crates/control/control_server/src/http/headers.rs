//! Headers that tell browsers what the answers are not for.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

/// Everything comes from the node itself: no scripts in pages, no frames around them, nothing from elsewhere.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; \
                                base-uri 'none'; frame-ancestors 'none'";

/// Adds them to an answer. Strict transport security is not among them: browsers heed it only with a certificate that they
/// trust, and with one of the node's own it would lock people out who have not been given the authority yet.
pub(super) async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    // Answers of the API are of one moment and for one who asked.
    set(header::CACHE_CONTROL, "no-store");
    response
}
