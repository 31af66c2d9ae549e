//! The command line of targets, their users, and who sees a LUN.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod bench;

use bench::{Bench, TARGET};

#[test]
fn users_of_a_target_come_change_and_go() {
    let bench = Bench::new();
    bench.furnish();
    let file = |name: &str| {
        let path = bench.dir.path().join(name);
        std::fs::write(&path, format!("the-secret-of-{name}\n")).expect("written");
        path.display().to_string()
    };
    let (a, b) = (file("a"), file("b"));
    bench.ok("initiator-group create hosts iqn.2026-01.io.holdfast:host");
    bench.ok(&format!("target set {TARGET} --chap-user a --chap-secret-file {a}"));
    let (code, message) = bench.refused(&format!("target set-user {TARGET} b --secret-file {b}"));
    assert_eq!(code, 1);
    assert!(message.contains("--group") && message.contains("--any-initiator"), "{message}");
    bench.refused(&format!("target set-user {TARGET} b --secret-file {b} --group nobody"));
    bench.ok(&format!("target set-user {TARGET} b --secret-file {b} --group hosts"));
    assert!(bench.ok("target list").contains("a, b as hosts"));
    assert!(bench.ok("status").contains("set-user"), "a may be anybody");
    bench.ok(&format!("target set-user {TARGET} a --group hosts"));
    assert!(!bench.ok("status").contains("set-user"));
    let (_, message) = bench.refused("initiator-group delete hosts --yes");
    assert!(message.contains("CHAP user"), "its users would be let in as anybody: {message}");
    assert_eq!(bench.refused(&format!("target set-user {TARGET} a")).0, 2);
    bench.ok(&format!("target remove-user {TARGET} b"));
    let (_, message) = bench.refused(&format!("target remove-user {TARGET} a"));
    assert!(message.contains("--no-chap"), "{message}");
    assert!(bench.ok("target discovery").contains("asks for nothing"));
    bench.ok("target discovery --chap on");
    assert_eq!(bench.json("target discovery")["discovery_chap"], true);
    assert!(bench.ok("config show").contains("discovery_chap = true"));
}

#[test]
fn chap_is_turned_off_and_on_with_its_users() {
    let bench = Bench::new();
    bench.furnish();
    let secret = bench.dir.path().join("secret");
    std::fs::write(&secret, "the-secret-of-a").expect("written");
    let file = secret.display();
    bench.ok(&format!("target set {TARGET} --chap-user a --chap-secret-file {file}"));
    bench.ok(&format!("target set-user {TARGET} b --secret-file {file} --any-initiator"));
    bench.ok("target discovery --chap on");
    let (_, message) = bench.refused(&format!("target set {TARGET} --no-chap"));
    for word in ["without CHAP", "(a, b) are kept", "--chap", "target discovery --chap off"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert!(bench.ok("target list").contains("a, b"), "nothing was done");
    let (_, message) = bench.refused(&format!("target set {TARGET} --chap-user c --chap-secret-file {file}"));
    assert!(message.contains("(a, b) and their secrets are forgotten"), "{message}");
    bench.ok(&format!("target set {TARGET} --no-chap --yes"));
    assert!(bench.ok("target list").contains("off (a, b kept)"));
    let status = bench.ok("status");
    assert!(status.contains("iSCSI discovery") && status.contains("--chap off"), "{status}");
    let saved = bench.ok("config show");
    assert!(saved.contains("chap_off = true") && saved.contains("the-secret-of-a"), "{saved}");
    bench.ok(&format!("target set {TARGET} --chap"));
    assert!(!bench.ok("target list").contains("off"));
    assert!(!bench.ok("status").contains("iSCSI discovery"));
    let (_, message) = bench.refused(&format!("target set {TARGET} --no-chap --forget-users"));
    assert!(message.contains("(a, b) and their secrets are forgotten"), "{message}");
    bench.ok(&format!("target set {TARGET} --no-chap --forget-users --yes"));
    assert!(bench.ok("target list").contains("none"));
    let (_, message) = bench.refused(&format!("target set {TARGET} --chap"));
    assert!(message.contains("set-user"), "{message}");
    assert_eq!(bench.refused(&format!("target set {TARGET} --chap --no-chap")).0, 2);
}

#[test]
fn who_sees_a_lun_and_who_caches_it() {
    let bench = Bench::new();
    bench.furnish();
    // The group that has all initiators is there already, by another name.
    bench.ok("lun create m --size 1G --everyone");
    assert_eq!(bench.json("lun list")["items"][1]["map"][0]["group"], "g");
    bench.ok("lun unmap m --everyone");
    assert_eq!(bench.refused("lun map m").0, 2);
    assert_eq!(bench.refused("lun map m --everyone --group g").0, 2);
    bench.ok("target create iqn.2026-01.io.holdfast:u");
    let (_, message) = bench.refused("lun map m --everyone");
    assert!(message.contains(&format!("several targets: {TARGET}, iqn.2026-01.io.holdfast:u.")), "{message}");
    bench.ok(&format!("lun map m --everyone --target {TARGET} --read-only"));
    bench.ok("lun write-cache m on");
    assert_eq!(bench.refused("lun write-cache m perhaps").0, 2);
    let lun = &bench.items("lun list")[1];
    assert_eq!(
        (&lun["write_cache"], &lun["initiator_write_cache"]),
        (&true.into(), &serde_json::Value::Null)
    );
    bench.ok("lun write-cache m off --initiators-may-change");
    assert_eq!(bench.items("lun list")[1]["initiator_write_cache"], true);
    assert!(bench.ok("lun list").contains("off (initiators may change it)"));
    // It stays until somebody says otherwise.
    bench.ok("lun write-cache m on");
    assert!(bench.ok("lun list").contains("off now (initiators may change it)"));
    bench.ok("lun write-cache m on --initiators-may-not-change");
    assert!(!bench.ok("lun list").contains("initiators may"));
}
