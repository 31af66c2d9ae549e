//! The power goes at each write of the local store, and each operation fails once: what was answered is there, and nothing is half
//! there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::files::Files;
use crate::{LocalStore, Range, Step, StoreError, Transaction};

type Inode = usize;

/// A change of names that is not durable yet: these names then have these files.
type Renaming = Vec<(String, Option<Inode>)>;

#[derive(Clone, Default)]
struct Disk {
    /// Content, and whether it is durable.
    inodes: Vec<(Vec<u8>, bool)>,
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    pending: Vec<Renaming>,
    operations: usize,
    /// At this operation the power goes, or the operation alone fails.
    fails_at: Option<(usize, Failure)>,
    dead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    Cut,
    Error,
    /// It is done and says that it is not.
    ErrorAfter,
}

impl Disk {
    /// What may be there after the power went: each change of names alone made or not, content that was not durable cut at
    /// some length or replaced.
    fn survivors(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for kept in 0_u32..1 << self.pending.len() {
            for torn in [0, 1, 2] {
                let mut names = self.durable_names.clone();
                for (_, renaming) in self.pending.iter().enumerate().filter(|(at, _)| kept & (1 << at) != 0) {
                    set(&mut names, renaming);
                }
                let mut inodes = self.inodes.clone();
                for (content, durable) in inodes.iter_mut().filter(|inode| !inode.1) {
                    match torn {
                        0 => {}
                        1 => content.truncate(content.len() / 2),
                        _ => content.fill(0),
                    }
                    *durable = true;
                }
                all.push(Self { inodes, durable_names: names.clone(), names, ..Self::default() });
            }
        }
        all
    }
}

fn set(names: &mut BTreeMap<String, Inode>, renaming: &Renaming) {
    for (name, inode) in renaming {
        match inode {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}

#[derive(Clone, Default)]
struct CutFiles(Arc<Mutex<Disk>>);

impl CutFiles {
    fn change<T>(&self, work: impl FnOnce(&mut Disk) -> T) -> io::Result<T> {
        let mut disk = self.0.lock();
        disk.operations += 1;
        let fails = disk.fails_at.filter(|(at, _)| *at == disk.operations).map(|(_, failure)| failure);
        let failed = || io::Error::other("injected");
        match fails {
            _ if disk.dead => Err(failed()),
            Some(Failure::Cut) => {
                disk.dead = true;
                Err(failed())
            }
            Some(Failure::Error) => Err(failed()),
            Some(Failure::ErrorAfter) => {
                work(&mut disk);
                Err(failed())
            }
            None => Ok(work(&mut disk)),
        }
    }
}

impl Disk {
    fn name(&mut self, renaming: Renaming) {
        set(&mut self.names, &renaming);
        self.pending.push(renaming);
    }
}

impl Files for CutFiles {
    fn read(&self, name: &str, _limit: u64) -> io::Result<Option<Vec<u8>>> {
        let disk = self.0.lock();
        Ok(disk.names.get(name).map(|inode| disk.inodes[*inode].0.clone()))
    }

    fn write(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.change(|disk| match disk.names.get(name).copied() {
            Some(inode) => disk.inodes[inode] = (content.to_vec(), false),
            None => {
                disk.inodes.push((content.to_vec(), false));
                let inode = disk.inodes.len() - 1;
                disk.name(vec![(name.into(), Some(inode))]);
            }
        })
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.change(|disk| {
            let inode = disk.names[name];
            disk.inodes[inode].1 = true;
        })
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.change(|disk| {
            if disk.names.contains_key(name) {
                disk.name(vec![(name.into(), None)]);
            }
        })
    }

    fn link(&mut self, name: &str, second: &str) -> io::Result<()> {
        self.change(|disk| {
            assert!(!disk.names.contains_key(second), "a link needs a free name");
            let inode = disk.names[name];
            disk.name(vec![(second.into(), Some(inode))]);
        })
    }

    fn rename(&mut self, name: &str, to: &str) -> io::Result<()> {
        self.change(|disk| {
            let inode = disk.names[name];
            disk.name(vec![(to.into(), Some(inode)), (name.into(), None)]);
        })
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.change(|disk| {
            disk.durable_names = disk.names.clone();
            disk.pending.clear();
        })
    }

    fn place(&self, name: &str) -> String {
        name.into()
    }
}

fn number(store: &LocalStore) -> u64 {
    let found = store.get_now(&Range::Key("/n".into())).expect("read").found;
    found.first().map_or(0, |found| String::from_utf8_lossy(&found.value).parse().expect("a number"))
}

fn write(store: &LocalStore, value: u64) -> Result<(), StoreError> {
    let steps = vec![
        Step::Put("/n".into(), value.to_string().into()),
        Step::Put("/same".into(), value.to_string().into()),
    ];
    store.transact_now(&Transaction { steps, ..Transaction::default() }).map(|_| ())
}

fn open(disk: &CutFiles) -> LocalStore {
    LocalStore::with_files(Box::new(disk.clone())).expect("opens after whatever happened")
}

/// Writes 1, 2, 3 … until something fails; returns what was answered, and what failed.
fn until_failure(disk: &CutFiles, from: u64) -> (u64, Option<StoreError>) {
    let store = open(disk);
    let mut value = number(&store).max(from);
    for _ in 0..3 {
        match write(&store, value + 1) {
            Ok(()) => value += 1,
            Err(error) => return (value, Some(error)),
        }
    }
    (value, None)
}

#[test]
fn a_cut_leaves_the_old_state_or_the_new_one() {
    let mut seen = 0;
    for at in 1..40 {
        let disk = CutFiles::default();
        disk.0.lock().fails_at = Some((at, Failure::Cut));
        let (answered, failed) = until_failure(&disk, 0);
        if failed.is_none() {
            break;
        }
        let survivors = disk.0.lock().survivors();
        for survivor in survivors {
            seen += 1;
            let disk = CutFiles(Arc::new(Mutex::new(survivor)));
            let store = open(&disk);
            let number = number(&store);
            assert!(number == answered || number == answered + 1, "cut at {at}: {number} after {answered}");
            write(&store, 77).expect("goes on");
            assert_eq!(self::number(&open(&disk)), 77);
        }
    }
    assert!(seen > 100, "only {seen} cuts were tried");
}

/// A second cut, during the first transaction after the first one.
#[test]
fn two_cuts_leave_one_of_the_states_too() {
    for (first, second) in (1..20).flat_map(|first| (1..8).map(move |second| (first, second))) {
        let disk = CutFiles::default();
        disk.0.lock().fails_at = Some((first, Failure::Cut));
        let (_, _) = until_failure(&disk, 0);
        for survivor in disk.0.lock().survivors() {
            let disk = CutFiles(Arc::new(Mutex::new(survivor)));
            disk.0.lock().fails_at = Some((second, Failure::Cut));
            let (answered, _) = until_failure(&disk, 0);
            for survivor in disk.0.lock().survivors() {
                let number = number(&open(&CutFiles(Arc::new(Mutex::new(survivor)))));
                assert!(
                    number == answered || number == answered + 1,
                    "{first}, {second}: {number} after {answered}"
                );
            }
        }
    }
}

#[test]
fn an_error_says_whether_it_was_done() {
    for (at, failure) in (1..30).flat_map(|at| [(at, Failure::Error), (at, Failure::ErrorAfter)]) {
        let disk = CutFiles::default();
        disk.0.lock().fails_at = Some((at, failure));
        let (answered, failed) = until_failure(&disk, 0);
        let Some(error) = failed else { continue };
        let survivors = disk.0.lock().survivors();
        let numbers: Vec<u64> =
            survivors.into_iter().map(|disk| number(&open(&CutFiles(Arc::new(Mutex::new(disk)))))).collect();
        let highest = if error.is_certainly_not_done() { answered } else { answered + 1 };
        assert!(numbers.iter().all(|number| (answered..=highest).contains(number)), "{error}: {numbers:?}");
        // A store that does not know what the disk has says nothing more.
        let store = open(&CutFiles(Arc::new(Mutex::new(disk.0.lock().clone()))));
        assert!(number(&store) >= answered);
    }
}

#[test]
fn a_store_that_does_not_know_what_its_disk_has_stops() {
    // remove, write, sync, remove, rename, sync of the folder: the last is the sixth.
    let disk = CutFiles::default();
    let store = open(&disk);
    disk.0.lock().fails_at = Some((6, Failure::Error));
    assert!(matches!(write(&store, 1), Err(StoreError::Unknown(_))));
    let again = write(&store, 2).expect_err("it has stopped");
    assert!(matches!(&again, StoreError::NotDone(why) if why.contains("has stopped")), "{again}");
    assert!(store.get_now(&Range::Key("/n".into())).is_err(), "what it would answer may be wrong");
}
