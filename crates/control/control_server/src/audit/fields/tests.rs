//! What is told of a change, and that no secret is in it.

use serde_json::json;

use super::*;

/// As people read it.
fn lines(fields: &Fields) -> Vec<String> {
    let text = |value: &Option<Value>| value.as_ref().map_or("-".into(), Value::to_string);
    let line = |change: &AuditChange| match change.secret {
        true => format!("{}: secret", change.field),
        false => format!("{}: {} > {}", change.field, text(&change.old), text(&change.new)),
    };
    fields.changes.iter().map(line).collect()
}

#[test]
fn what_differs_is_told_and_nothing_else() {
    let before = json!({ "name": "a", "size_bytes": 1, "note": null, "map": [
        { "target": "t", "group": "g", "number": 1 }, { "target": "t", "group": "h", "number": 2 }],
        "listen": ["a", "b"], "same": { "x": 1 } });
    let after = json!({ "name": "a", "size_bytes": 2, "note": "n", "map": [
        { "target": "t", "group": "g", "number": 5 }, { "target": "u", "group": "h", "number": 2 }],
        "listen": ["b", "a"], "same": { "x": 1 } });
    assert_eq!(
        lines(&Fields::between(&before, &after)),
        [
            "listen: [\"a\",\"b\"] > [\"b\",\"a\"]",
            "map[t g].number: 1 > 5",
            "map[t h]: {\"group\":\"h\",\"number\":2,\"target\":\"t\"} > -",
            "map[u h]: - > {\"group\":\"h\",\"number\":2,\"target\":\"u\"}",
            "note: - > \"n\"",
            "size_bytes: 1 > 2",
        ]
    );
    assert_eq!(Fields::between(&before, &before), Fields::default());
}

#[test]
fn figures_are_nobodys_change() {
    let at = |n: u64| json!({ "allocated_bytes": n, "traffic": { "reads": n }, "members": [{ "guid": "d", "io_errors": n }] });
    assert_eq!(lines(&Fields::between(&at(1), &at(2))), [""; 0]);
    let config = |n: u64| json!({ "schema": 1, "luns": [{ "name": "l", "number": n }] });
    assert_eq!(lines(&Fields::between(&config(1), &config(2))), ["luns[l].number: 1 > 2"]);
}

#[test]
fn no_secret_comes_out() {
    let user = |secret: &str| json!({ "user": "u", "secret": secret, "groups": [] });
    let auth = |users: Vec<Value>| json!({ "auth": { "chap": users, "mutual": { "user": "m", "secret": "SEED0" } } });
    let all = [
        Fields::between(&auth(vec![user("SEED1")]), &auth(vec![user("SEED2")])),
        Fields::between(&auth(vec![]), &auth(vec![user("SEED3")])),
        Fields::between(&auth(vec![user("SEED4")]), &json!({ "auth": null })),
        Fields::gone(&auth(vec![user("SEED5")])),
        Fields::given(&json!({ "name": "n", "password": "SEED6", "deep": [[{ "token": ["SEED7"] }]] })),
        Fields::given(&json!({ "url": "https://me:SEED8@host:1/SEED9?SEED10" })),
        Fields::given(&json!({ "key": { "x": "SEED11" } })),
    ];
    for fields in &all {
        assert!(!format!("{fields:?}").contains("SEED"), "{fields:?}");
    }
    assert_eq!(lines(&all[0]), ["auth.chap[u].secret: secret"]);
    assert!(lines(&all[4]).contains(&"password: secret".to_owned()));
    assert_eq!(lines(&all[5]), ["url: - > \"https://host:1/…\""]);
}

#[test]
fn secrets_of_the_api_are_known() {
    // What the document says is a secret, but is none: a place to find one, a time, what carries it.
    let none = ["secret_file", "password_set", "header"];
    let document = serde_json::to_value(control_api::openapi::document()).expect("JSON");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let mut secrets = 0;
    for (of, schema) in schemas {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let smells = ["secret", "password", "token"].iter().any(|word| name.contains(word));
            let said = property["description"].as_str().is_some_and(|said| {
                ["it is a secret", "Never comes out", "The secret:"].iter().any(|word| said.contains(word))
            });
            let counts = property["type"] == "integer" || property["type"] == "boolean";
            if (smells || said) && !counts && !none.contains(&name.as_str()) {
                assert!(SECRETS.contains(&name.as_str()), "{of}.{name}");
                secrets += 1;
            }
        }
    }
    assert!(secrets > 5, "{secrets}: they were not looked for in the right place");
}

#[test]
fn what_comes_out_is_bounded_and_says_what_is_missing() {
    let many = |n: u64| {
        let fields =
            (0..10_000).map(|at| (format!("f{at}{}", "x".repeat(300)), json!("ä".repeat(1000 + n as usize))));
        Value::Object(fields.collect())
    };
    let fields = Fields::between(&many(0), &many(1));
    assert!(serde_json::to_vec(&fields.changes).expect("JSON").len() < 2 * ALL_BYTES);
    assert_eq!(fields.changes.len() + fields.more, 10_000);
    assert!(!fields.changes.is_empty());
    let long = json!({ "members": (0..1000).map(|n| format!("iqn.{n}")).collect::<Vec<_>>() });
    let mut more = long.clone();
    more["members"].as_array_mut().expect("a list").push(json!("iqn.x"));
    assert_eq!(lines(&Fields::between(&long, &more)), ["members[iqn.x]: - > \"iqn.x\""]);
    let ten = std::iter::repeat_n(Fields::between(&many(0), &many(1)).changes, 10);
    let sent: Vec<AuditChange> = ten.flatten().collect();
    let count = sent.len();
    let fields = Fields::sent(sent, 1);
    assert_eq!(fields.changes.len() + fields.more, count + 1);
    assert!(fields.bytes <= ALL_BYTES);
}

#[test]
fn what_was_asked_for_is_told_once() {
    let given = Fields::given(&json!({ "confirm": "x", "size_bytes": 2, "log": true, "none": null }));
    assert_eq!(lines(&given), ["log: - > true", "size_bytes: - > 2"]);
    let changed = Fields::between(&json!({ "size_bytes": 1 }), &json!({ "size_bytes": 2 }));
    assert_eq!(lines(&changed.and(given)), ["size_bytes: 1 > 2", "log: - > true"]);
}

#[test]
fn addresses_keep_no_secret() {
    for (address, told) in [
        ("HTTPS://hooks.example/SEED", "HTTPS://hooks.example/…"),
        (" https://me:SEED@host:1/SEED?SEED", " https://host:1/…"),
        ("https://host?SEED", "https://host/…"),
        ("https://host", "https://host"),
        (
            "iscsi://user%25SEED@host:3260/iqn.2026-01.org.example:t/1?target_password=SEED",
            "iscsi://host:3260/iqn.2026-01.org.example:t/1?…",
        ),
        ("iscsi://user%SE/ED@host/iqn.x/0", "iscsi://host/iqn.x/0"),
        ("disk=iscsi://u%SEED@[2001:db8::1]:3260/iqn.x/0", "disk=iscsi://[2001:db8::1]:3260/iqn.x/0"),
        ("/dev/sdb", "/dev/sdb"),
    ] {
        assert_eq!(without_secrets(address), told);
    }
    let given = Fields::given(&json!({ "url": "hooks.example/SEED", "disks": ["iscsi://u%SEED@h/iqn.x/0"] }));
    assert!(!format!("{given:?}").contains("SEED"), "{given:?}");
}

#[test]
fn a_secret_is_told_with_whose_it_is() {
    let given = json!({ "alias": "x", "set_user": { "user": "b", "secret": "SEED" } });
    let told = Fields::given(&given).only_secrets();
    let names: Vec<&str> = told.changes.iter().map(|change| change.field.as_str()).collect();
    assert_eq!(names, ["set_user.secret", "set_user.user"]);
}

#[test]
fn secrets_are_found_wherever_they_are() {
    let found = secrets_of(&json!({ "a": [{ "secret": "x" }], "password": "y", "name": "z" }));
    assert_eq!(found, ["x", "y"]);
}
