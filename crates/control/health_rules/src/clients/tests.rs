//! Tests of the rules of clients.

use control_api::{ShareCaching, ShareConfig, SmbSession};

use super::*;

fn session(initiator: &str, address: &str, connections: u64) -> Session {
    Session {
        initiator: initiator.into(),
        address: address.into(),
        target: "iqn.t".into(),
        connections,
        ..serde_json::from_value(serde_json::json!({
            "id": 1, "initiator": "", "address": "", "target": "", "isid": "", "tsih": 0, "connections": 1, "commands": 0,
            "read_bytes": 0, "written_bytes": 0, "digests": [],
        }))
        .expect("a session")
    }
}

fn portals(addresses: &[&str]) -> Vec<PortalInfo> {
    let portal = |at: &&str| PortalInfo {
        address: (*at).to_owned(),
        listening: Some((*at).to_owned()),
        group: 1,
        problem: None,
    };
    addresses.iter().map(portal).collect()
}

#[test]
fn one_way_is_told_of_where_there_are_two() {
    let both = portals(&["10.0.1.1:3260", "10.0.2.1:3260"]);
    let one = [session("iqn.a", "10.0.1.9:5000", 1)];
    let told = of_initiators(&one, &both);
    assert_eq!((told.len(), told[0].code.as_str()), (1, "initiator-single-path"));
    assert!(told[0].detail.contains("iqn.a"), "{}", told[0].detail);
    // A second session, or a second connection of one, clears it.
    let two = [session("iqn.a", "10.0.1.9:5000", 1), session("iqn.a", "10.0.2.9:5000", 1)];
    assert_eq!(of_initiators(&two, &both), []);
    assert_eq!(of_initiators(&[session("iqn.a", "10.0.1.9:5000", 2)], &both), []);
    // There is no second way to be had, or none is needed.
    assert_eq!(of_initiators(&one, &portals(&["10.0.1.1:3260"])), []);
    assert_eq!(of_initiators(&one, &portals(&["0.0.0.0:3260", "127.0.0.1:3260"])), []);
    assert_eq!(of_initiators(&[session("iqn.a", "127.0.0.1:5000", 1)], &both), []);
    assert_eq!(of_initiators(&[session("iqn.a", "10.0.1.1:5000", 1)], &both), []);
    let many: Vec<Session> = (0..9).map(|n| session(&format!("iqn.{n}"), "10.0.1.9:1", 1)).collect();
    let told = of_initiators(&many, &both);
    assert!(told[0].detail.contains("and 4 more"), "{}", told[0].detail);
}

fn share(name: &str, kind: ShareKind, encrypt: bool) -> Share {
    Share {
        config: ShareConfig {
            name: name.into(),
            volume: "v".into(),
            volume_guid: None,
            folder: "/".into(),
            comment: String::new(),
            kind,
            encrypt,
            caching: ShareCaching::default(),
            access_based_enumeration: false,
            hidden: false,
            read_only: false,
            permissions: Vec::new(),
        },
        online: true,
        problem: None,
        sessions: 0,
        opens: 0,
        traffic: control_api::ShareTraffic::default(),
    }
}

#[test]
fn plain_shares_are_told_of_where_pools_move() {
    let shares = [share("a", ShareKind::Plain, false), share("b", ShareKind::ScaleOut, false)];
    let told = of_shares_on_clusters(&shares, &|_| true);
    assert_eq!((told.len(), told[0].subject.as_str(), told[0].severity), (1, "share a", Severity::Info));
    assert_eq!(of_shares_on_clusters(&shares, &|_| false), []);
}

#[test]
fn who_comes_from_outside_and_could_encrypt_is_told_of() {
    let from = |address: &str, encrypted: bool, cipher: bool| {
        let mut session = session("", address, 1);
        session.smb = Some(SmbSession {
            sid: String::new(),
            user: "u".into(),
            workstation: String::new(),
            dialect: "3.1.1".into(),
            signing: String::new(),
            cipher: cipher.then(|| "AES-128-GCM".into()),
            encrypted,
            since: 0,
            opens: 0,
            shares: vec!["a".into(), "IPC$".into()],
            addresses: vec![address.to_owned()],
        });
        session
    };
    let shares = [share("a", ShareKind::ScaleOut, false)];
    let told = of_unencrypted(&[from("203.0.113.7:50000", false, true)], &shares);
    assert_eq!((told.len(), told[0].subject.as_str()), (1, "share a"));
    assert!(told[0].detail.contains("203.0.113.7"), "{}", told[0].detail);
    for quiet in [
        from("203.0.113.7:50000", true, true),
        from("203.0.113.7:50000", false, false),
        from("192.168.1.7:50000", false, true),
        from("[::ffff:10.0.0.1]:50000", false, true),
        from("[fd00::1]:50000", false, true),
        from("127.0.0.1:50000", false, true),
    ] {
        assert_eq!(of_unencrypted(std::slice::from_ref(&quiet), &shares), [], "{quiet:?}");
    }
    // Everything over it is encrypted, whatever the session says.
    assert_eq!(
        of_unencrypted(&[from("203.0.113.7:1", false, true)], &[share("a", ShareKind::ScaleOut, true)]),
        []
    );
}
