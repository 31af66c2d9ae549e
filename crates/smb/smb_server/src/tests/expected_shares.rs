//! Clients that connect to a share that is on its way.

use std::sync::Arc;
use std::time::Duration;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;
use test_layers::OnDrop;

use super::client::{Client, Got, Work};
use super::world::{Ask, OLD, VICTIM, World};
use crate::ShareConfig;
use crate::limits::SHARE_WAIT_MAX;
use crate::session::User;
use smb_security::Token;

/// A server one of whose shares is not there, with a client of another one.
struct Away {
    world: World,
    client: Client,
    config: ShareConfig,
}

const AWAY: &str = "ca";

impl Away {
    async fn new(expected: &str) -> Self {
        let world = World::new(OnDrop::Stops);
        let client = world.client(1, VICTIM, "plain").await;
        let config = world.server.shares().into_iter().find(|share| share.name == AWAY).unwrap();
        assert!(world.server.release_share(AWAY));
        world.server.expect_shares(&[expected.to_owned()]);
        Self { world, client, config: (*config).clone() }
    }

    /// A request to connect to it, for which the client has waited for some seconds.
    async fn waits(&self) -> Work {
        let mut work = self.client.begin(&self.client.connect_tree(AWAY));
        let ended = shard_runtime::timeout(Duration::from_secs(5), &mut work.future).await;
        assert!(ended.is_none(), "it has not come");
        work
    }

    /// How the request ends without anything else happening; it has to within this.
    async fn ends(&self, work: Work, within: Duration) -> NtStatus {
        self.ended(work, within).await.status()
    }

    async fn ended(&self, mut work: Work, within: Duration) -> Got {
        let ended = shard_runtime::timeout(within, &mut work.future).await;
        assert!(ended.is_some(), "it waits on");
        drop(work.future);
        assert!(self.client.conn.pending.borrow().is_empty(), "it does not count any more");
        self.client.answer(work.last).await.unwrap()
    }

    fn comes(&self) {
        self.world.server.prepare_share(self.config.clone()).unwrap();
    }

    fn stays_away(&self) {
        self.world.server.expect_shares(&[]);
    }
}

const AT_ONCE: Duration = Duration::from_millis(1);

#[test]
fn a_share_that_is_on_its_way_is_waited_for_and_holds_up_nothing_else() {
    sim::on_shard(async {
        let away = Away::new("CA").await;
        let mut work = away.waits().await;
        assert_eq!(away.client.conn.pending.borrow().len(), 1, "it counts among those that wait");
        away.client.file("f", &OLD).await;
        // What clients had open is brought back.
        away.comes();
        away.stays_away();
        let ended = shard_runtime::timeout(Duration::from_secs(1), &mut work.future).await;
        assert!(ended.is_none(), "it is not published");
        assert!(away.world.server.publish_share(AWAY));
        let got = away.ended(work, AT_ONCE).await;
        assert_eq!(got.status(), NtStatus::SUCCESS);
        away.client.tree.set(got.header.tree_id().expect("an answer that has the number of the tree"));
        assert_eq!(away.client.content(away.client.open(&Ask::open("f")).await).await, OLD);
    })
    .unwrap();
}

#[test]
fn a_share_that_stays_away_is_none_at_once() {
    sim::on_shard(async {
        let away = Away::new(AWAY).await;
        let work = away.waits().await;
        away.stays_away();
        assert_eq!(away.ends(work, AT_ONCE).await, NtStatus::BAD_NETWORK_NAME);
        // So is one that nobody expects.
        let work = away.client.begin(&away.client.connect_tree(AWAY));
        assert_eq!(away.ends(work, AT_ONCE).await, NtStatus::BAD_NETWORK_NAME);
        // What was open could not be brought back: the next try may do it.
        away.world.server.expect_shares(&[AWAY.to_owned()]);
        away.comes();
        let work = away.waits().await;
        assert!(away.world.server.release_share(AWAY));
        away.comes();
        assert!(away.world.server.publish_share(AWAY));
        assert_eq!(away.ends(work, AT_ONCE).await, NtStatus::SUCCESS);
    })
    .unwrap();
}

#[test]
fn a_share_that_does_not_come_is_waited_for_so_long_only() {
    sim::on_shard(async {
        let away = Away::new(AWAY).await;
        let work = away.waits().await;
        assert_eq!(away.ends(work, SHARE_WAIT_MAX).await, NtStatus::SERVER_UNAVAILABLE);
        // Nor is one whose opens are not back.
        away.comes();
        let work = away.waits().await;
        assert_eq!(away.ends(work, SHARE_WAIT_MAX).await, NtStatus::SERVER_UNAVAILABLE);
    })
    .unwrap();
}

#[test]
fn who_waits_for_a_share_can_cancel_it_log_off_and_go_away() {
    sim::on_shard(async {
        let away = Away::new(AWAY).await;
        let work = away.waits().await;
        away.client.conn.pending.borrow().get(&work.last).expect("it can be cancelled").cancel();
        assert_eq!(away.ends(work, AT_ONCE).await, NtStatus::CANCELLED);

        let work = away.waits().await;
        away.client.lose(work);
        assert!(away.client.conn.pending.borrow().is_empty(), "it ends with its connection");

        let away = Away::new(AWAY).await;
        let work = away.waits().await;
        assert!(away.world.server.close_session(away.client.session.get()));
        away.comes();
        assert!(away.world.server.publish_share(AWAY));
        assert_eq!(away.ends(work, AT_ONCE).await, NtStatus::USER_SESSION_DELETED);
    })
    .unwrap();
}

#[test]
fn who_waits_for_a_share_has_the_rights_of_when_it_has_come() {
    sim::on_shard(async {
        let mut away = Away::new(AWAY).await;
        away.config.permissions.iter_mut().for_each(|each| each.who = Sid::ADMINISTRATORS);
        let session = away.world.server.shared.session(away.client.session.get()).unwrap();
        let proves = |is_admin| {
            let before = session.user();
            let user = before.token.user;
            let token = Arc::new(Token::new(user, user, &[], is_admin));
            let (identity, workstation) = (before.identity.clone(), before.workstation.clone());
            *session.user.write() = Arc::new(User { identity, token, workstation });
        };
        proves(true);
        let work = away.waits().await;
        // Proven once more meanwhile, and without the group that the share is for.
        proves(false);
        away.comes();
        assert!(away.world.server.publish_share(AWAY));
        assert_eq!(away.ends(work, AT_ONCE).await, NtStatus::ACCESS_DENIED);
    })
    .unwrap();
}
