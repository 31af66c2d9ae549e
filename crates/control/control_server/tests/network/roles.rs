//! Every route × whoever asks: generated from the table of routes, so a new route is in it.

use access_matrix::Matrix;
use control_api::Role;
use control_api::routes::{Method, ROUTES, Route};
use serde_json::json;

use crate::client::Answer;
use crate::world::World;

const COLUMNS: [&str; 10] = [
    "nobody",
    "a wrong token",
    "a token that has ended",
    "a revoked token",
    "metrics",
    "viewer",
    "operator",
    "administrator",
    "session of an administrator, without the header",
    "session of an operator",
];

/// The headers that somebody sends, and the role that it has.
type Asker = (Vec<(&'static str, String)>, Option<Role>);

/// A path of something that is not there, and a body that makes no sense: what is let in does nothing.
fn request(route: &Route) -> (String, String) {
    let path: Vec<&str> =
        route.path.split('/').map(|part| if part.starts_with('{') { "0" } else { part }).collect();
    let body = if route.method == Method::Get { "" } else { "{" };
    (format!("/v1{}", path.join("/")), body.to_owned())
}

/// What the least role says of somebody.
fn expected(route: &Route, role: Option<Role>) -> &'static str {
    match (route.least, role) {
        (None, _) => "let in",
        (Some(_), None) => "401",
        (Some(least), Some(role)) if role < least => "403",
        _ => "let in",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_matrix_of_routes_over_the_network() {
    let about =
        "Each route has the least role that may ask it; tokens and sessions that do not count are nobody's.";
    let mut matrix = Matrix::new("API over the network", about, &COLUMNS);
    let world = World::start().await;
    let (ended, _) = world.token("administrator", Some(10)).await;
    let (revoked, id) = world.token("administrator", None).await;
    world.local("DELETE", &format!("/v1/tokens/{id}"), &json!({ "confirm": id })).await;
    world.pass(10);
    let mut askers: Vec<Asker> = vec![(Vec::new(), None)];
    let bearer = |token: String| vec![("authorization", format!("Bearer {token}"))];
    let (good, _) = world.token("administrator", None).await;
    askers.push((bearer(format!("{}0", &good[..good.len() - 1])), None));
    if good.ends_with('0') {
        askers[1].0 = bearer(format!("{}1", &good[..good.len() - 1]));
    }
    askers.push((bearer(ended), None));
    askers.push((bearer(revoked), None));
    for role in Role::ALL {
        askers.push((bearer(world.token(role.as_str(), None).await.0), Some(role)));
    }
    askers.push((vec![("cookie", world.session("ada").await)], Some(Role::Administrator)));
    let header = ("x-holdfast-request", "1".to_owned());
    askers.push((vec![("cookie", world.session("otto").await), header], Some(Role::Operator)));
    for route in ROUTES {
        let (path, body) = request(route);
        let method = route.method.lower().to_uppercase();
        for (at, (headers, role)) in askers.iter().enumerate() {
            // It would end the session, and is tried by itself.
            let by_cookie = headers.iter().any(|(name, _)| *name == "cookie");
            let ends = route.id == "logout" && by_cookie;
            let without = COLUMNS[at].contains("without the header") && route.method != Method::Get;
            let logs_in = route.least.is_none() && !headers.iter().any(|(name, _)| name.starts_with("x-"));
            let expected = if without || logs_in { "403" } else { expected(route, *role) };
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let answer = if ends {
                None
            } else if route.id == "event_stream" {
                // It goes on until somebody ends it.
                let mut stream = world.client.open(&method, &path, &headers).await;
                let head = stream.until("\r\n\r\n").await;
                let status =
                    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
                let code = if status == 401 { "unauthenticated" } else { "forbidden" };
                Some(Answer { status, body: format!("{{\"code\":\"{code}\"}}"), ..Answer::default() })
            } else {
                Some(world.client.send(&method, &path, &headers, &body).await)
            };
            let result = answer.map_or(Ok(()), |answer| {
                let right = match expected {
                    "401" => answer.status == 401 && answer.code() == "unauthenticated",
                    "403" => answer.status == 403 && answer.code() == "forbidden",
                    _ => !matches!(answer.status, 0 | 401 | 403),
                };
                if right { Ok(()) } else { Err(format!("got {}: {}", answer.status, answer.body)) }
            });
            matrix.cell(route.id, expected, result);
        }
    }
    matrix.finish();
    world.stop().await;
}

/// What only an administrator may do is exactly what is said in the guide: a route that slips to a lesser role is seen here.
#[test]
fn who_sees_secrets_or_says_who_may_is_an_administrator() {
    let administrators = [
        "config_show",
        "config_apply",
        "inspect",
        "file_get",
        "file_put",
        "snapshot_diff",
        "snapshot_apply",
        "pool_create",
        "pool_update",
        "pool_delete",
        "volume_delete",
        "lun_create",
        "lun_map",
        "lun_delete",
        "share_create",
        "share_update",
        "user_create",
        "user_update",
        "user_password",
        "user_group_update",
        "target_update",
        "http_update",
        "token_create",
        "token_list",
        "token_revoke",
        "audit_list",
        "smb_update",
        "group_update",
        "disk_fault",
        "snapshot_delete",
        "schedule_set",
        "quota_update",
        "quota_set",
    ];
    for id in administrators {
        let route = ROUTES.iter().find(|route| route.id == id).unwrap_or_else(|| panic!("no route {id}"));
        assert_eq!(route.least, Some(Role::Administrator), "{id}");
    }
    for route in ROUTES {
        assert!(route.least.is_some() || route.id == "login", "{} is for anybody", route.id);
        let harmless = ["disk_select", "login", "logout"].contains(&route.id);
        let looks = route.method == Method::Get || harmless;
        assert!(looks || route.least >= Some(Role::Operator), "{} changes something", route.id);
    }
}
