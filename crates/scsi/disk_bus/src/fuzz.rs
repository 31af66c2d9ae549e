//! Entry for fuzzing: a node that sends anything.

use std::io;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockFuture, Device, MemoryDisk};
use disk_gate::{DiskIdentity, Gate, Identify, Records, Settings};
use scsi_core::{Nexus, ScsiCommand, ScsiDevice as _, TaskAttribute, WireLun};

use crate::unit::BusUnit;

struct Nobody;

impl Identify for Nobody {
    fn identify<'a>(&'a self, _device: &'a Device) -> BlockFuture<'a, DiskIdentity> {
        Box::pin(async { Ok(DiskIdentity::default()) })
    }
}

impl Records for Nobody {
    fn load(&self, _disk: DiskIdentity) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn save(&self, _disk: DiskIdentity, _record: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn place(&self, _disk: DiskIdentity) -> String {
        String::new()
    }
}

/// Commands one after another, each of a length, a CDB of 16 bytes, and so many bytes of data.
pub fn commands(bytes: &[u8]) {
    shard_runtime::block_on(async {
        let settings = Settings {
            blank: None,
            device: Arc::new(MemoryDisk::new(1 << 20, 512)),
            name: "disk".into(),
            records: Arc::new(Nobody),
            identify: Arc::new(Nobody),
        };
        let Ok(gate) = Gate::open(settings).await else { return };
        let unit = BusUnit::new(gate, "disk");
        let nexus = Arc::new(Nexus {
            id: 1,
            initiator: "iqn.2026-01.org.example:node".into(),
            initiator_port: [0x80, 0, 0, 0, 0, 1],
            target: "iqn.2026-01.org.example:disk".into(),
            target_port: 1,
            io: Default::default(),
        });
        unit.nexus_established(&nexus);
        let mut rest = bytes;
        for _ in 0..16 {
            let Some((len, after)) = rest.split_first_chunk::<2>() else { break };
            let Some((cdb, after)) = after.split_at_checked(16) else { break };
            let len = usize::from(u16::from_le_bytes(*len)).min(after.len());
            let (data, after) = after.split_at(len);
            rest = after;
            let command = ScsiCommand {
                cdb: cdb.to_vec(),
                data_out: IoBuf::copy_from(data).freeze(),
                data_in_limit: 1 << 16,
                attribute: TaskAttribute::Simple,
            };
            unit.execute(&nexus, WireLun::from_number(0), command).await;
        }
        unit.nexus_lost(&nexus);
    });
}

/// Commands as a node sends them, for the corpus: what it asks at first, a reservation, a write, zeroes, a read.
#[must_use]
pub fn sample() -> Vec<u8> {
    use block_device::spc;
    use scsi_defs::request;
    let key = 5 << 16 | 2;
    let mut out = Vec::new();
    let mut command = |cdb: &[u8], data: &[u8]| {
        out.extend_from_slice(&(data.len() as u16).to_le_bytes());
        let mut whole = cdb.to_vec();
        whole.resize(16, 0);
        out.extend_from_slice(&whole);
        out.extend_from_slice(data);
    };
    command(&request::TEST_UNIT_READY, &[]);
    command(&request::inquiry(Some(0x83), 252), &[]);
    command(&request::READ_CAPACITY_16, &[]);
    command(&request::mode_sense(252), &[]);
    command(&spc::command_out(spc::Out::RegisterAndIgnore), &spc::parameters(0, key, true));
    command(&spc::command_out(spc::Out::Reserve), &spc::parameters(key, 0, false));
    command(&spc::command_in(spc::In::Keys, spc::KEYS_BYTES), &[]);
    command(&spc::command_in(spc::In::Reservation, spc::RESERVATION_BYTES), &[]);
    command(&request::write(3, 1, true), &[7; 512]);
    command(&request::write_same(0, 8, true), &[0; 512]);
    command(&request::UNMAP, &request::unmap_list(9, 2));
    command(&request::SYNCHRONIZE_CACHE, &[]);
    command(&request::read(3, 1), &[]);
    out
}
