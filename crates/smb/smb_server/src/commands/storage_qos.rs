//! FSCTL_STORAGE_QOS_CONTROL (MS-SQOS 3.2.5.1): a host says which virtual machine a file is open for, and which policy it is to have.
//!
//! What was said on the node of the place where the file is counts before what a host says, and only an administrator may promise
//! something to itself: the answer has the numbers that hold, and says CONFIGURATION_MISMATCH.

use qos_policy::FlowStatus;
use smb_protocol::fsctl::storage_qos::{QosAnswer, QosControl, QosOptions, QosRequest, QosStatus};
use smb_protocol::ioctl::IoctlRequest;
use smb_protocol::{Guid, NtStatus};

use super::{Call, turn};
use crate::logical_flows::Said;
use crate::open::Open;
use crate::session::Session;

/// Highest numbers that hosts may say, in I/Os and kilobytes per second; as Windows.
const MOST: u64 = 1_000_000_000;
/// For how long an answer holds, in milliseconds: hosts ask again after that.
const TIME_TO_LIVE: u32 = 4000;
/// Least room for an answer (3.2.5.1.4).
const LEAST_ROOM: usize = 80;
const KILOBYTE: u64 = 1024;

/// Carries it out; what is answered.
pub(super) fn run(
    call: &Call<'_>,
    session: &Session,
    open: &Open,
    request: &IoctlRequest<'_>,
) -> Result<Vec<u8>, NtStatus> {
    let asked = QosRequest::decode(request.input)?;
    let QosControl { mut options, flow, .. } = asked.control;
    let has_flow = open.state.lock().logical.is_some();
    if has_flow {
        options = options.without(QosOptions::PROBE_POLICY);
    }
    let sets_flow = options.intersects(QosOptions::SET_LOGICAL_FLOW_ID);
    let probes = options.intersects(QosOptions::PROBE_POLICY);
    if probes && flow.is_zero() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let will_have = if sets_flow || probes { !flow.is_zero() } else { has_flow };
    let needs = QosOptions::SET_POLICY | QosOptions::UPDATE_COUNTERS | QosOptions::GET_STATUS;
    if options.intersects(needs) && !will_have {
        return Err(NtStatus::NOT_FOUND);
    }
    let says = probes || options.intersects(QosOptions::SET_POLICY);
    // Looked at before anything is changed: a request that fails has done nothing.
    let names = if says { checked(&asked)? } else { (String::new(), String::new()) };
    let wants_status = options.intersects(QosOptions::GET_STATUS);
    if wants_status && (request.max_output_response as usize) < LEAST_ROOM {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if sets_flow || probes {
        let logical = (!flow.is_zero()).then(|| call.conn.shared.logical_flows.find(open.user, flow));
        let before = std::mem::replace(&mut open.state.lock().logical, logical);
        drop(before);
    }
    let Some(logical) = open.state.lock().logical.clone() else { return Ok(Vec::new()) };
    if says {
        let control = asked.control;
        let may_reserve = session.user().token.is_admin;
        logical.say(|said| {
            let (name, node) = names;
            *said = Said {
                policy: control.policy,
                initiator: control.initiator,
                limit: control.limit,
                reservation: control.reservation,
                bandwidth_limit: asked.bandwidth_limit,
                may_reserve,
                name: if name.is_empty() { std::mem::take(&mut said.name) } else { name },
                node: if node.is_empty() { std::mem::take(&mut said.node) } else { node },
            };
        });
    }
    if !wants_status {
        return Ok(Vec::new());
    }
    let mut answer = QosAnswer {
        version: asked.control.version,
        flow: logical.id,
        policy: logical.said().policy,
        initiator: logical.said().initiator,
        time_to_live: TIME_TO_LIVE,
        status: QosStatus::NOT_AVAILABLE,
        base_io_size: qos_policy::DEFAULT_UNIT_BYTES,
        ..QosAnswer::default()
    };
    let mut bandwidth = 0;
    if let Some(flow) = turn::flow_of(call, session, open) {
        let standing = flow.standing();
        answer.base_io_size = standing.unit_bytes;
        answer.maximum_io_rate = standing.terms.max_iops.unwrap_or(0);
        answer.minimum_io_rate = standing.terms.min_iops.unwrap_or(0);
        bandwidth = standing.terms.max_bandwidth.map_or(0, |bytes| (bytes / KILOBYTE).max(1));
        answer.status = match standing.status {
            FlowStatus::UnknownPolicyId => QosStatus::UNKNOWN_POLICY_ID,
            _ if !is_met(&logical.said(), &answer, bandwidth) => QosStatus::CONFIGURATION_MISMATCH,
            FlowStatus::InsufficientThroughput => QosStatus::INSUFFICIENT_THROUGHPUT,
            // The protocol has no word for what nodes have not heard of each other.
            FlowStatus::Ok | FlowStatus::LostCommunication => QosStatus::OK,
        };
    }
    let output = answer.encode(bandwidth);
    if output.len() > request.max_output_response as usize {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(output)
}

/// Whether numbers that a host has said hold, as far as they are not a policy's.
fn is_met(said: &Said, answer: &QosAnswer, bandwidth: u64) -> bool {
    let numbers = (said.limit, said.reservation, said.bandwidth_limit);
    numbers == (0, 0, 0) || numbers == (answer.maximum_io_rate, answer.minimum_io_rate, bandwidth)
}

/// The names, once numbers and names are good (3.2.5.1.2, with what Windows refuses).
fn checked(asked: &QosRequest<'_>) -> Result<(String, String), NtStatus> {
    let names = asked.names()?;
    let QosControl { policy, limit, reservation, .. } = asked.control;
    let numbers = [limit, reservation, asked.bandwidth_limit];
    let too_high = numbers.iter().any(|number| *number > MOST);
    let crossed = limit > 0 && reservation > limit;
    let both = policy != Guid::ZERO && numbers.iter().any(|number| *number > 0);
    // Names come to terminals and into histories.
    let controls = [&names.0, &names.1].into_iter().any(|name| name.chars().any(char::is_control));
    if too_high || crossed || both || controls { Err(NtStatus::INVALID_PARAMETER) } else { Ok(names) }
}
