//! Lists of contexts there and back, and what is no list.

use super::*;
use crate::create::handles::DurableFlags;
use crate::create::lease::{LeaseFlags, LeaseKey, LeaseState};
use crate::file::FileId;
use crate::guid::Guid;

fn all_requests() -> ContextWriter {
    let mut w = ContextWriter::default();
    w.push(tag::EA_BUFFER, b"ea");
    w.push(tag::SD_BUFFER, &[1; 20]);
    w.push_value(tag::DURABLE_REQUEST, &DurableRequest {});
    w.push_value(
        tag::DURABLE_RECONNECT,
        &DurableReconnect { file_id: FileId { persistent: 1, volatile: 2 } },
    );
    w.push_value(tag::ALLOCATION_SIZE, &0x1_0000_u64);
    w.push(tag::MAXIMAL_ACCESS, &[]);
    w.push_value(tag::MAXIMAL_ACCESS, &FileTime(5));
    w.push_value(tag::TIMEWARP, &FileTime(6));
    w.push(tag::ON_DISK_ID, &[]);
    w.push_value(tag::LEASE, &LeaseV1 { key: LeaseKey([3; 16]), state: LeaseState(7), ..LeaseV1::default() });
    w.push_value(tag::LEASE, &lease_v2());
    w.push_value(tag::DURABLE_REQUEST_V2, &durable());
    w.push_value(
        tag::DURABLE_RECONNECT_V2,
        &DurableReconnectV2 {
            file_id: FileId::default(),
            create_guid: Guid([8; 16]),
            flags: durable().flags,
        },
    );
    w.push_value(tag::APP_INSTANCE_ID, &AppInstanceId { id: Guid([9; 16]) });
    w.push_value(tag::APP_INSTANCE_VERSION, &AppInstanceVersion { high: 1, low: 2 });
    w.push(tag::AAPL, &[1; 24]);
    w
}

fn lease_v2() -> LeaseV2 {
    LeaseV2 {
        key: LeaseKey([4; 16]),
        state: LeaseState::READ | LeaseState::HANDLE,
        flags: LeaseFlags::PARENT_LEASE_KEY_SET,
        parent_key: LeaseKey([5; 16]),
        epoch: 99,
    }
}

fn durable() -> DurableRequestV2 {
    DurableRequestV2 { timeout: 60_000, flags: DurableFlags::PERSISTENT, create_guid: Guid([7; 16]) }
}

#[test]
fn every_context_there_and_back() {
    let writer = all_requests();
    let list = CreateContexts::new(&writer.bytes).unwrap();
    let found: Vec<_> = list.requests().map(Result::unwrap).collect();
    assert_eq!(found.len(), 16);
    assert_eq!(found[0], CreateContext::EaBuffer(b"ea"));
    assert_eq!(found[4], CreateContext::AllocationSize(0x1_0000));
    assert_eq!(found[5], CreateContext::MaximalAccess(None));
    assert_eq!(found[6], CreateContext::MaximalAccess(Some(FileTime(5))));
    assert_eq!(found[10], CreateContext::LeaseV2(lease_v2()));
    assert_eq!(found[11], CreateContext::DurableV2(durable()));
    assert_eq!(found[13], CreateContext::AppInstanceId(AppInstanceId { id: Guid([9; 16]) }));
    assert_eq!(found[15], CreateContext::Other(tag::AAPL, &[1; 24]));
}

#[test]
fn replies_there_and_back() {
    let mut w = ContextWriter::new(vec![1, 2, 3]);
    let access = MaximalAccessReply { status: NtStatus::SUCCESS, access: AccessMask::FILE_ALL };
    w.push_value(tag::MAXIMAL_ACCESS, &access);
    w.push_value(tag::ON_DISK_ID, &OnDiskIdReply { file_id: 7, volume_id: 8 });
    w.push_value(tag::DURABLE_REQUEST_V2, &DurableReplyV2 { timeout: 1, flags: DurableFlags::NONE });
    let found: Vec<_> = w.as_contexts().replies().map(Result::unwrap).collect();
    assert_eq!(found[0], CreateReply::MaximalAccess(access));
    assert_eq!(found[1], CreateReply::OnDiskId(OnDiskIdReply { file_id: 7, volume_id: 8 }));
    assert_eq!(found.len(), 3);
}

#[test]
fn a_lease_of_another_length_is_wrong_but_the_list_goes_on() {
    let mut w = ContextWriter::default();
    w.push(tag::LEASE, &[0; 33]);
    w.push(tag::DURABLE_REQUEST_V2, &[0; 31]);
    w.push(tag::ON_DISK_ID, &[]);
    let found: Vec<_> = CreateContexts::new(&w.bytes).unwrap().requests().collect();
    assert!(found[0].is_err() && found[1].is_err());
    assert_eq!(found[2], Ok(CreateContext::OnDiskId));
}

#[test]
fn lists_that_lead_astray_are_refused() {
    let writer = all_requests();
    let good = &writer.bytes;
    for cut in 1..good.len() {
        assert!(CreateContexts::new(&good[..cut]).is_err(), "{cut}");
    }
    // Next: into itself, odd, to the end, beyond the end.
    for next in [8_u32, 23, good.len() as u32, !7] {
        let mut bad = good.clone();
        bad[..4].copy_from_slice(&next.to_le_bytes());
        assert!(CreateContexts::new(&bad).is_err(), "{next}");
    }
    // A name inside the head, a name too short, data over the next context.
    for (at, value) in [(4, 8_u8), (6, 3), (12, 200)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(CreateContexts::new(&bad).is_err(), "{at}");
    }
    let mut many = ContextWriter::default();
    (0..=MAX_CONTEXTS).for_each(|_| many.push(tag::ON_DISK_ID, &[]));
    assert!(CreateContexts::new(&many.bytes).is_err());
}
