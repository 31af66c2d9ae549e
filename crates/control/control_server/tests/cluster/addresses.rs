//! The service address of a pool is where the pool is, and nowhere else.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

const ADDRESS: &str = "10.0.0.50/24";

/// Whether a node's machine has the address.
fn has(node: &Member) -> bool {
    node.addresses.held.lock().iter().any(|at| at.to_string() == ADDRESS)
}

fn set(node: &Member, update: &Value) {
    node.send("PATCH", "/v1/pools/p", update);
}

#[test]
fn an_address_goes_with_its_pool() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    comes("the second node knows", || second.pool("p") == ("n1".into(), "online".into()));
    // Any node is asked; the owner looks whether it is free, and gets it.
    set(&second, &json!({ "address": ADDRESS }));
    assert!(has(&first) && !has(&second), "it is there when it has been given");
    assert_eq!(first.addresses.announced.lock().first().map(ToString::to_string), Some("10.0.0.50".into()));
    let shown = first.get("/v1/pools/p")["address"].clone();
    assert_eq!(shown, json!({ "address": ADDRESS, "here": true }));
    comes("the others know", || second.get("/v1/cluster")["pools"][0]["address"] == ADDRESS);

    first.send("POST", "/v1/pools/p/move", &json!({ "node": "n2" }));
    assert!(!has(&first), "it goes before the pool");
    comes("the next owner has it", || has(&second) && second.serves("l", "s"));
    assert!(!second.addresses.announced.lock().is_empty(), "the network knows");

    second.kill();
    comes("one of the others has it", || has(&first) || has(&third));
    let (owner, other) = if has(&first) { (&first, &third) } else { (&third, &first) };
    assert!(owner.serves("l", "s") && !has(other));
    owner.freeze();
    comes("the other one has it", || has(other));
    owner.thaw();
    comes("who stood still lets go of it", || !has(owner));
    assert!(has(other) && other.serves("l", "s"));

    set(other, &json!({ "address": "" }));
    assert!(!has(other));
    assert!(other.get("/v1/pools/p").get("address").is_none(), "it is served at the node's addresses");
    assert!(other.serves("l", "s"));
    for node in [first, third] {
        node.stop();
    }
}

/// A connection of a client to the address.
fn client(port: u16) -> (SocketAddr, SocketAddr) {
    let local = "10.0.0.50:445".parse().expect("an address");
    (local, format!("10.0.0.99:{port}").parse().expect("an address"))
}

/// Waits until the store was asked in vain for the clients of a pool, more often than before.
fn asked_in_vain(world: &World) {
    let before = world.store.silences.load(Ordering::Relaxed);
    comes("a try in vain", || world.store.silences.load(Ordering::Relaxed) > before);
}

#[test]
fn clients_are_told_of_another_owner_though_the_store_was_slow_to_learn_and_to_say_who_they_are() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    set(&first, &json!({ "address": ADDRESS }));
    let silence = |about| *world.store.about.lock().expect("a lock") = about;

    // A client comes while the store does not answer, and nothing else changes afterwards.
    silence(Some("/clients"));
    first.smb.connections.lock().push(client(40001));
    asked_in_vain(&world);
    silence(None);
    let text = client(40001).1.to_string();
    comes("it is known who is connected", || world.store.holds("/clients", &text));

    // Who takes over asks in vain who was connected.
    silence(Some("/clients"));
    first.freeze();
    comes("another one has it", || has(&second) || has(&third));
    asked_in_vain(&world);
    silence(None);
    let told = |node: &Member| node.addresses.told.lock().contains(&client(40001));
    comes("the client is told", || told(&second) || told(&third));
    first.thaw();
    comes("who stood still lets go of it", || !has(&first));
    for node in [first, second, third] {
        node.stop();
    }
}

/// Two nodes, and two pools with addresses at the first one.
fn two_pools(world: &World) -> (Member, Member) {
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    first.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    let second = world.start(2);
    comes("both take part", || second.takes_part());
    set(&first, &json!({ "address": ADDRESS }));
    first.send("PATCH", "/v1/pools/q", &json!({ "address": "10.0.0.51/24" }));
    comes("both addresses are there", || first.addresses.held.lock().len() == 2);
    (first, second)
}

#[test]
fn a_slow_store_is_asked_for_the_clients_of_all_pools_at_once() {
    let world = World::new();
    let (first, second) = two_pools(&world);
    *world.store.about.lock().expect("a lock") = Some("/clients");
    first.kill();
    comes("both addresses are at the other node", || second.addresses.held.lock().len() == 2);
    comes("it is asked for both", || world.store.reading.load(Ordering::Relaxed) == 2);
    *world.store.about.lock().expect("a lock") = None;
    second.stop();
}

#[test]
fn more_clients_than_the_store_has_room_for_are_told_as_far_as_they_are_known() {
    let world = World::new();
    let (first, second) = two_pools(&world);
    first.smb.connections.lock().extend((20_000..22_000).map(client));
    let text = client(20_000).1.to_string();
    comes("it is known who is connected", || world.store.holds("/clients", &text));
    first.kill();
    comes("who was connected first is told", || {
        let told = second.addresses.told.lock();
        (20_000..21_000).map(client).all(|each| told.contains(&each))
    });
    // What they send comes here from then on.
    comes("the network is told", || !second.addresses.announced.lock().is_empty());
    assert_eq!(second.addresses.told_after.lock().values().next(), Some(&0), "the network was told first");
    second.stop();
}

#[test]
fn who_is_connected_to_an_address_that_is_the_machines_own_stays_though_a_pool_elsewhere_has_it() {
    let world = World::new();
    let (first, second) = two_pools(&world);
    comes("the second node knows", || second.pool("q").0 == "n1" && second.pool("p").0 == "n1");
    let own = control_api::ServiceAddress::parse(ADDRESS, Some("eth0")).expect("an address");
    second.addresses.own.lock().push(own);
    let stray = ("10.0.0.51:445".parse().expect("an address"), client(40002).1);
    second.smb.connections.lock().extend([client(40001), stray]);
    comes("who is connected to the other one is sent away", || {
        !second.smb.connections.lock().contains(&stray)
    });
    assert_eq!(*second.smb.connections.lock(), [client(40001)]);
    first.stop();
    second.stop();
}

#[test]
fn an_address_that_somebody_has_is_refused_and_a_pool_is_served_without() {
    let world = World::new();
    let node = world.start(1);
    comes("the node takes part", || node.takes_part());
    make(&node);
    let refused = |update: Value, code: &str| node.refused("PATCH", "/v1/pools/p", &update, code);
    let own = control_api::ServiceAddress::parse("10.0.0.1/24", Some("eth0")).expect("an address");
    node.addresses.own.lock().push(own);
    let told = refused(json!({ "address": "10.0.0.1/24" }), "in-use");
    assert!(told.contains("node n1 itself") && told.contains("eth0"), "{told}");
    let other = ("10.0.0.9".parse().expect("an address"), "02:00:00:00:00:09".to_owned());
    node.addresses.elsewhere.lock().extend([other]);
    let told = refused(json!({ "address": "10.0.0.9/24" }), "in-use");
    assert!(told.contains("02:00:00:00:00:09"), "{told}");
    refused(json!({ "address": "10.0.0.50" }), "invalid-request");
    refused(json!({ "interface": "eth0" }), "invalid-request");
    let told = refused(json!({ "address": ADDRESS, "interface": "eth7" }), "invalid-request");
    assert!(told.contains("eth7"), "{told}");
    assert!(node.addresses.held.lock().is_empty() && node.get("/v1/pools/p").get("address").is_none());

    node.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    node.send("PATCH", "/v1/pools/q", &json!({ "address": "10.0.0.51/24" }));
    let told = refused(json!({ "address": "10.0.0.51/24" }), "in-use");
    assert!(told.contains("Pool q"), "{told}");

    // The machine does not let the node: the pool is served all the same, and the status says what to do.
    *node.addresses.forbidden.lock() = true;
    set(&node, &json!({ "address": ADDRESS }));
    assert!(!has(&node) && node.serves("l", "s"));
    let shown = node.get("/v1/pools/p")["address"].clone();
    assert!(
        shown["here"] == false && shown["problem"].as_str().is_some_and(|why| why.contains("may not")),
        "{shown}"
    );
    let issues = node.get("/v1/status")["issues"].clone();
    assert!(
        issues
            .as_array()
            .is_some_and(|all| all.iter().any(|issue| issue["subject"] == format!("address {ADDRESS}"))),
        "{issues}"
    );
    *node.addresses.forbidden.lock() = false;
    comes("it gets it when it may", || has(&node));
    assert_eq!(node.get("/v1/status")["issues"], json!([]));
    node.stop();
}
