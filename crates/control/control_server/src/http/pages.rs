//! The web pages: files that were embedded when the node was built, served at `/` to whoever connects. They hold nothing of the
//! node; what they show, they ask the API for.
//!
//! `NAME.br` and `NAME.gz` beside `NAME` are the same compressed, and are served in its place to who takes them. Files below
//! `/assets/` have their hash in their name and are kept by browsers; all others are asked for again each time, with an ETag.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

/// What was in `web/dist`: paths that begin with a slash, and contents.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Where files lie whose names change with their content.
const HASHED: &str = "/assets/";
/// The page that all pages are parts of.
const INDEX: &str = "/index.html";

/// Shown where no pages were embedded.
const NO_PAGES: &str = "<!doctype html><html lang=\"en\"><title>Holdfast</title>\
<h1>This node was built without its web pages</h1>\
<p>Build them with <code>make web</code>, which needs Node.js and npm, then build the node again. \
The API is at <a href=\"/v1/openapi.json\">/v1</a>; everything can be done with the command <code>holdfast</code>.</p></html>";

/// One form of a file.
struct Form {
    bytes: &'static [u8],
    etag: String,
}

/// A file.
#[derive(Default)]
struct File {
    plain: Option<Form>,
    gzip: Option<Form>,
    brotli: Option<Form>,
}

/// Files by path.
pub(super) struct Pages(BTreeMap<&'static str, File>);

static PAGES: LazyLock<Pages> = LazyLock::new(|| Pages::new(EMBEDDED));

impl Pages {
    fn new(embedded: &'static [(&'static str, &'static [u8])]) -> Self {
        let mut files: BTreeMap<&'static str, File> = BTreeMap::new();
        for (path, bytes) in embedded {
            let digest = Sha256::digest(bytes);
            let etag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            let form = Some(Form { bytes, etag: format!("\"{etag}\"") });
            if let Some(path) = path.strip_suffix(".br") {
                files.entry(path).or_default().brotli = form;
            } else if let Some(path) = path.strip_suffix(".gz") {
                files.entry(path).or_default().gzip = form;
            } else {
                files.entry(path).or_default().plain = form;
            }
        }
        // A compressed file of nothing is a file of that name.
        files.retain(|_, file| file.plain.is_some());
        Self(files)
    }

    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
        if method != Method::GET && method != Method::HEAD {
            return None;
        }
        let is_page = path.rsplit('/').next().is_some_and(|name| !name.contains('.'));
        let (name, file) = match self.0.get_key_value(path) {
            Some((name, file)) => (*name, file),
            // A place within the pages, which they find by themselves.
            None if is_page && !path.starts_with(HASHED) => (INDEX, self.0.get(INDEX)?),
            None => return None,
        };
        let takes = |coding: &str| accepts(headers, coding);
        let (form, coding) = match (&file.brotli, &file.gzip, &file.plain) {
            (Some(form), _, _) if takes("br") => (form, Some("br")),
            (_, Some(form), _) if takes("gzip") => (form, Some("gzip")),
            (_, _, Some(form)) => (form, None),
            _ => return None,
        };
        let kept = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let same = kept
            .flat_map(|value| value.split(','))
            .any(|tag| matches!(tag.trim(), tag if tag.trim_start_matches("W/") == form.etag));
        let mut response = if same {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            Body::from(Bytes::from_static(form.bytes)).into_response()
        };
        let out = response.headers_mut();
        let cache = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
        out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(etag) = HeaderValue::from_str(&form.etag) {
            out.insert(header::ETAG, etag);
        }
        if !same {
            out.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
            if let Some(coding) = coding {
                out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
        }
        Some(response)
    }
}

/// Whether the client takes a coding: it names it, and not with weight 0.
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(','));
    codings.any(|each| {
        let (name, weight) = each.split_once(';').unwrap_or((each, ""));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case(coding) && !refused
    })
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// The answer to a request that is none of the API's; none when there is no such page either.
pub(super) fn answer(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
    let found = PAGES.answer(method, uri.path(), headers);
    let wants_index = method == Method::GET && matches!(uri.path(), "/" | INDEX);
    if found.is_none() && wants_index && PAGES.0.is_empty() {
        let html = [(header::CONTENT_TYPE, media_type(INDEX)), (header::CACHE_CONTROL, "no-cache")];
        return Some((html, NO_PAGES).into_response());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILES: &[(&str, &[u8])] = &[
        ("/assets/app-1a2b.js", b"let a"),
        ("/assets/app-1a2b.js.br", b"br"),
        ("/assets/app-1a2b.js.gz", b"gz"),
        ("/favicon.svg", b"<svg/>"),
        ("/index.html", b"<html>"),
        ("/lost.css.gz", b"gz"),
    ];

    fn get(path: &str, headers: &[(header::HeaderName, &str)]) -> Option<Response> {
        let headers =
            headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value"))).collect();
        Pages::new(FILES).answer(&Method::GET, path, &headers)
    }

    fn shown(response: &Response, name: header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
    }

    #[test]
    fn the_best_form_that_is_taken_is_served() {
        for (takes, coding) in
            [("gzip, br", "br"), ("gzip", "gzip"), ("br;q=0, gzip;q=0.5", "gzip"), ("", ""), ("identity", "")]
        {
            let response = get("/assets/app-1a2b.js", &[(header::ACCEPT_ENCODING, takes)]).expect("there");
            assert_eq!(shown(&response, header::CONTENT_ENCODING), coding, "{takes}");
            assert_eq!(shown(&response, header::CONTENT_TYPE), "text/javascript; charset=utf-8");
            assert!(shown(&response, header::CACHE_CONTROL).contains("immutable"));
        }
        let page = get("/", &[(header::ACCEPT_ENCODING, "br")]).expect("the page");
        assert_eq!(shown(&page, header::CONTENT_TYPE), "text/html; charset=utf-8");
        assert_eq!(shown(&page, header::CACHE_CONTROL), "no-cache");
    }

    #[test]
    fn what_has_not_changed_is_not_sent_again() {
        let page = get("/favicon.svg", &[]).expect("there");
        let etag = shown(&page, header::ETAG).to_owned();
        let again =
            get("/favicon.svg", &[(header::IF_NONE_MATCH, &format!("\"x\", W/{etag}"))]).expect("there");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let other = get("/favicon.svg", &[(header::IF_NONE_MATCH, "\"x\"")]).expect("there");
        assert_eq!(other.status(), StatusCode::OK);
    }

    #[test]
    fn places_within_the_pages_are_the_page_and_files_that_are_not_there_are_not() {
        for path in ["/", "/pools", "/pools/demo/disks"] {
            assert_eq!(get(path, &[]).map(|page| page.status()), Some(StatusCode::OK), "{path}");
        }
        for path in ["/x.js", "/assets/app", "/lost.css", "/..%2f..", "/assets/../index.html.x"] {
            assert!(get(path, &[]).is_none(), "{path}");
        }
        assert!(Pages::new(FILES).answer(&Method::POST, "/", &HeaderMap::new()).is_none());
    }
}
