//! The access matrix of SCSI: every command and every task management function × who sends it and what the unit is.
//!
//! What is expected is in [`table`], a `match` over all commands without a wildcard: one that is added to `scsi_defs` does not
//! compile here without a row. Each cell begins with units of its own, and ends with a comparison of all that the
//! command could have changed, for others, too.

mod table;

use std::fmt::Debug;

use access_matrix::Matrix;
use scsi_defs::Op;
use scsi_defs::cdb::{COMMANDS, Effect};

use super::going_on::copy_list;
use super::*;
use table::{Outcome, Part, Prep, Row};

/// Who sends, and what the unit is. The other initiator always has the unit to read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// An initiator with the unit to itself.
    Owner,
    /// The same, while another one has read and written it.
    Beside,
    /// One to which the unit is mapped to read only.
    ReadOnlyMapping,
    /// One to which another unit is mapped, and not this one.
    NotMapped,
    /// Another one holds a persistent reservation, Write Exclusive.
    WriteExclusive,
    /// Another one holds a persistent reservation, Exclusive Access.
    ExclusiveAccess,
    /// Another one has sent RESERVE.
    Reserved,
    /// The administrator has taken the unit offline.
    Offline,
    /// The unit may only be read, whoever asks.
    ReadOnlyUnit,
    /// Somebody has sent START STOP UNIT with START=0.
    Stopped,
    /// The control mode page says SWP.
    WriteProtected,
    /// A SANITIZE has failed.
    SanitizeFailed,
    /// What the unit lies in is away.
    Away,
}

impl Column {
    const ALL: [Self; 13] = [
        Self::Owner,
        Self::Beside,
        Self::ReadOnlyMapping,
        Self::NotMapped,
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::Reserved,
        Self::Offline,
        Self::ReadOnlyUnit,
        Self::Stopped,
        Self::WriteProtected,
        Self::SanitizeFailed,
        Self::Away,
    ];
    const NAMES: [&str; 13] = [
        "owner",
        "beside others",
        "read-only mapping",
        "not mapped",
        "other's WE",
        "other's EA",
        "other's RESERVE",
        "offline",
        "read-only unit",
        "stopped",
        "SWP",
        "sanitize failed",
        "away",
    ];
}

const MATRIX_BLOCKS: usize = 128;
const ME: usize = 0;
const OTHER: usize = 1;
const OWN_KEY: u64 = 0xa;
const OTHER_KEY: u64 = 0xb;

/// A unit, another one, and what they lie on.
struct Cell {
    rig: Rig,
    disks: [Arc<MemoryDisk>; 2],
    spare: Arc<LogicalUnit>,
    token: Vec<u8>,
}

/// All that a command can change, by name.
type State = Vec<(Part, Vec<u8>)>;

async fn a_unit(id: u8, rows: &Arc<Rows>) -> (Arc<LogicalUnit>, Arc<MemoryDisk>) {
    let disk = Arc::new(MemoryDisk::new(MATRIX_BLOCKS * 512, 512));
    let pattern: Vec<u8> = (0..MATRIX_BLOCKS * 512).map(|i| (i / 512) as u8 ^ id).collect();
    let backing = DeviceBacking::new(disk.clone());
    backing.write(0, IoBuf::copy_from(&pattern).freeze(), block_device::Durability::Durable).await.unwrap();
    let config = UnitConfig {
        id: [id; 16],
        product: "disk".into(),
        block_size: 512,
        write_cache: false,
        initiator_write_cache: true,
        discards_writes: false,
        keep_reservations: false,
        port_groups: vec![PortGroup::optimized(1)],
    };
    (LogicalUnit::open(config, Arc::new(backing), rows.clone()).await.unwrap(), disk)
}

impl Cell {
    async fn new(column: Column, row: &Row) -> Self {
        let rows = Arc::new(Rows::default());
        if column == Column::SanitizeFailed {
            let key = LogicalUnit::row_key(&[7; 16], b's');
            rows.0.lock().insert(key, crate::sanitize::Sanitize::row(true));
        }
        let (unit, disk) = a_unit(7, &rows).await;
        let (spare, spare_disk) = a_unit(8, &rows).await;
        let rig = Rig::untried(unit.clone(), rows, INITIATORS);
        let cell = Self { rig, disks: [disk, spare_disk], spare, token: Vec::new() };
        cell.map(false, true);
        cell.settle().await;
        // Nothing else can be done to a unit that failed.
        let prep = if column == Column::SanitizeFailed { Prep::Nothing } else { row.prep };
        cell.prepare(column, prep).await
    }

    /// Maps both units, the first one perhaps to read only, or not at all.
    fn map(&self, read_only: bool, mapped: bool) {
        let group = |initiator: usize, read_only, first: bool| Group {
            initiators: [INITIATORS[initiator].to_owned()].into(),
            luns: [(1, &self.rig.unit), (2, &self.spare)]
                .into_iter()
                .filter(|(number, _)| first || *number != 1)
                .map(|(number, unit)| {
                    (number, MappedUnit { unit: unit.clone(), read_only: read_only && number == 1 })
                })
                .collect(),
            ..Group::default()
        };
        self.rig.device.configure(vec![group(ME, read_only, mapped), group(OTHER, false, true)]);
    }

    /// Both have heard all there is to hear.
    async fn settle(&self) {
        for who in [ME, OTHER] {
            for lun in [1, 2] {
                while self
                    .rig
                    .send(who, lun, &[0; 6], &[])
                    .await
                    .sense
                    .get(2)
                    .is_some_and(|key| key & 15 == 6)
                {}
            }
        }
    }

    async fn prepare(mut self, column: Column, prep: Prep) -> Self {
        let rig = &self.rig;
        let good = (0, 0);
        // Where another one is to hold a reservation, or has sent RESERVE, it could not if I did.
        let reserves = matches!(column, Column::WriteExclusive | Column::ExclusiveAccess);
        if column == Column::Beside {
            rig.good(OTHER, &rw(0x28, 0, 0, 1), &[]).await;
        }
        match prep {
            Prep::Nothing => {}
            Prep::Registered | Prep::Holds if column == Column::Reserved => {}
            Prep::Registered => {
                assert_eq!(rig.prout(ME, 0, 0, (0, OWN_KEY), true).await, good);
                assert_eq!(rig.prout(OTHER, 6, 0, (0, OTHER_KEY), true).await, good);
            }
            Prep::Holds => {
                assert_eq!(rig.prout(ME, 0, 0, (0, OWN_KEY), true).await, good);
                if !reserves {
                    assert_eq!(rig.prout(ME, 1, 1, (OWN_KEY, 0), true).await, good);
                }
            }
            Prep::Reserved => {
                if !reserves && column != Column::Reserved {
                    rig.good(ME, &[0x16, 0, 0, 0, 0, 0], &[]).await;
                }
            }
            Prep::Copied => {
                let list = copy_list(1, &rig.unit.designator(), 0, 1, 100);
                let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0];
                rig.good(ME, &cdb, &list).await;
            }
            Prep::Copied4 => {
                let list = table::copy_list4(&rig.unit.designator());
                let cdb = [0x83, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0];
                rig.good(ME, &cdb, &list).await;
            }
            Prep::Token => self.token = rig.token(ME, &[(4, 1)]).await,
        }
        match column {
            Column::Owner | Column::Beside | Column::SanitizeFailed => {}
            Column::ReadOnlyMapping => self.map(true, true),
            Column::NotMapped => self.map(false, false),
            Column::WriteExclusive | Column::ExclusiveAccess => {
                let kind = if column == Column::WriteExclusive { 1 } else { 3 };
                assert_eq!(rig.prout(OTHER, 6, 0, (0, OTHER_KEY), true).await, good);
                assert_eq!(rig.prout(OTHER, 1, kind, (OTHER_KEY, 0), true).await, good);
            }
            Column::Reserved => {
                rig.good(OTHER, &[0x16, 0, 0, 0, 0, 0], &[]).await;
            }
            Column::Offline => rig.unit.set_state(UnitState::Offline("test".into())),
            Column::ReadOnlyUnit => rig.unit.set_state(UnitState::ReadOnly("test".into())),
            Column::Stopped => rig.unit.inner.lock().stopped = true,
            Column::WriteProtected => rig.unit.inner.lock().mode.swp = true,
            Column::Away => rig.unit.detach(),
        }
        // What the change of the mapping is news of, is heard.
        let mut inner = self.rig.unit.inner.lock();
        inner.nexuses.values_mut().for_each(|nexus| nexus.attentions.clear());
        drop(inner);
        let mut spare = self.spare.inner.lock();
        spare.nexuses.values_mut().for_each(|nexus| nexus.attentions.clear());
        drop(spare);
        self
    }

    async fn state(&self) -> State {
        let of = |what: &dyn Debug| format!("{what:?}").into_bytes();
        let mut state = Vec::new();
        for (disk, part) in self.disks.iter().zip([Part::Medium, Part::Spare]) {
            let backing = DeviceBacking::new(disk.clone());
            let bytes = backing.read(0, IoBuf::new(MATRIX_BLOCKS * 512)).await.unwrap();
            state.push((part, bytes.to_vec()));
        }
        let rows: Vec<_> = self.rig.rows.0.lock().clone().into_iter().collect();
        state.push((Part::Stored, of(&rows)));
        for unit in [&self.rig.unit, &self.spare] {
            let inner = unit.inner.lock();
            let mut reservations = inner.reservations.clone();
            reservations.generation = 0;
            state.push((Part::Reservations, of(&(reservations, inner.legacy))));
            state.push((
                Part::Mode,
                of(&(inner.mode, inner.saved_mode, inner.cache.on, inner.cache.by_initiators)),
            ));
            state.push((Part::Power, of(&inner.stopped)));
            state.push((Part::Sanitize, of(&inner.sanitize)));
            state.push((Part::Unit, of(&(&inner.state, &inner.port_groups, unit.tasks.counts()))));
            let other = self.rig.nexuses[OTHER].id;
            state.push((Part::News, of(&inner.nexuses.get(&other).map(|nexus| &nexus.attentions))));
        }
        state
    }

    /// What is sent for a row.
    fn request(&self, row: &Row, op: Op) -> (Vec<u8>, Vec<u8>) {
        let entry = COMMANDS.iter().find(|entry| entry.op == op).unwrap();
        let mut cdb = vec![0; entry.usage.len()];
        (cdb[0], cdb[1]) = (entry.opcode, entry.action.unwrap_or(0));
        let data = table::parameters(row.sent, self);
        for (at, byte) in row.bytes {
            cdb[*at] = *byte;
        }
        if let Some(at) = row.sent.length_at(&cdb) {
            let [high, low] = (data.len() as u16).to_be_bytes();
            cdb[at] = low;
            cdb[at - 1] |= if cdb.len() > 6 { high } else { 0 };
        }
        (cdb, data)
    }
}

/// What is different, and may be.
fn changed(before: &State, after: &State) -> Vec<Part> {
    let mut parts: Vec<Part> = before.iter().zip(after).filter(|(a, b)| a != b).map(|(a, _)| a.0).collect();
    parts.dedup();
    parts
}

/// A clock that jumps to whatever is waited for.
fn run_quickly<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

async fn command(op: Op, row: &Row, column: Column, expected: Outcome) -> Result<(), String> {
    let cell = Cell::new(column, row).await;
    let (cdb, data) = cell.request(row, op);
    let before = cell.state().await;
    let response = cell.rig.send(ME, 1, &cdb, &data).await;
    let got = match response.status {
        ScsiStatus::CheckCondition => Outcome::Sense(
            response.sense[2] & 15,
            u16::from_be_bytes([response.sense[12], response.sense[13]]),
        ),
        status => Outcome::Status(status as u8),
    };
    let changed = changed(&before, &cell.state().await);
    if got != expected {
        return Err(format!("got {got}, and {changed:?} changed"));
    }
    let may = if got.is_good() { row.changes(column) } else { &[] };
    if changed != may {
        return Err(format!("got it, but {changed:?} changed instead of {may:?}"));
    }
    Ok(())
}

#[test]
fn access_matrix_of_commands() {
    let about = "Sense data as key/code and qualifier; CONFLICT is RESERVATION CONFLICT. WE and EA are persistent reservations \
                 (write exclusive, exclusive access) of another initiator.";
    let mut matrix = Matrix::new("SCSI commands", about, &Column::NAMES);
    for entry in COMMANDS {
        let row = table::row(entry.op);
        for (column, expected) in Column::ALL.into_iter().zip(row.expected()) {
            let got = run_quickly(command(entry.op, &row, column, expected));
            matrix.cell(&format!("{:?}", entry.op), &expected.to_string(), got);
        }
        // What may write says so in the table that admission goes by.
        let writes = row.changes.contains(&Part::Medium);
        assert!(!writes || entry.effect == Effect::Write, "{:?}", entry.op);
    }
    matrix.finish();
}

#[test]
fn access_matrix_of_task_management() {
    let about = "Sent while another initiator has sent RESERVE: a function that resets the unit ends it.";
    let mut matrix = Matrix::new(
        "SCSI task management",
        about,
        &["read-write mapping", "read-only mapping", "not mapped"],
    );
    for function in table::FUNCTIONS {
        let (expected, resets) = table::function(function);
        for (at, column) in
            [Column::Reserved, Column::ReadOnlyMapping, Column::NotMapped].into_iter().enumerate()
        {
            let (got, changed) = run_quickly(async {
                let cell = Cell::new(column, &table::row(Op::TestUnitReady)).await;
                if column != Column::Reserved {
                    cell.rig.good(OTHER, &[0x16, 0, 0, 0, 0, 0], &[]).await;
                }
                let before = cell.state().await;
                let lun = WireLun::from_number(1);
                let got = cell.rig.device.task_management(&cell.rig.nexuses[ME], lun, function).await;
                // The spare unit, which every one of them may write, is reset with the target.
                let (before, mut after) = (before, cell.state().await);
                let second = after.len() - 6;
                after.truncate(second);
                (got, changed(&before, &after))
            });
            let may = if resets && at == 0 { &[Part::Reservations, Part::News][..] } else { &[] };
            let result = match got == expected[at] && changed == may {
                true => Ok(()),
                false => Err(format!("got {got:?}, and {changed:?} changed")),
            };
            matrix.cell(&format!("{function:?}"), &format!("{:?}", expected[at]), result);
        }
    }
    matrix.finish();
}
