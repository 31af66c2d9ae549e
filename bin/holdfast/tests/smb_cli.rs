//! Shares, users, groups and the SMB server over the real command line, against a node whose parts are in memory: who is
//! asked, told and refused what, and what survives a restart.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod bench;

use bench::Bench;

/// Makes a user with a password from standard input.
fn make_user(bench: &Bench, name: &str) {
    let output = bench.run_with(&["user", "create", name, "--password-stdin"], "correct horse\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn users_are_made_changed_and_removed() {
    let bench = Bench::new();
    make_user(&bench, "alice");
    let user = &bench.items("user list")[0];
    assert_eq!((&user["name"], &user["disabled"]), (&"alice".into(), &false.into()));
    assert!(user["sid"].as_str().expect("SID").starts_with("S-1-5-21-"), "{user}");
    assert!(!user.to_string().contains("horse"), "no password comes out");

    let short = bench.run_with(&["user", "create", "bob", "--password-stdin"], "short\n");
    let message = String::from_utf8_lossy(&short.stderr).into_owned();
    assert_eq!(short.status.code(), Some(1));
    assert!(message.contains("too short") && message.contains("at least 8"), "{message}");
    let (code, message) = bench.refused("user create bob");
    assert!(code == 1 && message.contains("--password-stdin"), "no terminal to ask on: {message}");
    let again = bench.run_with(&["user", "create", "ALICE", "--password-stdin"], "correct horse\n");
    assert!(String::from_utf8_lossy(&again.stderr).contains("already"));
    assert!(bench.refused("user create a@b --password-stdin").1.contains("password"));

    bench.ok("user set alice --disable --comment on-leave");
    assert!(bench.ok("user list").contains("disabled"));
    bench.ok("user set ALICE --enable");
    assert_eq!(bench.refused("user set alice").0, 2);
    assert!(
        bench.run_with(&["user", "passwd", "alice", "--password-stdin"], "battery staple\n").status.success()
    );
    bench.ok("user unlock alice");
    for line in ["user unlock nobody", "user set nobody --enable", "user delete nobody --yes"] {
        let (code, message) = bench.refused(line);
        assert!(code == 1 && message.contains("holdfast user list"), "{line}: {message}");
    }
    let (_, message) = bench.refused("user delete alice");
    assert!(message.contains("disappears") && message.contains("--yes"), "{message}");
    bench.ok("user delete alice --yes");
    assert_eq!(bench.items("user list").len(), 0);
}

#[test]
fn groups_have_members() {
    let bench = Bench::new();
    make_user(&bench, "alice");
    bench.ok("group create hosts alice --comment hypervisors");
    bench.ok("group add Administrators hosts");
    let groups = bench.items("group list");
    let members =
        |name: &str| groups.iter().find(|group| group["name"] == name).expect("group")["members"].clone();
    assert_eq!(members("hosts"), serde_json::json!(["alice"]));
    assert_eq!(members("Administrators"), serde_json::json!(["hosts"]));
    assert_eq!(bench.items("user list")[0]["groups"], serde_json::json!(["hosts"]));
    assert!(bench.refused("group add hosts alice").1.contains("already"));
    assert!(bench.refused("group add hosts nobody").1.contains("neither a user nor a group"));
    assert!(bench.refused("group create alice").1.contains("already"));
    assert!(bench.refused("group delete Administrators --yes").1.contains("built in"));
    bench.ok("group remove hosts alice");
    assert!(bench.refused("group remove hosts alice").1.contains("no member"));
    bench.ok("group delete hosts --yes");
    assert!(!bench.ok("group list").contains("hosts"));
    // Groups of initiators are others.
    bench.ok("initiator-group create g --any");
    assert!(bench.refused("group delete g --yes").1.contains("no group"));
}

#[test]
fn shares_are_made_changed_and_removed() {
    let bench = Bench::new();
    bench.furnish();
    make_user(&bench, "alice");
    assert_eq!(bench.refused("share create vmstore").0, 2, "who may use it must be said");
    let (code, message) = bench.refused("share create vmstore --full nobody");
    assert!(code == 1 && message.contains("neither a user nor a group"), "{message}");
    assert!(bench.refused("share create ipc$ --full alice").1.contains("reserved"));
    assert!(bench.refused("share create s --full alice --folder a/b").1.contains("start with"));
    assert!(bench.refused("share create s --full alice --folder /luns/l").1.contains("a file"));
    assert_eq!(bench.names("file ls v:/"), ["luns"], "a refused share leaves no folder");

    bench.ok("share create vmstore --full alice --read Everyone");
    let share = &bench.items("share list")[0];
    assert_eq!(
        (&share["online"], &share["kind"], &share["folder"]),
        (&true.into(), &"scale-out".into(), &"/shares/vmstore".into())
    );
    assert_eq!(bench.names("file ls v:/shares"), ["vmstore"]);
    assert!(bench.refused("share create VMSTORE --full alice").1.contains("already"));
    for line in ["file rm v:/shares/vmstore --yes", "file mv v:/SHARES v:/x"] {
        assert!(bench.refused(line).1.contains(" vmstore"), "{line}");
    }

    bench.ok("lun delete l --yes");
    assert!(bench.refused("volume delete v --yes").1.contains("shares vmstore"));

    bench.ok("share set vmstore --change alice --revoke everyone --encrypt on --kind plain --caching none");
    let share = bench.json("share show VMStore");
    assert_eq!(share["permission"], serde_json::json!([{ "who": "alice", "right": "change" }]));
    assert_eq!(
        (&share["encrypt"], &share["kind"], &share["caching"]),
        (&true.into(), &"plain".into(), &"none".into())
    );
    for kind in ["clustered", "scale-out", "plain"] {
        bench.ok(&format!("share set vmstore --kind {kind}"));
        assert!(bench.ok("share list").contains(kind));
        assert!(bench.ok("share show vmstore").contains(&format!("kind      {kind}, encrypted")));
    }
    assert_eq!(bench.refused("share create k --kind plain --no-ca --full alice").0, 2);
    assert!(bench.refused("share set vmstore --revoke bob").1.contains("no permission for bob"));
    assert_eq!(bench.refused("share set vmstore").0, 2);
    assert!(bench.ok("share show vmstore").contains("alice change"));
    assert!(bench.ok("status").contains("1 share (1 online)"));

    let (_, message) = bench.refused("user delete alice");
    assert!(message.contains("permissions for shares vmstore"), "{message}");
    bench.ok("user delete alice --yes");
    assert_eq!(bench.json("share show vmstore")["permission"], serde_json::json!([]), "nobody is left in it");
    let (_, message) = bench.refused("share delete vmstore");
    assert!(message.contains("stays"), "{message}");
    bench.ok("share delete vmstore --yes");
    assert_eq!(bench.items("share list").len(), 0);
    assert_eq!(bench.names("file ls v:/shares"), ["vmstore"], "the folder stays");
}

#[test]
fn the_smb_server_is_configured() {
    let bench = Bench::new();
    assert_eq!(bench.json("smb status")["listeners"], serde_json::json!([]), "nothing is served unless told");
    assert!(bench.ok("smb status").contains("It listens nowhere"));
    bench.ok("smb set --listen 127.0.0.1:4450 --encryption required --min-dialect 3.0 --interface eth0");
    let status = bench.json("smb status");
    assert_eq!(status["listeners"][0]["listening"], "127.0.0.1:4450");
    assert_eq!((&status["encryption"], &status["min_dialect"]), (&"required".into(), &"3.0".into()));
    let (_, message) = bench.refused("smb set --listen 127.0.0.1:1 --signing offered");
    assert!(message.contains("in use") && message.contains("Nothing was changed"), "{message}");
    assert_eq!(bench.json("smb status")["listen"], serde_json::json!(["127.0.0.1:4450"]));
    assert_eq!(bench.json("smb status")["signing"], "required");
    assert!(bench.refused("smb set --max-dialect 2.1").1.contains("newer"));
    assert!(bench.refused("smb set --listen localhost:445").1.contains("not an address"));
    assert_eq!(bench.refused("smb set").0, 2);
    bench.ok("smb set --no-listen --all-interfaces");
    assert_eq!(bench.json("smb status")["listen"], serde_json::json!([]));
    assert_eq!(bench.items("open list").len(), 0);
    assert!(bench.refused("open close 7 --yes").1.contains("no open 7"));
    assert!(bench.refused("session close 7 --yes").1.contains("no session 7"));
}

#[test]
fn configuration_goes_round_and_users_stay_out_of_it() {
    let mut bench = Bench::new();
    bench.furnish();
    make_user(&bench, "alice");
    bench.ok("share create vmstore --full alice --hidden --comment x");
    bench.ok("smb set --listen 127.0.0.1:4450 --domain LAB");
    let saved = bench.ok("config show");
    assert!(saved.contains("[[share]]") && saved.contains("[smb]") && !saved.contains("[[user"), "{saved}");
    let full = bench.dir.path().join("full.toml");
    let bare = bench.dir.path().join("bare.toml");
    std::fs::write(&full, &saved).expect("written");
    let cut = saved.split("[smb]").next().expect("text");
    std::fs::write(&bare, cut).expect("written");
    let (_, message) = bench.refused(&format!("config apply {}", bare.display()));
    assert!(message.contains("share vmstore is taken away"), "{message}");
    bench.ok(&format!("config apply {} --yes", bare.display()));
    assert_eq!(bench.items("share list").len(), 0);
    assert_eq!(bench.json("smb status")["domain"], "WORKGROUP");
    assert!(bench.ok(&format!("config apply {}", full.display())).contains("+ share vmstore"));
    assert_eq!(bench.ok("config show"), saved);

    bench.stop();
    bench.start();
    assert_eq!(bench.ok("config show"), saved);
    assert_eq!(bench.names("user list"), ["alice"], "users outlive the node");
    assert_eq!(bench.items("share list")[0]["online"], true);

    let lost = saved.replace("volume = \"v\"\n", "volume = \"w\"\n");
    std::fs::write(&bare, &lost).expect("written");
    // Which volume it is on is said by more than the name.
    let told = bench.ok(&format!("config apply {}", bare.display()));
    assert!(
        told.contains("share vmstore: there is no volume w; by its `volume_guid` it is on volume v"),
        "{told}"
    );
    assert_eq!(bench.ok("config show"), saved);
    let by_name: Vec<&str> = lost.lines().filter(|line| !line.starts_with("volume_guid")).collect();
    std::fs::write(&bare, by_name.join("\n")).expect("written");
    let (_, message) = bench.refused(&format!("config apply {}", bare.display()));
    assert!(
        message.contains("LUN l is made of w:/luns/l and stays the disk that initiators know"),
        "{message}"
    );
    let told = bench.ok(&format!("config apply {} --yes", bare.display()));
    assert!(told.contains("share vmstore: volume w is not there"), "{told}");
    assert!(bench.ok("status").contains("share vmstore: it is not served: volume w is not there"));
    assert_eq!(bench.items("share list")[0]["online"], false);
}
