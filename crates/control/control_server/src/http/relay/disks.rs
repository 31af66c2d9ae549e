//! Names of disks in a request that goes to the node that owns the pool: `/dev/sdb` is a disk of the node that was asked, `n2:/dev/sdb` to all others.

use axum::body::Body;
use axum::http::Uri;
use control_api::routes::Route;
use control_api::{Code, NodeDisk, Problem};
use serde_json::Value;

/// The largest body, in bytes: it was read whole before.
const MAX: usize = 4 << 20;

/// Whether a request of this route names disks.
pub(super) fn names_disks(route: &Route) -> bool {
    matches!(
        route.id,
        "pool_add_disk" | "pool_remove_disk" | "pool_retire_disk" | "pool_keep_disk" | "pool_replace_disk"
    )
}

/// What the owner calls a disk that is called so here.
fn name_at_owner(name: &str, here: &str, owner: &str) -> String {
    match NodeDisk::parse(name) {
        Some(disk) if disk.node == owner => disk.path.to_owned(),
        None if name.starts_with('/') => format!("{here}:{name}"),
        _ => name.to_owned(),
    }
}

/// The request as the owner understands it.
///
/// # Errors
/// When disks are selected by what they are: those of which node is not said.
pub(super) async fn for_owner(
    uri: &Uri,
    body: Body,
    here: &str,
    owner: &str,
) -> Result<(Uri, Body), Problem> {
    let wrong = |why: String| Problem::new(Code::InvalidRequest, why);
    let mut given = None;
    let query: Vec<(String, String)> =
        axum::extract::Query::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
    let query: Vec<(String, String)> = query
        .into_iter()
        .map(|(key, value)| {
            if key != "disk" {
                return (key, value);
            }
            given = Some(value.clone());
            (key, name_at_owner(&value, here, owner))
        })
        .collect();
    let uri = if query.is_empty() { uri.clone() } else { with_query(uri, &query).map_err(wrong)? };
    let bytes = axum::body::to_bytes(body, MAX).await.map_err(|error| wrong(error.to_string()))?;
    let Ok(Value::Object(mut sent)) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok((uri, Body::from(bytes)));
    };
    if sent.get("select").and_then(Value::as_array).is_some_and(|select| !select.is_empty()) {
        let detail = format!(
            "Node {owner} has the pool, and a selector does not say of which node the disks are to be."
        );
        let problem = Problem::new(Code::OtherNode, detail)
            .todo(format!("Name the disks, or select them on node {owner} itself."));
        return Err(Problem { node: Some(owner.to_owned()), ..problem });
    }
    for key in ["disk", "with"] {
        if let Some(name) = sent.get(key).and_then(Value::as_str).map(str::to_owned) {
            sent.insert(key.to_owned(), name_at_owner(&name, here, owner).into());
            given = given.or(Some(name));
        }
    }
    // What the owner has asked to repeat is as the owner calls it already.
    if let (Some(name), Some(given)) = (sent.get("confirm").and_then(Value::as_str), given)
        && name == given
    {
        sent.insert("confirm".to_owned(), name_at_owner(&given, here, owner).into());
    }
    serde_json::to_vec(&sent).map(|body| (uri, Body::from(body))).map_err(|error| wrong(error.to_string()))
}

fn with_query(uri: &Uri, query: &[(String, String)]) -> Result<Uri, String> {
    let escaped = |text: &str| {
        text.bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect::<String>()
    };
    let pairs: Vec<String> =
        query.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
    format!("{}?{}", uri.path(), pairs.join("&")).parse().map_err(|error| format!("The query: {error}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sent(uri: &str, body: &str) -> Result<(String, Value), Problem> {
        let (uri, body) =
            for_owner(&uri.parse().expect("a URI"), Body::from(body.to_owned()), "n2", "n1").await?;
        let body = axum::body::to_bytes(body, MAX).await.expect("a body");
        Ok((uri.to_string(), serde_json::from_slice(&body).unwrap_or_default()))
    }

    #[tokio::test]
    async fn a_disk_stays_the_one_that_was_meant() {
        let add = "/v1/pools/p/disks";
        let (_, body) = sent(add, r#"{"disk":"/dev/sdb","confirm":"/dev/sdb"}"#).await.expect("sent");
        assert_eq!((&body["disk"], &body["confirm"]), (&"n2:/dev/sdb".into(), &"n2:/dev/sdb".into()));
        let (_, body) = sent(add, r#"{"disk":"n1:/dev/sdb","confirm":"/dev/sdb"}"#).await.expect("sent");
        assert_eq!((&body["disk"], &body["confirm"]), (&"/dev/sdb".into(), &"/dev/sdb".into()));
        let (_, body) = sent(add, r#"{"disk":"n3:/dev/sdb"}"#).await.expect("sent");
        assert_eq!(body["disk"], "n3:/dev/sdb");
        let (uri, body) =
            sent("/v1/pools/p/replace?disk=/dev/sdb", r#"{"with":"n1:/dev/sdc"}"#).await.expect("sent");
        assert_eq!(
            (uri.as_str(), &body["with"]),
            ("/v1/pools/p/replace?disk=n2%3A/dev/sdb", &"/dev/sdc".into())
        );
        let refused = sent(add, r#"{"select":["media=ssd"]}"#).await.expect_err("of which node?");
        assert_eq!((refused.code, refused.node.as_deref()), (Code::OtherNode, Some("n1")));
    }
}
