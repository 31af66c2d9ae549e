//! Lines of the log that initiators can cause at will: each kind is throttled, whatever a login is refused for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::fmt::Debug;
use std::sync::Arc;

use iscsi_protocol::IscsiName;
use iscsi_target::{InitiatorAccess, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use parking_lot::Mutex;
use support::initiator::Initiator;
use support::{MemoryDisk, Threads};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the lines that a log would have.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("iscsi_target")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().push(message.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Logins of each kind, and lines of one kind about one peer that a minute may have.
const LOGINS: usize = 40;
const MOST: usize = 10;

#[test]
fn a_login_that_masking_refuses_fills_no_log() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let server = IscsiServer::new(ServerConfig::default(), Threads::start(1), support::random()).unwrap();
    let portal = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
    let address = server.add_portal(portal).unwrap();
    let name = IscsiName::parse("iqn.2026-01.org.example:disk").unwrap();
    let nobody = InitiatorAccess::Check(Arc::new(|_: &IscsiName| false));
    let target = TargetConfig { access: nobody, ..TargetConfig::new(name, MemoryDisk::new(1 << 20)) };
    server.add_target(target).unwrap();
    for _ in 0..LOGINS {
        let answer = Initiator::connect(address).login(&[]);
        assert_eq!(answer.bhs.u16_at(36), 0x0203, "as if there were no such target");
    }
    let lines = lines.0.lock();
    let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert!((1..=MOST).contains(&of("no LUN of the target")), "{lines:?}");
    assert!((1..=MOST).contains(&of("login refused")), "{lines:?}");
}
