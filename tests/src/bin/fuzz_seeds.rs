//! Writes one valid input per parser to fuzz/corpus, after a format has changed: `cargo run -p tests --bin fuzz_seeds`.
//! Seeds that cannot be made from a type (captured frames, finds of the fuzzer) are added by hand beside them.

use std::path::Path;

use pool_format::{
    Change, Checkpoint, ColumnRecord, CopyRecord, DiskId, DiskRecord, DiskUse, Epoch, Guid, LogBatch, Mark,
    Owner, PoolState, Provisioning, Resiliency, RowRecord, Seq, SpaceId, SpaceRecord, layout_for,
};
use smb_protocol::fuzz::samples;

fn main() -> std::io::Result<()> {
    let disk = DiskRecord {
        id: DiskId(1),
        guid: Guid([7; 16]),
        usage: DiskUse::Active,
        metadata: true,
        slab_count: 64,
        data_start: 4 << 20,
        size: 4 << 30,
        media: 1,
        enclosure: "shelf-a".into(),
        slot: "3".into(),
        node: String::new(),
        model: "model".into(),
        serial: "serial".into(),
    };
    let space = SpaceRecord {
        id: SpaceId(1),
        guid: Guid([9; 16]),
        name: "space".into(),
        resiliency: Resiliency::Mirror(2),
        provisioning: Provisioning::Thin,
        columns: 1,
        interleave: 256 << 10,
        size: 1 << 30,
        checksum: Some(pool_format::Checksum::Xxh3),
    };
    let copy = CopyRecord { disk: DiskId(1), slab: 3, stale: 1 };
    let column = ColumnRecord { copies: vec![copy], ..ColumnRecord::default() };
    let (space_id, row, record) = (space.id, 0, RowRecord { columns: vec![column] });
    let mark = Mark { epoch: Epoch(3), seq: Seq(4) };
    let changes = vec![
        Change::PutDisk(disk),
        Change::PutSpace(space),
        Change::PutRow { space: space_id, row, record },
        Change::Generations { space: space_id, row, column: 0, pages: vec![(0, 7), (2, 255)] },
        Change::Mark { disk: DiskId(1), mark },
        Change::Owner(Owner { node: Guid([3; 16]), name: "node".into(), released: false }),
    ];
    let mut state = PoolState { slab_size: 64 << 20, ..PoolState::default() };
    changes.iter().for_each(|change| state.apply(change));
    let batch = LogBatch { pool: Guid([5; 16]), epoch: Epoch(3), first: Seq(5), changes };
    seed("pool_state", &state.encode())?;
    seed("pool_log_batch", &batch.encode())?;
    seed("pool_checkpoint", &Checkpoint { epoch: Epoch(3), seq: Seq(6), state }.encode())?;
    if let Some(superblock) = layout_for(4 << 30, 64 << 20) {
        seed("pool_superblock", &superblock.encode())?;
    }
    write_log_seeds()?;
    volume_seeds()?;
    let text = b"InitiatorName=iqn.2000-01.test:chap\0SessionType=Normal\0TargetName=iqn.2000-01.test:t\0AuthMethod=CHAP,None\0\
        HeaderDigest=CRC32C,None\0MaxRecvDataSegmentLength=262144\0MaxBurstLength=1048576\0CHAP_A=5\0CHAP_N=u\0CHAP_R=0x00\0";
    let mut login = vec![0x43, 0x81, 0, 0, 0, 0, 0, text.len() as u8];
    login.resize(48, 0);
    login.extend_from_slice(text);
    seed("iscsi_pdu", &login)?;
    seed("iscsi_text", text)?;
    // A second request in the next stage follows the first.
    let next = login.clone();
    login.extend_from_slice(&next);
    login[48 + text.len() + 1] = 0x87;
    seed("iscsi_login", &login)?;
    iscsi_client_seeds()?;
    let mut read16 = vec![0x88, 0x08];
    read16.resize(16, 1);
    seed("scsi_parameters", &read16)?;
    let mut list = vec![0_u8; 48];
    list[..12].copy_from_slice(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    seed("scsi_state_rows", &list)?;
    // A disk with a partition table and an ext4 file system in it, as far as one can tell from its first bytes.
    let mut foreign = vec![0_u8; 4096];
    foreign[510..512].copy_from_slice(&[0x55, 0xaa]);
    foreign[1080..1082].copy_from_slice(&[0x53, 0xef]);
    seed("foreign_disk", &foreign)?;
    let (segment, payloads) = counter_history::fuzz::sample();
    seed("counter_history_segment", &segment)?;
    seed("counter_history_payloads", &payloads)?;
    let book = health_rules::fuzz::sample();
    seed("health_rules_book", &book)?;
    seed("health_rules_rows", book.get(20..).unwrap_or_default())?;
    let (_, mut stream) = diff_format::fuzz::sample();
    stream.insert(0, 3);
    seed("snapshot_diff", &stream)?;
    // Begin, File and Stream as the entry takes them: type, length, payload.
    let mut records = vec![1, 37];
    records.extend_from_slice(&[0; 37]);
    records.extend_from_slice(&[4, 42]);
    records.extend_from_slice(&[0; 42]);
    records.extend_from_slice(&[5, 18]);
    records.extend_from_slice(&[0; 18]);
    seed("snapshot_diff_records", &records)?;
    for (target, bytes) in vhdx_format::fuzz::samples() {
        seed(target, &bytes)?;
    }
    for (name, bytes) in spd_fleet::fuzz::samples() {
        named_seed("spd_message", name, &bytes)?;
    }
    for (name, bytes) in scsi_forward::fuzz::samples() {
        named_seed("scsi_forward", name, &bytes)?;
    }
    for (name, bytes) in cluster_node::fuzz::samples() {
        named_seed("cluster_link", name, &bytes)?;
    }
    seed("cluster_incarnation", &cluster_node::fuzz::incarnation_sample())?;
    seed("cluster_identity", cluster_identity::fuzz::record_sample().as_bytes())?;
    seed("disk_gate_record", &disk_gate::fuzz::sample())?;
    seed("rbd_table", &block_rbd::fuzz::table_sample())?;
    seed("rbd_address", block_rbd::fuzz::address_sample().as_bytes())?;
    seed("disk_bus_commands", &disk_bus::fuzz::sample())?;
    seed("cluster_token", cluster_identity::fuzz::token_sample().as_bytes())?;
    smb()
}

/// One of each message of SMB; streams of real clients lie beside them in `smb_packets`.
fn smb() -> std::io::Result<()> {
    for (at, request) in samples::requests().iter().enumerate() {
        named_seed("smb_request", &format!("sample{at:02}"), request)?;
    }
    for (at, response) in samples::responses().iter().enumerate() {
        named_seed("smb_response", &format!("sample{at:02}"), response)?;
    }
    seed("smb_create_contexts", &samples::create_contexts())?;
    seed("smb_negotiate_contexts", &samples::negotiate_context_list())?;
    for (name, bytes) in samples::descriptors() {
        named_seed("smb_security_descriptor", name, &bytes)?;
    }
    for (name, bytes) in samples::fsctls() {
        named_seed("smb_fsctl", name, &bytes)?;
    }
    for (name, bytes) in samples::information() {
        named_seed("smb_information", name, &bytes)?;
    }
    // What clients have sent through pipes lies beside it in `rpc_pipe` (RPC_RECORD of crates/smb/rpc/tests/clients.rs).
    seed("rpc_ndr", &rpc::fuzz::sample())?;
    seed("smb_users", &smb_users::fuzz::sample())?;
    for (target, tokens) in [
        ("smb_spnego", smb_auth::fuzz::samples::spnego()),
        ("smb_ntlm", smb_auth::fuzz::samples::ntlm()),
        ("smb_authentication", smb_auth::fuzz::samples::conversations()),
    ] {
        for (at, token) in tokens.iter().enumerate() {
            named_seed(target, &format!("sample{at:02}"), token)?;
        }
    }
    Ok(())
}

fn seed(target: &str, bytes: &[u8]) -> std::io::Result<()> {
    named_seed(target, "valid", bytes)
}

fn named_seed(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), bytes)
}

/// What a target answers to a login, with CHAP and without; an address with all that it can have.
fn iscsi_client_seeds() -> std::io::Result<()> {
    let answer = |flags: u8, text: &[u8]| {
        let mut pdu = vec![0x23, flags, 0, 0, 0, 0, 0, text.len() as u8];
        pdu.resize(48, 0);
        pdu[19] = 1;
        pdu.extend_from_slice(text);
        pdu
    };
    let keys =
        b"HeaderDigest=None\0DataDigest=None\0InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=262144\0\
        FirstBurstLength=65536\0MaxOutstandingR2T=1\0MaxRecvDataSegmentLength=262144\0ErrorRecoveryLevel=0\0";
    let open =
        [vec![0], answer(0x81, b"AuthMethod=None\0TargetPortalGroupTag=1\0"), answer(0x87, keys)].concat();
    named_seed("iscsi_login_client", "open", &open)?;
    let challenge = b"CHAP_A=5\0CHAP_I=7\0CHAP_C=0x00112233445566778899aabbccddeeff\0";
    let chap = [
        vec![3],
        answer(0, b"AuthMethod=CHAP\0"),
        answer(0, challenge),
        answer(0x81, b"CHAP_N=u\0CHAP_R=0x00112233445566778899aabbccddeeff\0"),
    ];
    named_seed("iscsi_login_client", "chap", &chap.concat())?;
    let url = "iscsi://user%secret@[::1]:3260/iqn.2026-01.org.example:disk/0?header_digest=crc32c&data_digest=none&\
        target_user=it&target_password=hush&initiator=iqn.2026-01.org.example:host";
    seed("iscsi_url", url.as_bytes())
}

/// A superblock of a volume and a batch of its metadata log.
fn volume_seeds() -> std::io::Result<()> {
    use volume_format::{BatchId, BatchWriter, Table};
    if let Some(superblock) = volume_format::layout_for(1 << 30) {
        seed("volume_structures", &superblock.encode())?;
    }
    let mut batch = BatchWriter::new(64 << 10);
    batch.put(Table::Entries, &(5u64, "NAME"), &&b"an entry"[..]);
    batch.put(Table::State, &("table", &b"key"[..]), &&b"a row"[..]);
    batch.put(Table::Extents, &(7u64, 0u32, 3u64), &(100u64, 16u64, 1u8));
    batch.remove(Table::Orphans, &9u64);
    match batch.seal(&BatchId { guid: [7; 16], epoch: 3, nonce: 5, sequence: 11 }) {
        Some(bytes) => seed("volume_log_batch", bytes),
        None => Ok(()),
    }
}

/// Labels and a batch of a write log.
fn write_log_seeds() -> std::io::Result<()> {
    use write_log_format::{Batch, Checksum, Entry, EntryKind, Label, Side, State};
    let label = Label {
        generation: 3,
        state: State::Attached,
        checksum: Checksum::Xxh3,
        log: [7; 16],
        shift: 1 << 20,
        ring: 64 << 20,
        tail: 8192,
        tail_batch: 4,
        reached: 6,
    };
    seed("write_log_label", &label.encode(Side::Front))?;
    let kinds = [EntryKind::Data, EntryKind::Zeroes, EntryKind::Forget];
    let entries: Vec<Entry> = kinds.map(|kind| Entry { kind, offset: 4096, len: 4096 }).into();
    if let Ok(mut batch) = Batch::lay_out([7; 16], 4, &entries) {
        let mut bytes = vec![0x5a; batch.head.batch_len() as usize];
        batch.seal(Checksum::Xxh3, &mut bytes);
        seed("write_log_batch", &bytes)?;
    }
    Ok(())
}
