//! A host that speaks MS-SQOS, with our own client made from the specification: it says which virtual machine a file is open for and which
//! policy that has, is held to it, and hears what holds, also after the policy was changed and removed.

use std::time::{Duration, Instant};

use smb_client::{ClientError, Connection, Options as ClientOptions};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::FileId;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::storage_qos::{
    QosAnswer, QosControl, QosOptions, QosStatus, QosVersion, qos_request,
};
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Guid, NtStatus};

use super::Context;
use crate::node::{Node, Options};
use crate::{Outcome, Result, ensure};

/// The policy, as people and as the wire write it.
const POLICY: &str = "04b4f24e-b3e9-4594-adaa-e327528de54b";
const POLICY_ON_WIRE: Guid =
    Guid([0x4e, 0xf2, 0xb4, 0x04, 0xe9, 0xb3, 0x94, 0x45, 0xad, 0xaa, 0xe3, 0x27, 0x52, 0x8d, 0xe5, 0x4b]);
const FLOW: Guid = Guid([0xb1; 16]);
const IOPS: u64 = 200;
/// Writes of eight normalised I/Os each: four seconds.
const WRITES: u64 = 100;
const BYTES: usize = 64 << 10;

#[expect(
    clippy::disallowed_methods,
    reason = "how long a limit holds a client back is measured in real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn wrong(what: &'static str) -> impl Fn(ClientError) -> Outcome {
    move |why| Outcome::Fail(format!("{what}: {why}"))
}

/// A host with a file open.
struct Host {
    connection: Connection,
    tree: u32,
    file: FileId,
}

pub(super) fn run(context: &Context) -> Result {
    let node = Node::start(&context.folder, Options::default())?;
    let iops = IOPS.to_string();
    node.cli(&["qos", "policy", "create", "hosted", "--guid", POLICY, "--max-iops", &iops])?;
    let mut host = Host::open(&node)?;
    ensure(host.control(QosOptions::GET_STATUS)?.0 == NtStatus::NOT_FOUND, || {
        "a status without a flow".into()
    })?;
    host.done(QosOptions::SET_LOGICAL_FLOW_ID)?;
    host.done(QosOptions::SET_POLICY)?;
    let (answer, bandwidth) = host.status()?;
    let right = answer.maximum_io_rate == IOPS && answer.status == QosStatus::OK && bandwidth == Some(0);
    ensure(right && answer.policy == POLICY_ON_WIRE, || format!("{answer:?} {bandwidth:?}"))?;

    let began = now();
    for at in 0..WRITES {
        host.write(at)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    ensure(seconds >= 2.0, || format!("{WRITES} writes of {BYTES} bytes at {IOPS} IOPS took {seconds} s"))?;
    let flows = node.json(&["qos", "flow", "list"])?;
    let named = flows["items"].as_array().into_iter().flatten().any(|flow| {
        flow["initiator"] == "TEST-VM@host.example" && flow["policy"] == "hosted" && flow["max_iops"] == IOPS
    });
    ensure(named, || format!("the flow is not named: {flows}"))?;

    node.cli(&["qos", "policy", "set", "hosted", "--max-iops", "400"])?;
    let (answer, _) = host.status()?;
    ensure(answer.maximum_io_rate == 400, || format!("after the change: {answer:?}"))?;
    // What is said on the node of the place counts before what hosts say.
    node.cli(&["qos", "policy", "create", "said", "--max-iops", "300"])?;
    node.cli(&["qos", "assign", "said", "--share", &node.told("smb_share")])?;
    let (answer, _) = host.status()?;
    ensure(answer.maximum_io_rate == 300, || format!("with a policy of the share: {answer:?}"))?;
    node.cli(&["qos", "unassign", "--share", &node.told("smb_share")])?;
    node.cli(&["qos", "policy", "remove", "hosted"])?;
    let (answer, _) = host.status()?;
    let unknown = answer.status == QosStatus::UNKNOWN_POLICY_ID && answer.maximum_io_rate == 0;
    ensure(unknown, || format!("after the policy was removed: {answer:?}"))?;
    node.finish()
}

impl Host {
    fn open(node: &Node) -> Result<Self> {
        let address =
            node.told("smb_address").parse().map_err(|why| Outcome::Fail(format!("address: {why}")))?;
        let options = ClientOptions { timeout: Duration::from_secs(30), ..ClientOptions::default() };
        let mut connection = Connection::connect(address, options).map_err(wrong("connect"))?;
        connection.login(&node.told("smb_user"), &node.told("smb_password")).map_err(wrong("login"))?;
        let tree = connection.tree(&node.told("smb_share")).map_err(wrong("tree"))?;
        let name = utf16("vm.vhdx");
        let name = Utf16::new(&name).map_err(|why| Outcome::Fail(format!("name: {why:?}")))?;
        let create = Request::Create(CreateRequest {
            desired_access: AccessMask::FILE_ALL,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::NON_DIRECTORY_FILE,
            name,
            ..CreateRequest::default()
        });
        let received = connection.call(&create, tree).map_err(wrong("CREATE"))?;
        let file = match received.good().map_err(wrong("CREATE"))? {
            Response::Create(created) => created.file_id,
            other => return Err(Outcome::Fail(format!("CREATE: {other:?}"))),
        };
        Ok(Self { connection, tree, file })
    }

    fn control(&mut self, options: QosOptions) -> Result<(NtStatus, Vec<u8>)> {
        let control = QosControl {
            version: QosVersion::V1_1,
            options,
            flow: FLOW,
            policy: POLICY_ON_WIRE,
            initiator: Guid([7; 16]),
            ..QosControl::default()
        };
        let input = qos_request(control, (0, 0), ("TEST-VM", "host.example"));
        let request = Request::Ioctl(IoctlRequest {
            code: FsctlCode::STORAGE_QOS_CONTROL,
            file_id: self.file,
            input: &input,
            max_input_response: 0,
            max_output_response: 1024,
            flags: IoctlFlags::IS_FSCTL,
        });
        let received = self.connection.call(&request, self.tree).map_err(wrong("IOCTL"))?;
        match received.response().map_err(wrong("IOCTL"))? {
            Response::Ioctl(answer) => Ok((received.header.status, answer.output.to_vec())),
            _ => Ok((received.header.status, Vec::new())),
        }
    }

    fn done(&mut self, options: QosOptions) -> Result {
        let (status, output) = self.control(options)?;
        ensure(status.is_success() && output.is_empty(), || format!("{options:?}: {status} {output:?}"))
    }

    fn status(&mut self) -> Result<(QosAnswer, Option<u64>)> {
        let (status, output) = self.control(QosOptions::GET_STATUS | QosOptions::UPDATE_COUNTERS)?;
        let answer = QosAnswer::decode_with_bandwidth(&output);
        answer.map_err(|why| Outcome::Fail(format!("the status is {status}: {why}")))
    }

    fn write(&mut self, at: u64) -> Result {
        let request =
            WriteRequest { file_id: self.file, offset: at * BYTES as u64, ..WriteRequest::default() };
        let received = self.connection.call(&Request::Write(request, &[7; BYTES]), self.tree);
        received.map_err(wrong("WRITE"))?.good().map_err(wrong("WRITE"))?;
        Ok(())
    }
}
