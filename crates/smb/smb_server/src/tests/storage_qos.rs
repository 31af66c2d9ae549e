//! STORAGE_QOS_CONTROL as hosts use it, and as they must not.

use qos_gate::DiskName;
use smb_protocol::file::FileId;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::storage_qos::{
    QosAnswer, QosControl, QosOptions, QosStatus, QosVersion, qos_request,
};
use smb_protocol::message::Response;
use smb_protocol::{Guid, NtStatus};
use test_layers::OnDrop;
use uuid::Uuid;

use super::client::Client;
use super::world::{Ask, OLD, POLICY, VICTIM, World, ioctl_request, read_request};

const FLOW: Guid = Guid([0xb1; 16]);

/// What a host has open.
struct Host {
    client: Client,
    id: FileId,
}

impl Host {
    async fn open(world: &World) -> Self {
        let client = world.client(1, VICTIM, "plain").await;
        client.file("f", &OLD).await;
        let id = client.open(&Ask::open("f")).await;
        Self { client, id }
    }

    async fn send(&self, input: &[u8]) -> (NtStatus, Vec<u8>) {
        let got = self.client.call(&ioctl_request(self.id, FsctlCode::STORAGE_QOS_CONTROL, input)).await;
        match got.status() {
            NtStatus::SUCCESS => match got.good() {
                Response::Ioctl(answer) => (NtStatus::SUCCESS, answer.output.to_vec()),
                other => panic!("{other:?}"),
            },
            status => (status, Vec::new()),
        }
    }

    async fn ask(&self, options: QosOptions, change: impl FnOnce(&mut QosControl)) -> (NtStatus, Vec<u8>) {
        let mut control =
            QosControl { version: QosVersion::V1_1, options, flow: FLOW, ..QosControl::default() };
        change(&mut control);
        self.send(&qos_request(control, (0, 0), ("TEST-VM", "host.example"))).await
    }

    async fn status(&self) -> (QosAnswer, Option<u64>) {
        let (status, output) = self.ask(QosOptions::GET_STATUS | QosOptions::UPDATE_COUNTERS, |_| {}).await;
        assert_eq!(status, NtStatus::SUCCESS);
        QosAnswer::decode_with_bandwidth(&output).unwrap()
    }
}

fn policy(guid: Uuid) -> Guid {
    Guid(guid.to_bytes_le())
}

#[test]
fn a_host_sets_a_flow_and_a_policy_and_hears_what_holds() {
    sim::on_shard(async {
        let world = World::new(OnDrop::Stops);
        let host = Host::open(&world).await;
        let good = (NtStatus::SUCCESS, Vec::new());
        assert_eq!(host.ask(QosOptions::SET_LOGICAL_FLOW_ID, |_| {}).await, good);
        let set = |control: &mut QosControl| control.policy = policy(POLICY);
        assert_eq!(host.ask(QosOptions::SET_POLICY, set).await, good);
        let (answer, bandwidth) = host.status().await;
        assert_eq!((answer.flow, answer.policy, answer.status), (FLOW, policy(POLICY), QosStatus::OK));
        assert_eq!((answer.maximum_io_rate, answer.minimum_io_rate, bandwidth), (100, 0, Some(200)));
        assert_eq!((answer.base_io_size, answer.options), (8192, QosOptions::NONE));
        assert!(answer.time_to_live > 0);

        // It holds for what the host does: 16 normalised I/Os, and the next of them waits.
        let clock = tokio::time::Instant::now();
        for _ in 0..2 {
            host.client.call(&read_request(host.id, 131_072)).await.good();
        }
        assert!(clock.elapsed() >= std::time::Duration::from_millis(130), "{:?}", clock.elapsed());
        let flows = world.gate.flows();
        let named = |flow: &qos_gate::FlowReport| {
            flow.client == "TEST-VM@host.example" && matches!(flow.disk, DiskName::Flow(..))
        };
        assert!(flows.iter().any(named), "{flows:?}");

        // Version 1.0 has no bandwidth; one that is not there is said to be unknown, and limits nothing.
        let old = |control: &mut QosControl| {
            (control.version, control.policy) = (QosVersion::V1_0, Guid([9; 16]));
        };
        let (status, output) = host.ask(QosOptions::SET_POLICY | QosOptions::GET_STATUS, old).await;
        let (answer, bandwidth) = QosAnswer::decode_with_bandwidth(&output).unwrap();
        assert_eq!((status, output.len(), bandwidth), (NtStatus::SUCCESS, 88, None));
        assert_eq!((answer.status, answer.maximum_io_rate), (QosStatus::UNKNOWN_POLICY_ID, 0));

        // Numbers of its own.
        let own = |control: &mut QosControl| (control.limit, control.reservation) = (500, 50);
        assert_eq!(host.ask(QosOptions::SET_POLICY, own).await, good);
        let (answer, _) = host.status().await;
        assert_eq!((answer.maximum_io_rate, answer.minimum_io_rate), (500, 50));

        // Without a flow there is no status, and with its open the flow goes.
        assert_eq!(
            host.ask(QosOptions::SET_LOGICAL_FLOW_ID, |control| control.flow = Guid::ZERO).await,
            good
        );
        let (status, _) = host.ask(QosOptions::GET_STATUS, |_| {}).await;
        assert_eq!(status, NtStatus::NOT_FOUND);
        let probe = QosOptions::PROBE_POLICY | QosOptions::GET_STATUS;
        let (status, output) = host.ask(probe, set).await;
        let (answer, _) = QosAnswer::decode_with_bandwidth(&output).unwrap();
        assert_eq!((status, answer.policy), (NtStatus::SUCCESS, policy(POLICY)));
        // A probe changes nothing of a flow that is there.
        let (_, output) = host.ask(probe, |control| control.policy = Guid([9; 16])).await;
        assert_eq!(QosAnswer::decode_with_bandwidth(&output).unwrap().0.policy, policy(POLICY));
        assert_eq!(host.client.close(host.id).await, NtStatus::SUCCESS);
        assert!(world.gate.flows().is_empty());
    })
    .unwrap();
}

#[test]
fn what_is_wrong_with_a_request_is_told_as_specified() {
    sim::on_shard(async {
        let world = World::new(OnDrop::Stops);
        let host = Host::open(&world).await;
        let none = |_: &mut QosControl| {};
        for options in [QosOptions::SET_POLICY, QosOptions::GET_STATUS, QosOptions::UPDATE_COUNTERS] {
            assert_eq!(host.ask(options, none).await.0, NtStatus::NOT_FOUND, "{options:?} without a flow");
        }
        let invalid = NtStatus::INVALID_PARAMETER;
        let nil = |control: &mut QosControl| control.flow = Guid::ZERO;
        assert_eq!(host.ask(QosOptions::PROBE_POLICY, nil).await.0, invalid);
        assert_eq!(host.ask(QosOptions::NONE, none).await.0, invalid);
        let newer = |control: &mut QosControl| control.version = QosVersion(0x0200);
        assert_eq!(host.ask(QosOptions::GET_STATUS, newer).await.0, NtStatus::REVISION_MISMATCH);
        assert_eq!(host.send(&[1, 1]).await.0, invalid);
        assert_eq!(host.send(&[]).await.0, invalid);
        host.ask(QosOptions::SET_LOGICAL_FLOW_ID, none).await;
        for (limit, reservation, guid) in [
            (1_000_000_001, 0, Guid::ZERO),
            (0, 1_000_000_001, Guid::ZERO),
            (10, 11, Guid::ZERO),
            (10, 0, policy(POLICY)),
            (0, 10, policy(POLICY)),
        ] {
            let set = |control: &mut QosControl| {
                (control.limit, control.reservation, control.policy) = (limit, reservation, guid);
            };
            assert_eq!(host.ask(QosOptions::SET_POLICY, set).await.0, invalid, "{limit} {reservation}");
        }
        let sets = QosControl {
            version: QosVersion::V1_1,
            options: QosOptions::SET_POLICY,
            flow: FLOW,
            policy: policy(POLICY),
            ..QosControl::default()
        };
        for names in [("VM\u{1b}[2J", "host"), ("VM", "host\n")] {
            let request = qos_request(sets, (0, 0), names);
            assert_eq!(host.send(&request).await.0, invalid, "names come to terminals: {names:?}");
        }
        assert_eq!(host.status().await.0.policy, Guid::ZERO, "what was refused has changed nothing");
    })
    .unwrap();
}
