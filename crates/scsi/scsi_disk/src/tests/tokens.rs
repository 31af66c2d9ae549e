//! Copies by token.

use super::going_on::{gated, pending};
use super::*;

pub(super) fn cdb(action: u8, id: u8, len: usize) -> [u8; 16] {
    let [high, low] = (len as u16).to_be_bytes();
    [0x83, action, 0, 0, 0, 0, 0, 0, 0, id, 0, 0, high, low, 0, 0]
}

fn with_ranges(mut list: Vec<u8>, ranges: &[(u64, u32)]) -> Vec<u8> {
    list.extend_from_slice(&((ranges.len() * 16) as u16).to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    let [high, low] = (list.len() as u16 - 2).to_be_bytes();
    (list[0], list[1]) = (high, low);
    list
}

pub(super) fn populate(ranges: &[(u64, u32)]) -> Vec<u8> {
    with_ranges(vec![0; 14], ranges)
}

pub(super) fn write(token: &[u8], skip: u64, ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut list = vec![0; 8];
    list.extend_from_slice(&skip.to_be_bytes());
    list.extend_from_slice(token);
    list.extend_from_slice(&[0; 6]);
    with_ranges(list, ranges)
}

impl Rig {
    async fn information(&self, who: usize, id: u8) -> Vec<u8> {
        self.good(who, &[0x84, 7, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], &[]).await
    }

    pub(super) async fn token(&self, who: usize, ranges: &[(u64, u32)]) -> Vec<u8> {
        let list = populate(ranges);
        self.good(who, &cdb(0x10, 1, list.len()), &list).await;
        let data = self.information(who, 1).await;
        assert_eq!(
            (data.len(), data[4], data[5], data[15], &data[32..36]),
            (550, 0x10, 1, 0xf1, &[0, 0, 2, 2][..])
        );
        let blocks: u32 = ranges.iter().map(|r| r.1).sum();
        assert_eq!(data[16..24], u64::from(blocks).to_be_bytes());
        data[38..].to_vec()
    }

    pub(super) async fn use_token(
        &self,
        who: usize,
        token: &[u8],
        skip: u64,
        ranges: &[(u64, u32)],
    ) -> (u8, u16) {
        let list = write(token, skip, ranges);
        self.sense(who, &cdb(0x11, 2, list.len()), &list).await
    }
}

#[test]
fn tokens_copy_until_something_changes() {
    run(async {
        let rig = Rig::new().await;
        for block in 0..16u8 {
            rig.good(0, &rw(0x2a, 0, u32::from(block), 1), &[block + 1; 512]).await;
        }
        let token = rig.token(0, &[(4, 3), (0, 2)]).await;
        // Blocks 5, 6, 0 to two places; another nexus may use the token.
        assert_eq!(rig.use_token(1, &token, 1, &[(100, 1), (200, 2)]).await, (0, 0));
        for (at, value) in [(100, 6), (200, 7), (201, 1)] {
            assert_eq!(rig.good(0, &rw(0x28, 0, at, 1), &[]).await, [value; 512]);
        }
        // Past the first range.
        assert_eq!(rig.use_token(1, &token, 4, &[(300, 1)]).await, (0, 0));
        assert_eq!(rig.good(0, &rw(0x28, 0, 300, 1), &[]).await, [2; 512]);
        assert_eq!(rig.use_token(1, &token, 1, &[(100, 1), (200, 2)]).await, (0, 0));
        let data = rig.information(1, 2).await;
        assert_eq!((data.len(), data[4], data[5], data[23]), (36, 0x11, 1, 3));
        // More than there is, behind the end, overlapping, of no unit.
        assert_eq!(rig.use_token(0, &token, 3, &[(100, 3)]).await, (5, 0x2600));
        assert_eq!(rig.use_token(0, &token, 5, &[(100, 1)]).await, (5, 0x2600));
        assert_eq!(rig.use_token(0, &token, 0, &[(100, 2), (101, 1)]).await, (5, 0x2600));
        assert_eq!(rig.use_token(0, &token, 0, &[(BLOCKS, 1)]).await, (5, 0x2100));
        let mut forged = token.clone();
        forged[130] ^= 1;
        assert_eq!(rig.use_token(0, &forged, 0, &[(100, 1)]).await, (5, 0x2300));
        assert_eq!(rig.information(0, 2).await[5], 2);
        // A change elsewhere leaves it, one of its blocks ends it: whatever the command.
        rig.good(0, &rw(0x2a, 0, 7, 1), &[0; 512]).await;
        assert_eq!(rig.use_token(0, &token, 0, &[(100, 1)]).await, (0, 0));
        let caw = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0];
        let or = [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0];
        let mut unmap = vec![0, 22, 0, 16, 0, 0, 0, 0];
        unmap.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0]);
        let zeros = vec![0; 1024];
        let changes: Vec<(Vec<u8>, &[u8])> = vec![
            (rw(0x2a, 0, 4, 1), &zeros[..512]),
            (caw.to_vec(), &zeros),
            (or.to_vec(), &zeros[..512]),
            (rw(0x2e, 0, 4, 1), &zeros[..512]),
            (rw(0x41, 0, 4, 1), &zeros[..512]),
            (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap),
            (vec![0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
        ];
        for (change, data) in changes {
            let token = rig.token(0, &[(4, 1)]).await;
            // SANITIZE wants it.
            rig.good(0, &[0x16, 0, 0, 0, 0, 0], &[]).await;
            rig.good(0, &change, data).await;
            rig.good(0, &[0x17, 0, 0, 0, 0, 0], &[]).await;
            assert_eq!(rig.use_token(0, &token, 0, &[(100, 1)]).await, (5, 0x2300), "{change:x?}");
        }
        // So does a copy onto them; onto itself it does not end well.
        let (token, other) = (rig.token(0, &[(4, 2)]).await, rig.token(0, &[(8, 1)]).await);
        assert_eq!(rig.use_token(0, &other, 0, &[(5, 1)]).await, (0, 0));
        assert_eq!(rig.use_token(0, &token, 0, &[(100, 1)]).await, (5, 0x2300));
        // The token of zeros.
        rig.good(0, &rw(0x2a, 0, 9, 1), &[1; 512]).await;
        let mut zero = vec![0xff, 0xff, 0, 1, 0, 0, 1, 0xf8];
        zero.resize(512, 0);
        assert_eq!(rig.use_token(0, &zero, 0, &[(9, 1)]).await, (0, 0));
        assert_eq!(rig.good(0, &rw(0x28, 0, 9, 1), &[]).await, [0; 512]);
    });
}

#[test]
fn tokens_obey_reservations_and_bounds() {
    run(async {
        let rig = Rig::new().await;
        let token = rig.token(0, &[(0, 1)]).await;
        // Exclusive access of one nexus: the other neither makes nor uses tokens.
        rig.good(1, &[0x16, 0, 0, 0, 0, 0], &[]).await;
        assert_eq!(rig.use_token(0, &token, 0, &[(1, 1)]).await, (0, 0x18));
        let list = populate(&[(0, 1)]);
        assert_eq!(rig.sense(0, &cdb(0x10, 1, list.len()), &list).await, (0, 0x18));
        rig.good(1, &[0x17, 0, 0, 0, 0, 0], &[]).await;
        // Only so many tokens stand.
        for _ in 0..256 {
            rig.token(0, &[(0, 1)]).await;
        }
        assert_eq!(rig.use_token(0, &token, 0, &[(1, 1)]).await, (5, 0x2300));
        let many: Vec<_> = (0..65).map(|i| (i, 1)).collect();
        let list = populate(&many);
        assert_eq!(rig.sense(0, &cdb(0x10, 1, list.len()), &list).await, (5, 0x2608));
        let mut list = populate(&[(0, 1)]);
        list[4..8].copy_from_slice(&3601u32.to_be_bytes());
        assert_eq!(rig.sense(0, &cdb(0x10, 1, list.len()), &list).await, (5, 0x2600));
        for cut in [1, 15, 16, 31] {
            assert_eq!(rig.sense(0, &cdb(0x10, 1, cut), &list[..cut]).await, (5, 0x1a00));
        }
    });
}

#[test]
fn one_initiator_takes_no_tokens_from_another() {
    run(async {
        let rig = Rig::new().await;
        rig.good(0, &rw(0x2a, 0, 0, 1), &[3; 512]).await;
        let (first, second) = (rig.token(0, &[(0, 1)]).await, rig.token(0, &[(0, 1)]).await);
        let old = rig.token(1, &[(0, 1)]).await;
        for _ in 0..600 {
            rig.token(1, &[(0, 1)]).await;
        }
        for token in [first, second] {
            assert_eq!(rig.use_token(0, &token, 0, &[(9, 1)]).await, (0, 0));
        }
        assert_eq!(
            rig.use_token(1, &old, 0, &[(9, 1)]).await,
            (5, 0x2300),
            "its own give way, the oldest first"
        );
        let last = rig.token(1, &[(0, 1)]).await;
        assert_eq!(rig.use_token(1, &last, 0, &[(9, 1)]).await, (0, 0));
    });
}

#[test]
fn a_change_while_reading_is_noticed() {
    run(async {
        let (gate, rig) = gated().await;
        let token = rig.token(0, &[(0, 1)]).await;
        *gate.late.lock() = true;
        let mut copy = Box::pin(rig.use_token(0, &token, 0, &[(1, 1)]));
        assert!(pending(&mut copy).await);
        rig.good(1, &rw(0x2a, 0, 0, 1), &[5; 512]).await;
        *gate.late.lock() = false;
        assert_eq!(copy.await, (5, 0x2300));
        assert_eq!(rig.good(0, &rw(0x28, 0, 1, 1), &[]).await, [0; 512]);
    });
}

#[test]
fn unused_tokens_expire() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        let rig = Rig::new().await;
        let token = rig.token(0, &[(0, 1)]).await;
        shard_runtime::sleep(std::time::Duration::from_secs(29)).await;
        assert_eq!(rig.use_token(0, &token, 0, &[(1, 1)]).await, (0, 0));
        shard_runtime::sleep(std::time::Duration::from_secs(29)).await;
        assert_eq!(rig.use_token(0, &token, 0, &[(1, 1)]).await, (0, 0));
        shard_runtime::sleep(std::time::Duration::from_secs(61)).await;
        assert_eq!(rig.use_token(0, &token, 0, &[(1, 1)]).await, (5, 0x2300));
    });
}
