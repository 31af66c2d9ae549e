//! Every parser of untrusted bytes, by name. `fuzz/` fuzzes them, and the test below replays what is in fuzz/corpus, and
//! damaged copies of it, in each `cargo test`.

/// A parser that must take any bytes without a panic, an endless loop or memory out of proportion.
pub type Target = fn(&[u8]);

/// All of them. A crate with a `fuzz` module has a line here for each of its entries.
pub const TARGETS: &[(&str, Target)] = &[
    ("pool_superblock", pool_format::fuzz::superblock),
    ("pool_log_batch", pool_format::fuzz::log_batch),
    ("pool_checkpoint", pool_format::fuzz::checkpoint),
    ("pool_state", pool_state),
    ("write_log_label", write_log_format::fuzz::label),
    ("write_log_batch", write_log_format::fuzz::batch),
    ("volume_structures", volume_format::fuzz::structures),
    ("volume_log_batch", volume_format::fuzz::metadata_log),
    ("iscsi_pdu", iscsi_protocol::fuzz::fuzz_pdu),
    ("iscsi_text", iscsi_protocol::fuzz::fuzz_text),
    ("iscsi_login", iscsi_protocol::fuzz::fuzz_login),
    ("iscsi_login_client", iscsi_protocol::fuzz::fuzz_login_client),
    ("iscsi_url", iscsi_protocol::fuzz::fuzz_url),
    ("scsi_parameters", scsi_defs::fuzz::fuzz_scsi_defs),
    ("scsi_state_rows", scsi_disk::fuzz::fuzz_state_rows),
    ("scsi_forward", scsi_forward::fuzz::frame),
    ("foreign_disk", pool_format::fuzz::foreign_disk),
    ("smb_packets", smb_protocol::fuzz::packets),
    ("smb_request", smb_protocol::fuzz::request),
    ("smb_response", smb_protocol::fuzz::response),
    ("smb_create_contexts", smb_protocol::fuzz::create_contexts),
    ("smb_negotiate_contexts", smb_protocol::fuzz::negotiate_contexts),
    ("smb_security_descriptor", smb_protocol::fuzz::security_descriptor),
    ("smb_fsctl", smb_protocol::fuzz::fsctl),
    ("smb_information", smb_protocol::fuzz::information),
    ("rsvd_open", rsvd_protocol::fuzz::open),
    ("rsvd_tunnel", rsvd_protocol::fuzz::tunnel),
    ("smb_path", smb_files::fuzz::path),
    ("smb_open_record", smb_files::fuzz::record),
    ("smb_protected", smb_crypto::fuzz::protected),
    ("smb_spnego", smb_auth::fuzz::spnego),
    ("smb_ntlm", smb_auth::fuzz::ntlm),
    ("smb_authentication", smb_auth::fuzz::conversation),
    ("rpc_pipe", rpc::fuzz::pipe),
    ("rpc_ndr", rpc::fuzz::ndr),
    ("counter_history_segment", counter_history::fuzz::segment),
    ("counter_history_payloads", counter_history::fuzz::payloads),
    ("health_rules_book", health_rules::fuzz::book),
    ("health_rules_rows", health_rules::fuzz::rows),
    ("snapshot_diff", diff_format::fuzz::stream),
    ("snapshot_diff_records", diff_format::fuzz::records),
    ("vhdx_header", vhdx_format::fuzz::header),
    ("vhdx_region", vhdx_format::fuzz::region),
    ("vhdx_metadata", vhdx_format::fuzz::metadata),
    ("vhdx_bat", vhdx_format::fuzz::bat),
    ("vhdx_log", vhdx_format::fuzz::log),
    ("smb_users", smb_users::fuzz::database),
    ("spd_profile", spd_profile::fuzz::profile),
    ("spd_words", spd_profile::fuzz::words),
    ("spd_trace", spd_profile::fuzz::trace),
    ("spd_message", spd_fleet::fuzz::message),
    ("cluster_link", cluster_node::fuzz::frame),
    ("qos_exchange", qos_exchange::fuzz::messages),
    ("cluster_incarnation", cluster_node::fuzz::incarnation),
    ("cluster_identity", cluster_identity::fuzz::record),
    ("cluster_token", cluster_identity::fuzz::token),
    ("disk_gate_record", disk_gate::fuzz::record),
    ("rbd_table", block_rbd::fuzz::table),
    ("rbd_address", block_rbd::fuzz::address),
    ("disk_bus_commands", disk_bus::fuzz::commands),
    ("cluster_certificate_request", cluster_identity::fuzz::request),
];

/// What lies behind the checksum of a checkpoint: the fuzzer would not get there by chance, somebody with a disk would.
fn pool_state(bytes: &[u8]) {
    if let Ok(state) = pool_format::PoolState::decode(bytes) {
        let _ = state.problems();
        let _ = pool_format::PoolState::decode(&state.encode());
    }
}

/// The parser of this name.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Longer inputs are cut at so many evenly spread places, to keep the test short.
    const CUTS: usize = 256;

    #[test]
    fn corpus_replays_whole_cut_and_damaged() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let mut inputs = 0;
        for (name, target) in TARGETS {
            target(&[]);
            let files =
                std::fs::read_dir(corpus.join(name)).unwrap_or_else(|e| panic!("no corpus of {name}: {e}"));
            for file in files {
                let bytes = std::fs::read(file.expect("entry").path()).expect("read");
                target(&bytes);
                inputs += 1;
                let step = (bytes.len() / CUTS).max(1);
                for at in (0..bytes.len()).step_by(step) {
                    target(&bytes[..at]);
                    for bit in [0x01, 0x80, 0xff] {
                        let mut damaged = bytes.clone();
                        damaged[at] ^= bit;
                        target(&damaged);
                    }
                }
            }
        }
        assert!(inputs >= TARGETS.len(), "every target has at least one seed");
    }

    #[test]
    fn every_corpus_has_its_target() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for folder in std::fs::read_dir(corpus).expect("fuzz/corpus") {
            let name = folder.expect("entry").file_name().to_string_lossy().into_owned();
            assert!(find(&name).is_some(), "fuzz/corpus/{name} belongs to no target");
        }
    }
}
