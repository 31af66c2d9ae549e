//! The OpenAPI 3.1 document, made from the table of routes and the types.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::routes::{Body, ROUTES, Route};
use crate::{BASE_PATH, Problem, SESSION_COOKIE};

const DESCRIPTION: &str = "On the node's Unix socket, whoever is root or the node's own user may ask everything. Over the \
                           network (TLS 1.3), a token or a session is shown; each operation names the least role that \
                           may ask it.";

/// The document. The same for every node of this release.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator);
        let path = paths.entry(format!("{BASE_PATH}{}", route.path)).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.lower().into(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast management API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [
            { "url": "https://localhost:8443", "description": "the node over the network, where it listens" },
            { "url": "http://localhost", "description": "the node's Unix socket" },
        ],
        "security": [{ "token": [] }, { "session": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of `holdfast api token create`." },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": SESSION_COOKIE,
                    "description": "What POST /v1/login sets. Changes also need the header X-Holdfast-Request.",
                },
            },
            "schemas": generator.take_definitions(true),
            "responses": {
                "Problem": {
                    "description": "What went wrong (RFC 9457).",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
        },
    })
}

fn operation(route: &Route, generator: &mut schemars::SchemaGenerator) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Value> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .chain(
            route
                .query
                .iter()
                .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } })),
        )
        .collect();
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "x-least-role": route.least,
        "responses": {
            "200": { "description": "Done." },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if route.least.is_none() {
        operation["security"] = json!([]);
    }
    if let Some(content) = content(route.request, generator) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if let Some(content) = content(route.response, generator) {
        operation["responses"]["200"]["content"] = content;
    }
    operation
}

fn content(body: Body, generator: &mut schemars::SchemaGenerator) -> Option<Value> {
    match body {
        Body::Empty => None,
        Body::Json(schema) => Some(json!({ "application/json": { "schema": schema(generator) } })),
        Body::Bytes => Some(json!({ "application/octet-stream": {} })),
        Body::Text(media) => Some(json!({ media: { "schema": { "type": "string" } } })),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_in_the_document_once() {
        let document = document();
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            assert!(ids.insert(route.id), "{} twice", route.id);
            let operation = &document["paths"][format!("/v1{}", route.path)][route.method.lower()];
            assert_eq!(operation["operationId"], route.id);
        }
    }

    #[test]
    fn every_reference_resolves() {
        fn walk(value: &Value, root: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let pointer = reference.strip_prefix('#').expect("local reference");
                        assert!(root.pointer(pointer).is_some(), "{reference} leads nowhere");
                    }
                    map.values().for_each(|value| walk(value, root));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, root)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }

    #[test]
    fn checked_in_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/openapi.json");
        let made = serde_json::to_string_pretty(&document()).expect("serialises") + "\n";
        if std::env::var_os("HOLDFAST_UPDATE_DOCS").is_some() {
            std::fs::write(path, &made).expect("docs/openapi.json is writable");
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(there == made, "docs/openapi.json is stale: run this test with HOLDFAST_UPDATE_DOCS=1");
    }
}
