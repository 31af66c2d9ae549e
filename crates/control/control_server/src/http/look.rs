//! What a change has changed: the thing that it is about, as its own route shows it, before and after the handler.
//!
//! ```text
//!   PATCH  /luns/{lun}            ─► GET /luns/{lun}
//!   POST   /luns/{lun}/map        ─► GET /luns/{lun}               what is done to a thing is seen in the thing
//!   DELETE /targets/{target}      ─► GET /targets, the item        where there is no route for one alone
//!   DELETE /portals?address=…     ─► GET /portals, the item
//!   POST   /luns                  ─► nothing: there is no such thing before, and what is asked for says what it will be
//! ```
//! This is one place for all routes, and follows from their table: a new route has it without a line here.
//!
//! Invariants:
//! * A look changes nothing about the request: what cannot be looked at, or not in time, is said in the record, and the change goes on.
//! * What two people change of one thing at the same moment may be told of both of them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Query, RawPathParams, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use control_api::BASE_PATH;
use control_api::routes::{Body as Carries, Method, ROUTES, Route};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use super::subject::Subject;
use crate::audit::fields::Fields;

/// A look is given up after so long: a disk that does not answer must not hold up whoever wants to take it out.
const WITHIN: Duration = Duration::from_secs(2);
/// The largest answer that is looked at: the largest configuration.
const MAX_ANSWER: usize = 64 << 20;

/// Where things are looked at: the handlers of this node, without a gate before them.
#[derive(Clone)]
pub(super) struct Looks(TowerToHyperService<Router>);

/// Where a thing is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    /// Path and query.
    uri: String,
    /// Which one of the list that is there; none where it is the thing itself.
    item: Option<String>,
    /// The thing is gone when the change is done.
    goes: bool,
}

/// Whether things are looked at by this route. A policy is looked at in the list: beside it there are its flows, which always change.
pub(super) fn is_looked_at(route: &Route) -> bool {
    route.id != "qos_policy_show" && route.method == Method::Get && matches!(route.response, Carries::Json(_))
}

/// Whether there is a route that shows what is at this path.
fn shows(path: &str) -> bool {
    ROUTES.iter().any(|route| route.path == path && is_looked_at(route))
}

/// A path without its last segment.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl View {
    /// Where that is seen which a request for `route` is about; `path` and `query` are the request's.
    fn of(
        route: &Route,
        path: &str,
        last_param: Option<&str>,
        query: &BTreeMap<String, String>,
    ) -> Option<Self> {
        // Who logs in or out changes nothing of the node.
        if super::most_bytes(route).is_none() || matches!(route.id, "login" | "logout" | "disk_select") {
            return None;
        }
        let deletes = route.method == Method::Delete;
        let whole = path.strip_prefix(BASE_PATH).unwrap_or(path);
        let (path, raw_query) = whole.split_once('?').map_or((whole, ""), |(path, query)| (path, query));
        // As many segments of the request's path as the route has that shows the thing.
        let uri = |template: &str| {
            let count = template.matches('/').count();
            let segments: Vec<&str> = path.split('/').take(count + 1).collect();
            let path = segments.join("/");
            if raw_query.is_empty() { path } else { format!("{path}?{raw_query}") }
        };
        if route.id == "file_remove" {
            let path = uri("/volumes/{volume}").replacen('?', "/stat?", 1);
            return Some(Self { uri: path, item: None, goes: true });
        }
        if shows(route.path) {
            let of_thing = route.path.ends_with('}');
            let named = route.query.iter().find_map(|key| query.get(*key)).filter(|_| !of_thing);
            // What is made anew is not there yet.
            let there = route.method != Method::Post;
            let goes = deletes && (of_thing || named.is_some());
            return there.then(|| Self { uri: uri(route.path), item: named.cloned(), goes });
        }
        let mut base = route.path;
        while !base.is_empty() && !base.ends_with('}') {
            base = parent(base);
        }
        let goes = deletes && base == route.path;
        if base.is_empty() {
            None
        } else if shows(base) {
            Some(Self { uri: uri(base), item: None, goes })
        } else if shows(parent(base)) && base.matches('{').count() == route.path.matches('{').count() {
            Some(Self { uri: uri(parent(base)), item: Some(last_param?.to_owned()), goes })
        } else {
            None
        }
    }
}

/// The element of a list that is called so: of a list as routes answer it, or of one in a thing.
fn item(answer: Value, name: &str) -> Option<Value> {
    const CALLED: [&str; 8] = ["id", "name", "address", "path", "owner", "sid", "guid", "disk"];
    let Value::Object(fields) = answer else { return None };
    let elements: Vec<Value> = fields
        .into_iter()
        .filter_map(|(_, value)| if let Value::Array(list) = value { Some(list) } else { None })
        .flatten()
        .collect();
    let called = |value: &Value, key: &str| match &value[key] {
        Value::String(text) => text.eq_ignore_ascii_case(name),
        Value::Number(number) => number.to_string() == name,
        _ => false,
    };
    let found = CALLED.iter().find_map(|key| elements.iter().position(|each| called(each, key)))?;
    elements.into_iter().nth(found)
}

impl Looks {
    /// By this router, which answers what [`is_looked_at`] names without asking who wants to know.
    pub(super) fn new(router: Router) -> Self {
        Self(TowerToHyperService::new(router))
    }

    /// What is there; none when there is no such thing.
    async fn look(&self, view: &View) -> Result<Option<Value>, String> {
        let request = Request::builder().uri(&view.uri).body(Body::empty());
        let request = request.map_err(|error| error.to_string())?;
        let service = self.0.clone();
        // What is begun comes to its end, also when nobody waits for it any more.
        let looking = tokio::spawn(async move {
            let answer = match service.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            let status = answer.status();
            let bytes = axum::body::to_bytes(answer.into_body(), MAX_ANSWER).await;
            (status, bytes)
        });
        let late = |_| format!("it was not told within {} s", WITHIN.as_secs());
        let looked = tokio::time::timeout(WITHIN, looking).await.map_err(late)?;
        let (status, bytes) = looked.map_err(|error| error.to_string())?;
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            other => return Err(format!("it was not told ({other})")),
        }
        let bytes = bytes.map_err(|error| error.to_string())?;
        let told = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        Ok(match &view.item {
            Some(name) => item(told, name),
            None => Some(told),
        })
    }

    /// Has the handler answer, and tells `subject` what is otherwise since.
    pub(super) async fn around(
        &self,
        route: &Route,
        subject: &Subject,
        request: Request,
        next: Next,
    ) -> Response {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, &()).await;
        let last = params.ok().and_then(|params| params.iter().last().map(|(_, value)| value.to_owned()));
        let query: BTreeMap<String, String> =
            Query::try_from_uri(&parts.uri).map(|query| query.0).unwrap_or_default();
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let view = View::of(route, path, last.as_deref(), &query);
        let request = Request::from_parts(parts, body);
        let Some(view) = view else { return next.run(request).await };
        let before = self.look(&view).await;
        if let Ok(Some(before)) = &before {
            before["sid"].as_str().into_iter().for_each(|sid| subject.sid(sid));
            if route.path.ends_with("/name") {
                before["name"].as_str().into_iter().for_each(|name| subject.renamed(name));
            }
        }
        let response = next.run(request).await;
        if response.status() != StatusCode::OK {
            return response;
        }
        let before = match before {
            Ok(before) => before,
            Err(why) => {
                subject.unseen(format!("what was there before: {why}"));
                return response;
            }
        };
        if view.goes {
            subject.changed(before.as_ref().map(Fields::gone).unwrap_or_default());
            return response;
        }
        match (before, self.look(&view).await) {
            (Some(before), Ok(Some(after))) => subject.changed(Fields::between(&before, &after)),
            // It was made, or is called otherwise now: what was asked for says it.
            (_, Ok(_)) => {}
            (_, Err(why)) => subject.unseen(format!("what is there now: {why}")),
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(id: &str, path: &str, last: Option<&str>) -> Option<(String, Option<String>, bool)> {
        let route = ROUTES.iter().find(|route| route.id == id).unwrap_or_else(|| panic!("{id}"));
        let uri: axum::http::Uri = path.parse().expect("a URI");
        let query = Query::try_from_uri(&uri).expect("a query").0;
        View::of(route, path, last, &query).map(|view| (view.uri, view.item, view.goes))
    }

    #[test]
    fn things_are_seen_where_they_are_shown() {
        let whole = |uri: &str, goes| Some((uri.to_owned(), None, goes));
        let of_list = |uri: &str, item: &str, goes| Some((uri.to_owned(), Some(item.to_owned()), goes));
        for (id, path, last, seen) in [
            ("lun_update", "/v1/luns/a%2Fb", Some("a/b"), whole("/luns/a%2Fb", false)),
            ("lun_delete", "/v1/luns/a?keep_file=true", Some("a"), whole("/luns/a?keep_file=true", true)),
            ("lun_map", "/v1/luns/a/map", Some("a"), whole("/luns/a", false)),
            ("lun_create", "/v1/luns", None, None),
            ("target_delete", "/v1/targets/t", Some("t"), of_list("/targets", "t", true)),
            ("portal_delete", "/v1/portals?address=x", None, of_list("/portals?address=x", "x", true)),
            ("disk_set", "/v1/disks?disk=d", None, of_list("/disks?disk=d", "d", false)),
            ("smb_update", "/v1/smb", None, whole("/smb", false)),
            ("config_apply", "/v1/config", None, whole("/config", false)),
            ("quota_update", "/v1/volumes/v/quotas", Some("v"), whole("/volumes/v/quotas", false)),
            ("quota_set", "/v1/volumes/v/quotas/u", Some("u"), of_list("/volumes/v/quotas", "u", false)),
            ("volume_rename", "/v1/volumes/v/name?pool=p", Some("v"), whole("/volumes/v?pool=p", false)),
            ("volume_log_remove", "/v1/volumes/v/log", Some("v"), whole("/volumes/v", false)),
            ("file_remove", "/v1/volumes/v/files?path=/x", Some("v"), whole("/volumes/v/stat?path=/x", true)),
            ("user_password", "/v1/users/u/password", Some("u"), whole("/users/u", false)),
            ("session_end", "/v1/sessions/7", Some("7"), of_list("/sessions", "7", true)),
            (
                "finding_acknowledge",
                "/v1/findings/f/acknowledge",
                Some("f"),
                of_list("/findings", "f", false),
            ),
            ("snapshot_create", "/v1/volumes/v/snapshots", Some("v"), None),
            ("pool_import", "/v1/pools/import", None, None),
            ("qos_unassign", "/v1/qos/assignments?lun=l", None, None),
            ("qos_policy_update", "/v1/qos/policies/p", Some("p"), of_list("/qos/policies", "p", false)),
            ("file_put", "/v1/volumes/v/content", Some("v"), None),
            ("login", "/v1/login", None, None),
        ] {
            assert_eq!(view(id, path, last), seen, "{id}");
        }
    }

    #[test]
    fn every_route_that_changes_a_thing_that_is_shown_is_looked_at() {
        // What is made anew, done to no one thing, streamed, or about a place of the cluster.
        let none = ROUTES.iter().filter(|route| route.method != Method::Get).filter(|route| {
            let path = route.path.replace(['{', '}'], "");
            let query = route.query.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect();
            route.method != Method::Post && View::of(route, &path, Some("x"), &query).is_none()
        });
        let none: Vec<&str> = none.map(|route| route.id).collect();
        assert_eq!(none, ["disk_fault", "file_put", "snapshot_apply", "qos_unassign", "node_remove"]);
    }

    #[test]
    fn an_item_is_found_by_any_of_its_names() {
        let list = json!({ "items": [{ "id": "1", "name": "2" }, { "id": 2, "name": "x" }], "more": 3 });
        assert_eq!(item(list.clone(), "2").expect("found")["name"], "x", "its id is meant first");
        assert_eq!(item(list.clone(), "X").expect("found")["id"], 2);
        assert_eq!(item(list, "y"), None);
        let quotas = json!({ "volume": "v", "owners": [{ "owner": "bob", "sid": "S-1" }] });
        assert_eq!(item(quotas, "S-1").expect("found")["owner"], "bob");
    }
}
