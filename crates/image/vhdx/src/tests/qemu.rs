//! QEMU puts our logs in place: an image that was flushed and never closed has, for it, what was flushed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use file_store::OpenFile;
use local_file::{LocalFile, Purpose};
use shard_runtime::{Entropy, Shards, SystemEntropy};

use super::MIB;
use crate::{CreateOptions, Kind, Mode, Opening, create};

/// Makes an image, writes `fills` (where, and what), flushes after each, resizes and leaves it as it is.
async fn leave(path: std::path::PathBuf, fills: Vec<(u64, u8)>) {
    let file: Arc<dyn OpenFile> = LocalFile::open(&path, Purpose::Create).expect("made");
    let options = CreateOptions { block_size: Some(1 << 20), ..CreateOptions::new(200 * MIB, Kind::Dynamic) };
    create(&file, &options, &SystemEntropy).await.expect("made");
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let opening = Opening::read(file, Mode::Write, &entropy).await.expect("read");
    let image = opening.finish(None).await.expect("opened");
    for (offset, fill) in fills {
        let data = IoBuf::copy_from(&[fill; 65536]).freeze();
        image.write(offset, data, Durability::Volatile).await.expect("written");
        image.flush().await.expect("flushed");
    }
    image.resize(300 * MIB).await.expect("grown");
}

fn qemu(program: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(path).output().expect("it runs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("failed"), "{program} {arguments:?}: {said}");
    said
}

#[test]
fn qemu_replays_what_we_leave_in_a_log() {
    if Command::new("qemu-io").arg("--version").output().is_err() {
        println!("skipped: qemu-io is not installed (package qemu-utils)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("left.vhdx");
    let fills = vec![(0, 1), (5 * MIB, 2), (199 * MIB, 3), (5 * MIB + 65536, 4)];
    let shards = Shards::start(1).expect("a shard");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (left, what) = (path.clone(), fills.clone());
    runtime.block_on(shards.next().run(move || leave(left, what))).expect("left");
    shards.stop();
    // Without leave to change the file it does not read it: there is a log.
    let refused = Command::new("qemu-img").args(["compare", "-f", "vhdx"]).args([&path, &path]).output();
    assert!(!refused.expect("it runs").status.success(), "the log was empty");
    qemu("qemu-img", &["check", "-q", "-r", "all", "-f", "vhdx"], &path);
    let reads: Vec<String> = fills.iter().map(|(at, fill)| format!("read -P {fill} {at} 64k")).collect();
    let mut arguments = vec!["-r", "-f", "vhdx"];
    reads.iter().for_each(|read| arguments.extend(["-c", read.as_str()]));
    arguments.extend(["-c", "read -P 0 200M 100M"]);
    qemu("qemu-io", &arguments, &path);
}
