//! Files as disks, with each engine, on a file system and in memory.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use block_conformance::{Options, Subject, SubjectFuture};
use block_device::{BlockDevice, Device};
use io_engine::{BlockingEngine, Engine, RingEngine, block_on, install};

use crate::{CreateFile, LocalDisk, OpenMode};

const SIZE: u64 = 8 << 20;

fn made(path: PathBuf, preallocate: bool) -> LocalDisk {
    let _ = std::fs::remove_file(&path);
    LocalDisk::create_file(&CreateFile { path: path.clone(), size: SIZE, preallocate }).expect("made");
    LocalDisk::open(&path, OpenMode::ReadWrite).expect("opens")
}

struct Files<'a> {
    folder: &'a Path,
    preallocate: bool,
    next: std::cell::Cell<u32>,
}

impl Subject for Files<'_> {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async {
            self.next.set(self.next.get() + 1);
            let disk = made(self.folder.join(format!("disk{}", self.next.get())), self.preallocate);
            let device: Device = Arc::new(disk);
            device
        })
    }
}

fn conforms(engine: Rc<dyn Engine>, folder: &Path, preallocate: bool) {
    let guard = install(engine);
    let files = Files { folder, preallocate, next: std::cell::Cell::default() };
    let suite = block_conformance::run(&files, Options::seeded(11));
    block_on(&guard, suite).expect("engine").unwrap_or_else(|failure| panic!("{failure}"));
}

/// Beside the build, which is on a disk; the folder for temporary files may be in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("temporary folder")
}

#[test]
fn files_conform_with_the_ring() {
    match RingEngine::new() {
        Ok(engine) => conforms(Rc::new(engine), on_disk().path(), false),
        Err(error) => eprintln!("skipped: no io_uring here: {error}"),
    }
}

#[test]
fn files_conform_with_threads() {
    conforms(Rc::new(BlockingEngine::new().expect("engine")), on_disk().path(), true);
}

#[test]
fn files_in_memory_conform() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm here");
        return;
    };
    conforms(Rc::new(BlockingEngine::new().expect("engine")), folder.path(), false);
}

#[test]
fn what_is_no_disk_is_refused_with_the_reason() {
    let folder = on_disk();
    let path = folder.path().join("disk");
    let error = LocalDisk::open(&path, OpenMode::ReadWrite).err().expect("missing");
    assert!(error.is_missing() && error.to_string().contains("disk"), "{error}");
    LocalDisk::open(folder.path(), OpenMode::ReadWrite).err().expect("a folder is no disk");
    std::fs::write(&path, [0; 100]).expect("small file");
    LocalDisk::open(&path, OpenMode::ReadWrite).err().expect("not one block");
    let disk = made(path.clone(), false);
    assert_eq!(disk.size(), SIZE);
    let twice = LocalDisk::open(&path, OpenMode::ReadWrite).err().expect("it is taken");
    assert!(twice.is_busy(), "{twice}");
    assert!(twice.to_string().contains("held by this process itself"), "{twice}");
    let again = LocalDisk::create_file(&CreateFile { path: path.clone(), size: SIZE, preallocate: false });
    assert!(again.err().is_some_and(|error| error.to_string().contains("create")), "never over a file");
    drop(disk);
    let reader = LocalDisk::open(&path, OpenMode::ReadOnly).expect("opens");
    assert!(reader.geometry().read_only);
}

/// A file of this machine is taken by one process of it at a time; of the system's devices nobody knows who else reaches them.
#[test]
fn only_what_this_machine_alone_has_is_reached_by_nobody_else() {
    let folder = tempfile::tempdir().expect("temp dir");
    let file = std::fs::File::create(folder.path().join("disk")).expect("made");
    assert!(!crate::reach::file_may_be_shared(&file));
    // No device has this number.
    assert!(crate::reach::device_may_be_shared(libc::makedev(4000, 1 << 19)));
    let known = std::fs::read_dir("/sys/class/block").into_iter().flatten().filter_map(Result::ok);
    for device in known {
        let name = device.file_name().to_string_lossy().into_owned();
        let number = std::fs::read_to_string(device.path().join("dev")).expect("a number");
        let (major, minor) = number.trim().split_once(':').expect("two numbers");
        let number = libc::makedev(major.parse().expect("a number"), minor.parse().expect("a number"));
        let shared = crate::reach::device_may_be_shared(number);
        if name.starts_with("vd") || name.starts_with("sd") || name.starts_with("nvme") {
            assert!(shared, "{name}");
        } else if name.starts_with("ram") || name.starts_with("zram") {
            assert!(!shared, "{name}");
        }
    }
}
