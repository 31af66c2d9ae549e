//! Whose a connection is, and what of all connections a user leaves to others and gets back of what has died.

use smb_protocol::NtStatus;
use smb_protocol::message::Request;

use super::client::Client;
use super::places::{GREEDY, QUARTER, small};
use super::world::{OTHER, VICTIM, sid};
use crate::limits::MAX_CONNECTIONS;
use crate::peer::Mail;
use crate::places::Tables;

#[test]
fn a_connection_counts_as_the_first_users_until_it_ends() {
    sim::on_shard(async {
        let world = small();
        let mut clients = Vec::new();
        for number in 0..QUARTER as u64 {
            let client = Client::connect(&world.server.shared, number, VICTIM).await;
            let packet = client.last_of_login_as("greedy", 0).await;
            client.call_bytes(&packet).await.good();
            client.call(&Request::Logoff).await;
            clients.push(client);
        }
        let one_more = Client::connect(&world.server.shared, 99, VICTIM).await;
        let packet = one_more.last_of_login_as("greedy", 0).await;
        assert_eq!(one_more.call_bytes(&packet).await.status(), NtStatus::INSUFFICIENT_RESOURCES);
        assert!(world.server.sessions().is_empty(), "a session is left of a login that was refused");
        let packet = one_more.last_of_login_as("admin", 0).await;
        one_more.call_bytes(&packet).await.good();
        drop(clients);
        assert_eq!(world.server.shared.tables.connections.taken(sid(GREEDY)), (1, 0));
    })
    .unwrap();
}

/// A host has lost its power: its connections stay, and it comes back.
#[test]
fn who_comes_back_has_the_places_of_connections_that_died() {
    sim::on_shard(async {
        let world = small();
        let mut clients = Vec::new();
        for number in 0..QUARTER as u64 {
            let client = Client::connect(&world.server.shared, number, VICTIM).await;
            let packet = client.last_of_login_as("greedy", 0).await;
            client.call_bytes(&packet).await.good();
            clients.push(client);
        }
        let ends = |client: &Client| {
            let peer = &client.conn.peer;
            peer.take_mail().iter().any(|mail| match mail {
                Mail::Unused => peer.carries() == 0,
                other => matches!(other, Mail::Close),
            })
        };
        let taken = || world.server.shared.tables.connections.taken(sid(GREEDY)).1;
        assert_eq!(taken(), QUARTER);
        // Again and again: each takes the place of the one before it.
        let mut last = clients.remove(0);
        for number in 100..100 + 2 * QUARTER as u64 {
            let again = Client::connect(&world.server.shared, number, VICTIM).await;
            let packet = again.last_of_login_as("greedy", last.session.get()).await;
            again.call_bytes(&packet).await.good();
            assert!(ends(&last), "the connection that carried nothing else goes");
            assert_eq!(taken(), QUARTER);
            last = again;
        }
        // One that carries another session stays, and its place with it.
        assert!(clients[0].conn.peer.take_mail().is_empty());
        let (first, packet) = (clients[0].session.get(), clients[0].last_of_login_as("greedy", 0).await);
        assert_eq!(clients[0].call_bytes(&packet).await.status(), NtStatus::INSUFFICIENT_RESOURCES);
        clients.pop().unwrap().leave();
        let packet = clients[0].last_of_login_as("greedy", 0).await;
        clients[0].call_bytes(&packet).await.good();
        let again = Client::connect(&world.server.shared, 98, VICTIM).await;
        let packet = again.last_of_login_as("greedy", first).await;
        again.call_bytes(&packet).await.good();
        assert!(!ends(&clients[0]), "another session is on it");
        let one_more = Client::connect(&world.server.shared, 99, VICTIM).await;
        let packet = one_more.last_of_login_as("greedy", clients[0].session.get()).await;
        one_more.call_bytes(&packet).await.good();
        assert!(ends(&clients[0]), "by now it carries nothing");
        assert_eq!(taken(), QUARTER);
        drop((clients, last, again, one_more));
        assert_eq!(taken(), 0);
    })
    .unwrap();
}

/// Somebody else who knows the number of a session has nothing of its connection.
#[test]
fn only_its_user_takes_the_place_of_a_connection() {
    sim::on_shard(async {
        let world = small();
        let theirs = Client::connect(&world.server.shared, 50, OTHER).await;
        let packet = theirs.last_of_login_as("admin", 0).await;
        theirs.call_bytes(&packet).await.good();
        let mut clients = Vec::new();
        for number in 0..QUARTER as u64 {
            let client = Client::connect(&world.server.shared, number, VICTIM).await;
            let packet = client.last_of_login_as("greedy", 0).await;
            client.call_bytes(&packet).await.good();
            clients.push(client);
        }
        let late = Client::connect(&world.server.shared, 99, VICTIM).await;
        let packet = late.last_of_login_as("greedy", theirs.session.get()).await;
        assert_eq!(late.call_bytes(&packet).await.status(), NtStatus::INSUFFICIENT_RESOURCES);
        assert!(theirs.conn.peer.take_mail().is_empty());
    })
    .unwrap();
}

/// A crowded table leaves a host that comes back connections for all its ways.
#[test]
fn a_newcomer_gets_several_connections() {
    for limit in [512, 4096, 8192, MAX_CONNECTIONS] {
        let connections = Tables::default().connections;
        let mut held = Vec::new();
        let mut take = |rid: u32| {
            let got: Vec<_> = std::iter::from_fn(|| connections.take(sid(rid), limit, false)).collect();
            let count = got.len();
            held.extend(got);
            count
        };
        assert!((limit / 8..=limit / 4).contains(&take(1)), "of {limit}");
        (2..6).for_each(|rid| assert!(take(rid) >= 8));
        (6..14).for_each(|rid| assert!(take(rid) >= 8, "user {rid} of {limit}"));
    }
}
