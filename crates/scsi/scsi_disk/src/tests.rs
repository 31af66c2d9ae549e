//! Real CDBs against a unit on a memory disk and a durable store in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::MemoryDisk;
use file_store::StoreFuture;
use observe::IoTally;
use parking_lot::Mutex;
use proptest::prelude::*;
use scsi_core::*;

use crate::reservations::{MAX_REGISTRATIONS, Port, Reservations};
use crate::*;

mod access;
mod cleared;
mod counting;
mod discards;
mod dropped;
mod flows;
mod going_on;
mod golden;
mod moves;
mod neighbours;
mod on_the_way;
mod port_groups;
mod shares;
mod sizes;
mod storage;
mod tokens;
mod turns;

#[derive(Default)]
struct Rows(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl ReservationStore for Rows {
    fn load<'a>(&'a self, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.0.lock().get(key).cloned()) })
    }
    fn save<'a>(&'a self, key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match value {
                Some(value) => self.0.lock().insert(key.to_vec(), value),
                None => self.0.lock().remove(key),
            };
            Ok(())
        })
    }
}

const BLOCKS: u64 = 2048;
const INITIATORS: [&str; 2] = ["iqn.2026-11.example:i1", "iqn.2026-11.example:i2"];

struct Rig {
    device: TargetDevice,
    unit: Arc<LogicalUnit>,
    rows: Arc<Rows>,
    nexuses: [Arc<Nexus>; 2],
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

fn unit_config() -> UnitConfig {
    UnitConfig {
        id: [7; 16],
        product: "disk".into(),
        block_size: 512,
        write_cache: false,
        initiator_write_cache: true,
        discards_writes: false,
        keep_reservations: false,
        port_groups: vec![PortGroup::optimized(1)],
    }
}

async fn open(rows: Arc<Rows>) -> Arc<LogicalUnit> {
    open_on(rows, Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512))).await
}

async fn open_on(rows: Arc<Rows>, disk: block_device::Device) -> Arc<LogicalUnit> {
    LogicalUnit::open(unit_config(), Arc::new(DeviceBacking::new(disk)), rows).await.unwrap()
}

impl Rig {
    async fn new() -> Self {
        Self::over(Arc::new(Rows::default())).await
    }

    async fn over(rows: Arc<Rows>) -> Self {
        Self::with(open(rows.clone()).await, rows, INITIATORS).await
    }

    async fn with(unit: Arc<LogicalUnit>, rows: Arc<Rows>, initiators: [&str; 2]) -> Self {
        let rig = Self::untried(unit, rows, initiators);
        for who in 0..2 {
            assert_eq!(rig.sense(who, &[0; 6], &[]).await, (6, 0x2900));
        }
        rig
    }

    fn untried(unit: Arc<LogicalUnit>, rows: Arc<Rows>, initiators: [&str; 2]) -> Self {
        let device = TargetDevice::new();
        let mapped = MappedUnit { unit: unit.clone(), read_only: false };
        device.configure(vec![Group { luns: BTreeMap::from([(1, mapped)]), ..Group::default() }]);
        let nexuses = [1, 2].map(|id| {
            Arc::new(Nexus {
                id,
                initiator: initiators[id as usize - 1].to_owned(),
                initiator_port: [id as u8; 6],
                target: "iqn.a:disk".to_owned(),
                target_port: 1,
                io: IoTally::default(),
            })
        });
        nexuses.iter().for_each(|nexus| device.nexus_established(nexus));
        Self { device, unit, rows, nexuses }
    }

    async fn send(&self, who: usize, lun: u16, cdb: &[u8], data: &[u8]) -> ScsiResponse {
        let command = ScsiCommand {
            cdb: cdb.to_vec(),
            data_out: IoBuf::copy_from(data).freeze(),
            data_in_limit: 1 << 20,
            attribute: TaskAttribute::Simple,
        };
        self.device.execute(&self.nexuses[who], WireLun::from_number(lun), command).await.unwrap()
    }

    async fn sense(&self, who: usize, cdb: &[u8], data: &[u8]) -> (u8, u16) {
        let response = self.send(who, 1, cdb, data).await;
        match response.status {
            ScsiStatus::CheckCondition => {
                (response.sense[2], u16::from_be_bytes([response.sense[12], response.sense[13]]))
            }
            status => (0, status as u16),
        }
    }

    async fn good(&self, who: usize, cdb: &[u8], data: &[u8]) -> Vec<u8> {
        let response = self.send(who, 1, cdb, data).await;
        assert_eq!((response.status, &response.sense), (ScsiStatus::Good, &vec![]), "{cdb:x?}");
        response.data_in.map(|data| data.to_vec()).unwrap_or_default()
    }

    async fn prout(&self, who: usize, action: u8, kind: u8, keys: (u64, u64), aptpl: bool) -> (u8, u16) {
        let mut list = [keys.0.to_be_bytes(), keys.1.to_be_bytes(), [0; 8]].concat();
        list[20] = u8::from(aptpl);
        self.sense(who, &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list).await
    }
}

fn rw(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    [&[opcode, flags][..], &lba.to_be_bytes(), &[0], &blocks.to_be_bytes(), &[0]].concat()
}

#[test]
fn data_commands() {
    run(async {
        let rig = Rig::new().await;
        let data: Vec<u8> = (0..1024).map(|i| i as u8 ^ 0x5a).collect();
        rig.good(0, &rw(0x2a, 8, 3, 2), &data).await;
        assert_eq!(rig.good(1, &rw(0x28, 0, 3, 2), &[]).await, data);
        assert_eq!(rig.sense(0, &rw(0x28, 0, 2047, 2), &[]).await, (5, 0x2100));
        assert_eq!(rig.sense(0, &rw(0x28, 0, 2048, 0), &[]).await, (5, 0x2100));
        assert_eq!(rig.sense(0, &rw(0x28, 0x20, 0, 1), &[]).await, (5, 0x2400));
        // VERIFY with comparison, and where it differs.
        rig.good(0, &rw(0x2f, 2, 3, 2), &data).await;
        let mut wrong = data.clone();
        wrong[700] ^= 1;
        let response = rig.send(0, 1, &rw(0x2f, 2, 3, 2), &wrong).await;
        assert_eq!((response.sense[2], &response.sense[3..7]), (0xe, &700u32.to_be_bytes()[..]));
        // COMPARE AND WRITE.
        let caw = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0];
        let pair = [&data[..512], &[9; 512]].concat();
        rig.good(0, &caw, &pair).await;
        assert_eq!(rig.sense(0, &caw, &pair).await, (0xe, 0x1d00));
        assert_eq!(rig.sense(0, &caw, &pair[..512]).await, (5, 0x2400));
        assert_eq!(rig.good(0, &rw(0x28, 0, 3, 1), &[]).await, [9; 512]);
        // ORWRITE, WRITE SAME, UNMAP.
        let or = [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0];
        rig.good(0, &or, &[0x10; 512]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 3, 1), &[]).await, [0x19; 512]);
        rig.good(0, &rw(0x41, 0, 0, 2048), &[0x77; 512]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 2047, 1), &[]).await, [0x77; 512]);
        assert_eq!(rig.sense(0, &rw(0x41, 0x10, 0, 1), &[0; 512]).await, (5, 0x2400));
        // With UNMAP, what is read afterwards is still what was sent: only zeros are deallocated.
        rig.good(0, &rw(0x41, 8, 2000, 48), &[0x66; 512]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 2047, 1), &[]).await, [0x66; 512]);
        // No count is an error, as page B0 says, and not the rest of the unit.
        assert_eq!(rig.good(0, &[0x12, 1, 0xb0, 0, 64, 0], &[]).await[4] & 1, 1);
        let same16 = [0x93, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(rig.sense(0, &rw(0x41, 8, 2000, 0), &[0; 512]).await, (5, 0x2400));
        assert_eq!(rig.sense(0, &same16, &[0; 512]).await, (5, 0x2400));
        assert_eq!(rig.good(0, &rw(0x28, 0, 2047, 1), &[]).await, [0x66; 512]);
        rig.good(0, &rw(0x41, 8, 2000, 48), &[0; 512]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 2047, 1), &[]).await, [0; 512]);
        assert_eq!(rig.good(0, &rw(0x28, 0, 1999, 1), &[]).await, [0x77; 512]);
        let mut unmap = vec![0, 22, 0, 16, 0, 0, 0, 0];
        unmap.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0]);
        rig.good(0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap).await;
        unmap[18] = 0xff;
        assert_eq!(rig.sense(0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap).await, (5, 0x2100));
    });
}

#[test]
fn pages_and_luns() {
    run(async {
        let rig = Rig::new().await;
        for page in rig.good(0, &[0x12, 1, 0, 0, 255, 0], &[]).await.split_off(4) {
            let data = rig.good(0, &[0x12, 1, page, 0, 255, 0], &[]).await;
            assert_eq!((data[1], usize::from(data[3])), (page, data.len() - 4));
        }
        assert_eq!(rig.sense(0, &[0x12, 1, 0x99, 0, 255, 0], &[]).await, (5, 0x2400));
        let absent = rig.send(0, 0, &[0x12, 0, 0, 0, 96, 0], &[]).await.data_in.unwrap();
        assert_eq!(absent[0], 0x3f);
        let luns = [0xa0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0];
        assert_eq!(rig.send(0, 0, &luns, &[]).await.data_in.unwrap()[8..], [0, 1, 0, 0, 0, 0, 0, 0]);
        // A nexus is told of new units, once.
        for (read_only, write) in [(true, (7, 0x2700)), (false, (0, 0))] {
            let mapped = MappedUnit { unit: rig.unit.clone(), read_only };
            rig.device.configure(vec![Group { luns: BTreeMap::from([(1, mapped)]), ..Group::default() }]);
            assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x3f0e));
            assert_eq!(rig.sense(0, &rw(0x2a, 0, 0, 1), &[0; 512]).await, write);
            // MODE SENSE says write protected.
            let mode = rig.good(0, &[0x1a, 8, 8, 0, 255, 0], &[]).await;
            assert_eq!((mode[2] & 0x80, mode[6] & 4), (u8::from(read_only) << 7, 0));
        }
        // MODE SELECT turns the cache on, where initiators may, and that survives.
        let mode = rig.good(0, &[0x1a, 8, 8, 0, 255, 0], &[]).await;
        let mut list = mode.clone();
        (list[0], list[2], list[6]) = (0, 0, 4);
        list[4] &= 0x3f;
        rig.good(0, &[0x15, 0x11, 0, 0, list.len() as u8, 0], &list).await;
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (6, 0x3f0e));
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (6, 0x2a01));
        let again = Rig::over(rig.rows.clone()).await;
        assert_eq!(again.good(0, &[0x1a, 8, 8, 0, 255, 0], &[]).await[6] & 4, 4);
        again.unit.set_state(UnitState::Offline("test".into()));
        assert_eq!(again.sense(0, &[0; 6], &[]).await, (2, 0x0412));
        // It comes, and until then nobody knows what is reserved: to be tried again, but for what tells which unit it is.
        again.unit.set_state(UnitState::Busy);
        assert_eq!(again.sense(0, &[0; 6], &[]).await, (0, 8));
        assert_eq!(again.sense(0, &rw(0x28, 0, 0, 1), &[]).await, (0, 8));
        assert_eq!(again.prout(0, 0, 0, (0, 0xa), true).await, (0, 8));
        again.good(0, &[0x12, 0, 0, 0, 36, 0], &[]).await;
    });
}

#[test]
fn reservations_fence_and_survive() {
    run(async {
        let rig = Rig::new().await;
        assert_eq!(rig.prout(0, 0, 0, (0, 0xa), true).await, (0, 0));
        assert_eq!(rig.prout(1, 6, 0, (0, 0xb), true).await, (0, 0));
        assert_eq!(rig.prout(0, 1, 1, (0xa, 0), false).await, (0, 0));
        let write = rw(0x2a, 0, 0, 1);
        assert_eq!(rig.sense(1, &write, &[1; 512]).await, (0, 0x18));
        assert_eq!(rig.sense(1, &rw(0x28, 0, 0, 1), &[]).await, (0, 0));
        assert_eq!(rig.sense(1, &[0x16, 0, 0, 0, 0, 0], &[]).await, (0, 0x18));
        // The node restarts: still fenced.
        let rig = Rig::over(rig.rows.clone()).await;
        assert_eq!(rig.sense(1, &write, &[1; 512]).await, (0, 0x18));
        assert_eq!(rig.sense(0, &write, &[1; 512]).await, (0, 0));
        // The other one preempts, and the first hears of it.
        assert_eq!(rig.prout(1, 5, 3, (0xb, 0xa), false).await, (0, 0));
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, (6, 0x2a05));
        assert_eq!(rig.sense(0, &rw(0x28, 0, 0, 1), &[]).await, (0, 0x18));
        assert_eq!(rig.prout(1, 2, 1, (0xb, 0), false).await, (5, 0x2604));
        assert_eq!(rig.prout(1, 3, 0, (0xb, 0), false).await, (0, 0));
        assert_eq!(rig.sense(0, &rw(0x28, 0, 0, 1), &[]).await, (0, 0));
        // RESERVE(6) now works and ends with a reset.
        assert_eq!(rig.sense(0, &[0x16, 0, 0, 0, 0, 0], &[]).await, (0, 0));
        assert_eq!(rig.sense(1, &write, &[1; 512]).await, (0, 0x18));
        let lun = WireLun::from_number(1);
        rig.device.task_management(&rig.nexuses[1], lun, TaskManagement::LogicalUnitReset).await;
        assert_eq!(rig.sense(1, &write, &[1; 512]).await, (6, 0x2903));
        assert_eq!(rig.sense(1, &write, &[1; 512]).await, (0, 0));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_command_ends_without_panic(commands in prop::collection::vec(
        (0usize..65536, any::<[u8; 16]>(), prop::collection::vec(any::<u8>(), 0..64), 0usize..3), 1..24)) {
        run(async {
            let rig = Rig::new().await;
            for (pick, mut cdb, mut data, blocks) in commands {
                // Mostly known commands with defined bits and small numbers: random bytes alone rarely get far.
                let entry = &scsi_defs::cdb::COMMANDS[(pick >> 4) % scsi_defs::cdb::COMMANDS.len()];
                if pick & 3 != 0 {
                    cdb.iter_mut().zip(entry.usage).for_each(|(byte, usage)| *byte &= usage);
                    cdb[1] = entry.action.map_or(0, |action| cdb[1] & 0xe0 & entry.usage[1] | action);
                    let last = entry.usage.len() - 2; // of the length, in most commands
                    for (at, byte) in cdb.iter_mut().enumerate().skip(2) {
                        *byte = if at == last { *byte & 3 } else if at % 4 == 1 { *byte & 1 } else { 0 };
                    }
                }
                if pick & 8 != 0 {
                    data.resize(blocks * 512, 0);
                    cdb[8] = if matches!(entry.opcode, 0x42 | 0x48) { data.len() as u8 } else { cdb[8] };
                }
                cdb[0] = entry.opcode;
                rig.send(pick >> 2 & 1, u16::from(pick & 0x30 != 0), &cdb, &data).await;
            }
        });
    }

    #[test]
    fn reservations_keep_their_invariants(steps in prop::collection::vec(
        (0u8..8, 0u8..3, 0u8..9, 0u64..3, 0u64..3), 1..60)) {
        use scsi_defs::Op::*;
        let ops = [PrOutRegister, PrOutReserve, PrOutRelease, PrOutClear, PrOutPreempt, PrOutPreemptAbort,
            PrOutRegisterIgnore, PrOutRegisterMove];
        let mut state = Reservations::default();
        for (op, who, kind, key, action_key) in steps {
            // The third is the first's initiator port over another target.
            let port = |n: u8| Port {
                initiator: format!("iqn.a:{},i,0x0", n % 2),
                device: format!("iqn.a:disk{}", n / 2),
                target: 1,
            };
            let parameters = scsi_defs::reservation::OutParameters {
                key, action_key, target_port: 1, destination: port((who + 1) % 3).initiator, ..Default::default()
            };
            let op = ops[usize::from(op)];
            let mut next = state.clone();
            if next.apply(op, kind, &port(who), &parameters, &[1]).is_ok() {
                if !matches!(op, PrOutRegister | PrOutRegisterIgnore) {
                    prop_assert_eq!(state.key_of(&port(who)), Some(key));
                }
                if op == PrOutReserve && state.reservation.is_some() {
                    prop_assert!(state.holds(&port(who)));
                }
                state = next;
            }
            prop_assert!(state.registrations.len() <= MAX_REGISTRATIONS);
            prop_assert!(state.registrations.iter().all(|r| r.key != 0));
            if let Some((kind, holder)) = &state.reservation {
                prop_assert!(state.key_of(holder).is_some(), "a holder is registered");
                for n in 0..3 {
                    let registered = state.key_of(&port(n)).is_some();
                    let writes = port(n) == *holder || (kind.shared() && registered);
                    prop_assert_eq!(state.allows(&port(n), false), writes);
                    prop_assert_eq!(state.allows(&port(n), true), writes || kind.readable());
                }
            }
            let mut durable = Reservations::decode(&state.encode()).unwrap();
            (durable.generation, durable.aptpl) = (state.generation, state.aptpl);
            prop_assert_eq!(&durable, &state);
        }
    }

    #[test]
    fn rows_with_any_content(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::fuzz_state_rows(&data);
        fuzz::fuzz_state_rows(&[b"HFPR\x01", &data[..]].concat());
        fuzz::fuzz_state_rows(&[b"HFPR\x02", &data[..]].concat());
        fuzz::fuzz_state_rows(&[b"HFPR\x03", &data[..]].concat());
    }
}
