//! The contexts of a CREATE request (MS-SMB2 2.2.13.2), and what they ask for.

use smb_files::{CachingRequest, LeaseRequest, LeaseRequestV2};
use smb_protocol::access::OplockLevel;
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{CreateContext, tag};
use smb_protocol::create::handles::DurableRequestV2;
use smb_protocol::create::lease::{LeaseFlags, LeaseState};
use smb_protocol::{Dialect, FileTime, NtStatus};

use crate::open::App;

/// The contexts of a request, each at most once.
#[derive(Default)]
pub(crate) struct Contexts<'a> {
    pub(crate) ea: Option<&'a [u8]>,
    pub(crate) security: Option<&'a [u8]>,
    pub(crate) allocation: Option<u64>,
    pub(crate) maximal_access: Option<Option<FileTime>>,
    pub(crate) timewarp: Option<FileTime>,
    pub(crate) on_disk_id: bool,
    pub(crate) lease: Option<LeaseRequest>,
    pub(crate) durable: bool,
    pub(crate) reconnect: Option<smb_protocol::create::handles::DurableReconnect>,
    pub(crate) durable_v2: Option<DurableRequestV2>,
    pub(crate) reconnect_v2: Option<smb_protocol::create::handles::DurableReconnectV2>,
    pub(crate) app: App,
    /// SVHDX_OPEN_DEVICE_CONTEXT, not decoded.
    pub(crate) disk: Option<&'a [u8]>,
}

impl<'a> Contexts<'a> {
    pub(super) fn of(request: &CreateRequest<'a>, dialect: Dialect) -> Result<Self, NtStatus> {
        let mut found = Self::default();
        // A reconnection names its lease whatever oplock it asks for.
        let leases = dialect != Dialect::SMB_2_0_2;
        for context in request.contexts.requests() {
            match context? {
                CreateContext::EaBuffer(bytes) => found.ea = Some(bytes),
                CreateContext::SecurityDescriptor(bytes) => found.security = Some(bytes),
                CreateContext::AllocationSize(bytes) => found.allocation = Some(bytes),
                CreateContext::MaximalAccess(time) => found.maximal_access = Some(time),
                CreateContext::Timewarp(time) => found.timewarp = Some(time),
                CreateContext::OnDiskId => found.on_disk_id = true,
                CreateContext::Lease(lease) if leases => {
                    found.lease = Some(LeaseRequest { key: lease.key, state: lease.state, v2: None });
                }
                CreateContext::LeaseV2(lease) if leases && dialect.is_smb3() => {
                    let parent = lease.flags.contains(LeaseFlags::PARENT_LEASE_KEY_SET);
                    let parent = parent.then_some(lease.parent_key);
                    let v2 = Some(LeaseRequestV2 { epoch: lease.epoch, parent });
                    found.lease = Some(LeaseRequest { key: lease.key, state: lease.state, v2 });
                }
                CreateContext::Durable(_) => found.durable = true,
                CreateContext::Reconnect(reconnect) => found.reconnect = Some(reconnect),
                CreateContext::DurableV2(durable) if dialect.is_smb3() => found.durable_v2 = Some(durable),
                CreateContext::ReconnectV2(reconnect) if dialect.is_smb3() => {
                    found.reconnect_v2 = Some(reconnect);
                }
                CreateContext::AppInstanceId(app) if dialect.is_smb3() => found.app.id = app.id,
                CreateContext::AppInstanceVersion(version) if dialect == Dialect::SMB_3_1_1 => {
                    found.app.version = Some((version.high, version.low));
                }
                CreateContext::Other(tag::SVHDX_OPEN_DEVICE, data) => found.disk = Some(data),
                _ => {}
            }
        }
        // Each says something else about the same (3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.10, 3.3.5.9.12).
        let asks = [found.durable, found.durable_v2.is_some(), found.reconnect_v2.is_some()];
        let many = asks.iter().filter(|asked| **asked).count() > 1
            || (found.reconnect.is_some() && (found.durable_v2.is_some() || found.reconnect_v2.is_some()));
        if many {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(found)
    }

    /// What the client may have to cache at most, of what it asks for. On a scale-out share who is away could not give it
    /// up, and others would have to wait: a client of SMB 3 gets reads only there (3.3.5.9, 3.3.5.9.8, 3.3.5.9.11).
    pub(super) fn caching(&self, oplock: OplockLevel, only_reads: bool) -> CachingRequest {
        let cut = |lease: LeaseRequest| LeaseRequest { state: lease.state & LeaseState::READ, ..lease };
        let lease = if only_reads { self.lease.map(cut) } else { self.lease };
        let oplock = if only_reads && oplock == OplockLevel::BATCH { OplockLevel::II } else { oplock };
        match (oplock, lease) {
            (OplockLevel::LEASE, Some(lease)) => CachingRequest::Lease(lease),
            (OplockLevel::LEASE | OplockLevel::NONE, _) => CachingRequest::None,
            (level, _) => CachingRequest::Oplock(level),
        }
    }
}
