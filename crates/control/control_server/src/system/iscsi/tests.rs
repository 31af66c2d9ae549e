//! Who is let in, and in which order a configuration takes the place of another.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{OnceLock, Weak};

use control_api::{ChapUser as ChapUserConfig, LunConfig, MapConfig};

use super::*;

fn config() -> Config {
    Config {
        groups: vec![
            GroupConfig { name: "a".into(), initiators: vec!["iqn.2026-01.io.x:A".into()], any: false },
            GroupConfig { name: "all".into(), initiators: vec![], any: true },
        ],
        luns: vec![LunConfig {
            map: vec![MapConfig { target: "t".into(), number: 0, group: "a".into(), read_only: false }],
            ..LunConfig::new("l", "v", "/l")
        }],
        ..Config::default()
    }
}

#[test]
fn only_those_with_a_lun_are_admitted() {
    let mut config = config();
    let admitted = Admitted::of(&config, "t");
    assert!(!admitted.any && admitted.initiators.contains("iqn.2026-01.io.x:a"));
    assert_eq!(Admitted::of(&config, "other"), Admitted::default(), "nobody, rather than everybody");
    config.luns[0].map[0].group = "all".into();
    assert!(Admitted::of(&config, "t").any);
}

/// Units that only remember how many sessions there were when what is shown became less, and when it became more.
#[derive(Default)]
struct Noted {
    iscsi: OnceLock<Weak<Iscsi>>,
    at: Mutex<Vec<(&'static str, usize)>>,
}

impl Noted {
    fn note(&self, what: &'static str) {
        let iscsi = self.iscsi.get().and_then(Weak::upgrade);
        self.at.lock().push((what, iscsi.map_or(0, |iscsi| iscsi.sessions().len())));
    }
}

impl UnitBackend for Noted {
    fn narrow(&self, _: &Current) {
        self.note("narrow");
    }

    fn admit(&self, _: &Current) {
        self.note("admit");
    }

    fn hold_images(&self, _: Vec<String>) -> Work<'_, Vec<vhdx::Held>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn apply_pool<'a>(
        &'a self,
        _: &'a Current,
        _: Option<Uuid>,
        _: Vec<ServedLun>,
    ) -> Work<'a, Vec<(String, String)>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn device(&self, _: &str) -> Arc<dyn ScsiDevice> {
        Arc::new(TargetDevice::new())
    }

    fn target(&self, _: &str) -> Option<Arc<TargetDevice>> {
        None
    }

    fn forward_by(&self, _: Arc<dyn Forward>) {}

    fn close(&self) -> Work<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn counters(&self) -> Vec<(String, IoTotals)> {
        Vec::new()
    }

    fn write_caches(&self) -> Vec<(String, bool)> {
        Vec::new()
    }

    fn reservations(&self) -> Vec<(String, LunReservations)> {
        Vec::new()
    }

    fn forget_lost_writes<'a>(&'a self, lun: &'a str, _: Option<String>) -> Work<'a, Vec<String>> {
        Box::pin(std::future::ready(Err(Problem::new(Code::NotFound, lun))))
    }

    fn clear_reservations<'a>(&'a self, lun: &'a str) -> Work<'a, LunReservations> {
        Box::pin(std::future::ready(Err(Problem::new(Code::NotFound, lun))))
    }

    fn images(&self) -> Vec<(String, ImageNow)> {
        Vec::new()
    }

    fn resize_image<'a>(&'a self, _: &'a str, _: u64) -> Work<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn flows(&self) -> Vec<FlowOn> {
        Vec::new()
    }

    fn queues(&self) -> Vec<QueueOf> {
        Vec::new()
    }

    fn inspect(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Logs in without CHAP, and then says nothing more: it does not log out when it is asked to.
fn log_in(address: SocketAddr, target: &str) -> TcpStream {
    let text = format!("InitiatorName=iqn.2026-01.io.x:a\0TargetName={target}\0SessionType=Normal\0");
    let mut pdu = vec![0; 48];
    // Login request, immediate; from the operational stage to the full feature phase.
    (pdu[0], pdu[1], pdu[8]) = (0x43, 0x87, 0x80);
    pdu[5..8].copy_from_slice(&(text.len() as u32).to_be_bytes()[1..]);
    pdu.extend_from_slice(text.as_bytes());
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&pdu).expect("sent");
    let mut answer = [0; 48];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!((answer[0], &answer[36..38]), (0x23, &[0, 0][..]), "let in to {target}");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_to_go_has_gone_before_anything_new_is_seen() {
    let shards = crate::system::shards::SystemShards::start(Some(1)).expect("a shard");
    let noted = Arc::new(Noted::default());
    let budget = Budget::new(64 << 20).for_service();
    let iscsi = Arc::new(Iscsi::new(shards, noted.clone(), budget).expect("made"));
    let _ = noted.iscsi.set(Arc::downgrade(&iscsi));
    let target = |name: &str| TargetConfig {
        name: format!("iqn.2026-01.io.x:{name}"),
        alias: String::new(),
        portal_groups: Vec::new(),
        auth: AuthConfig::default(),
    };
    let mut before = config();
    before.targets = ["goes", "asks", "stays"].map(target).to_vec();
    before.luns[0].map = before
        .targets
        .iter()
        .map(|target| MapConfig {
            target: target.name.clone(),
            number: 0,
            group: "all".into(),
            read_only: false,
        })
        .collect();
    before.portals = vec![PortalConfig { address: "127.0.0.1:0".into(), group: 1 }];
    let apply = async |revision, config: &Config| {
        let current = Current { revision, config: Arc::new(config.clone()) };
        iscsi.apply(&current).await.expect("applied")
    };
    assert!(apply(1, &before).await.is_empty());
    let address = iscsi.portals()[0].listening.clone().expect("it listens").parse().expect("an address");
    let _connected: Vec<TcpStream> =
        before.targets.iter().map(|target| log_in(address, &target.name)).collect();
    assert_eq!(iscsi.sessions().len(), 3);
    noted.at.lock().clear();
    let mut after = before.clone();
    let gone = after.targets.remove(0);
    after.luns[0].map.retain(|map| map.target != gone.name);
    let user =
        ChapUserConfig { user: "u".into(), secret: "twelve bytes and more".into(), groups: Vec::new() };
    after.targets[0].auth.chap.push(user);
    assert!(apply(2, &after).await.is_empty());
    let at = noted.at.lock().clone();
    assert_eq!(at, [("narrow", 3), ("admit", 1)], "the one that stays is the only one by then");
    iscsi.stop().await.expect("stops");
}
