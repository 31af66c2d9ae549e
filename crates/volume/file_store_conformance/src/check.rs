//! How a check says what is wrong, and the operations all checks are made of.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::{self, Debug};
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{
    Access, Attributes, FileId, FileKind, NewFile, OpenFile, OpenOptions, StoreError, StoreErrorKind,
};

use crate::{Options, Store, Subject};

/// A sentence of the contract that the store breaks.
#[derive(Debug)]
pub struct Failure {
    check: &'static str,
    what: String,
}

/// The result of a check.
pub type Outcome<T = ()> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file store contract, {}: {}", self.check, self.what)
    }
}

impl Error for Failure {}

/// An open file under test.
pub(crate) type File = Arc<dyn OpenFile>;

/// How often [`Probe::eventually`] looks: with a pause of a millisecond, half a minute.
const PATIENCE: u32 = 30_000;

/// A check at work on its store.
pub(crate) struct Probe<'a> {
    check: &'static str,
    store: RefCell<Store>,
    subject: &'a dyn Subject,
    /// Seed and length of random parts.
    pub(crate) options: Options,
}

/// Bytes that tell places and writes apart: those of `offset..offset + len` in write `generation`.
pub(crate) fn bytes(offset: u64, len: u64, generation: u64) -> Vec<u8> {
    let one = |at: u64| {
        let mixed = (at ^ generation.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        // Never zero, so that a hole is never mistaken for data.
        (mixed >> 56) as u8 | 1
    };
    (offset..offset + len).map(one).collect()
}

pub(crate) fn buffer(bytes: &[u8]) -> SharedBuf {
    IoBuf::copy_from(bytes).freeze()
}

pub(crate) fn new(kind: FileKind) -> NewFile {
    NewFile { kind, attributes: Attributes(0x20), security: Vec::new() }
}

impl<'a> Probe<'a> {
    pub(crate) fn new(check: &'static str, store: Store, subject: &'a dyn Subject, options: Options) -> Self {
        Self { check, store: RefCell::new(store), subject, options }
    }

    pub(crate) fn store(&self) -> Store {
        Arc::clone(&self.store.borrow())
    }

    pub(crate) fn root(&self) -> FileId {
        self.store.borrow().root()
    }

    /// The store's unit of allocation.
    pub(crate) fn unit(&self) -> u64 {
        self.subject.unit()
    }

    pub(crate) fn fail<T>(&self, what: impl Into<String>) -> Outcome<T> {
        Err(Failure { check: self.check, what: what.into() })
    }

    /// An operation that must succeed.
    pub(crate) fn done<T>(&self, what: &str, result: Result<T, StoreError>) -> Outcome<T> {
        result.or_else(|error| {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            self.fail(format!("{what} failed with {:?}: {error} {cause}", error.kind()))
        })
    }

    /// An operation that must end with this error.
    pub(crate) fn refused<T>(
        &self,
        what: &str,
        result: Result<T, StoreError>,
        kind: StoreErrorKind,
    ) -> Outcome {
        match result {
            Ok(_) => self.fail(format!("{what} succeeded, but must fail with {kind:?}")),
            Err(error) if error.kind() == kind => Ok(()),
            Err(error) => self.fail(format!("{what} failed with {:?} ({error}), not {kind:?}", error.kind())),
        }
    }

    pub(crate) fn equal<T: PartialEq + Debug>(&self, what: &str, found: T, wanted: T) -> Outcome {
        if found == wanted { Ok(()) } else { self.fail(format!("{what} is {found:?}, not {wanted:?}")) }
    }

    pub(crate) fn ensure(&self, what: &str, holds: bool) -> Outcome {
        if holds { Ok(()) } else { self.fail(format!("it does not hold that {what}")) }
    }

    /// Makes a file or directory.
    pub(crate) async fn make(&self, directory: FileId, name: &str, kind: FileKind) -> Outcome<FileId> {
        let made = self.store().create(directory, name, new(kind)).await;
        self.done(&format!("create {name}"), made)
    }

    /// Makes a file in the root.
    pub(crate) async fn file(&self, name: &str) -> Outcome<FileId> {
        self.make(self.root(), name, FileKind::File).await
    }

    /// Opens a file for reading and writing.
    pub(crate) async fn open(&self, file: FileId) -> Outcome<File> {
        let opened = self.store().open(file, OpenOptions::shared(Access::READ_WRITE)).await;
        self.done("open", opened)
    }

    /// Makes a file in the root and opens it.
    pub(crate) async fn opened(&self, name: &str) -> Outcome<File> {
        let file = self.file(name).await?;
        self.open(file).await
    }

    pub(crate) async fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> Outcome {
        let written = file.write(offset, buffer(bytes), Durability::Durable).await;
        self.done(&format!("write at {offset}+{}", bytes.len()), written)
    }

    /// What a range holds, up to the end of the file.
    pub(crate) async fn read(&self, file: &File, offset: u64, len: u64) -> Outcome<Vec<u8>> {
        // Not zeroed: what the store does not fill must not pass for zeros.
        let mut buf = IoBuf::new(len as usize);
        buf.fill(0xa5);
        let read = file.read(offset, buf).await;
        Ok(self.done(&format!("read at {offset}+{len}"), read)?.to_vec())
    }

    /// The range must hold these bytes.
    pub(crate) async fn holds(&self, what: &str, file: &File, offset: u64, wanted: &[u8]) -> Outcome {
        let found = self.read(file, offset, wanted.len() as u64).await?;
        if found.len() != wanted.len() {
            let (found, wanted) = (found.len(), wanted.len());
            return self.fail(format!("{what}: {found} bytes at {offset}, not {wanted}"));
        }
        match found.iter().zip(wanted).position(|(a, b)| a != b) {
            Some(at) => self.fail(format!(
                "{what}: byte {} is {:#x}, not {:#x}",
                offset + at as u64,
                found[at],
                wanted[at]
            )),
            None => Ok(()),
        }
    }

    /// The file must hold these bytes and nothing more.
    pub(crate) async fn is(&self, what: &str, file: &File, wanted: &[u8]) -> Outcome {
        self.equal(&format!("{what}: size"), file.size(), wanted.len() as u64)?;
        self.holds(what, file, 0, wanted).await
    }

    /// Lets others go on for a moment.
    pub(crate) async fn after_crash(&self) -> Option<Store> {
        self.subject.after_crash().await
    }

    pub(crate) async fn pause(&self) {
        self.subject.pause().await;
    }

    /// Waits until something holds that background work brings about.
    pub(crate) async fn eventually<F>(&self, what: &str, mut holds: impl FnMut() -> F) -> Outcome
    where
        F: Future<Output = Outcome<bool>>,
    {
        for _ in 0..PATIENCE {
            if holds().await? {
                return Ok(());
            }
            self.subject.pause().await;
        }
        self.fail(format!("it never comes to pass that {what}"))
    }

    /// Closes and opens the store; false if it does not outlive that.
    pub(crate) async fn reopen(&self) -> Outcome<bool> {
        self.verify().await?;
        let store = self.store();
        match self.subject.reopen(store).await {
            Some(store) => {
                *self.store.borrow_mut() = store;
                self.verify().await?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The store's own verification.
    pub(crate) async fn verify(&self) -> Outcome {
        let store = self.store();
        match self.subject.verify(&store).await {
            Ok(()) => Ok(()),
            Err(found) => self.fail(format!("the store's own check finds: {found}")),
        }
    }
}

impl Failure {
    /// Adds to the description.
    pub(crate) fn adding(mut self, text: &str) -> Self {
        self.what.push_str(text);
        self
    }
}
