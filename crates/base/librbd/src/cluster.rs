//! A connection to a cluster, and the objects of its pools.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Failure;
use crate::failure::check;
use crate::symbols::{Handle, Symbols, symbols};

/// Bytes of a cluster's identity as text, with its end.
const FSID_BYTES: usize = 37;
/// `LIBRADOS_CREATE_EXCLUSIVE`.
const CREATE_EXCLUSIVE: i32 = 1;
/// `EEXIST`, `ENOENT`, and what an assertion of a version ends with: `ERANGE`, `EOVERFLOW`.
const ENOENT: i32 = 2;
const OTHER_VERSION: [i32; 4] = [17, ENOENT, 34, 75];

/// A handle that several threads may use.
pub(crate) struct Shared(pub(crate) Handle);

// SAFETY: the libraries' handles are references to structures that lock themselves (librados.h: thread safety).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

pub(crate) fn text(text: &str, what: &'static str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::Text(what))
}

/// A copy of a text of the libraries; empty where there is none.
///
/// # Safety
/// `text` is null or leads to bytes that end with a zero and stay as they are during the call.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller has promised.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A client of a cluster.
pub struct Cluster {
    pub(crate) symbols: &'static Symbols,
    handle: Shared,
    address: String,
    fsid: String,
}

impl Cluster {
    /// Connects as `user` (`client.NAME` without `client.`). Options of `before` hold unless the configuration file has them, those of `after`
    /// always. The system's configuration file is read where `conf` names none.
    ///
    /// # Errors
    /// When the libraries are not here, the file cannot be read, or no monitor lets us in.
    pub fn connect(
        user: &str,
        conf: Option<&str>,
        before: &[(&str, &str)],
        after: &[(&str, &str)],
    ) -> Result<Arc<Self>, Failure> {
        let symbols = symbols()?;
        let name = text(&format!("client.{user}"), "the user")?;
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is where the new handle goes; the texts outlive the call.
        let made = unsafe { (symbols.rados_create2)(&raw mut handle, c"ceph".as_ptr(), name.as_ptr(), 0) };
        check(made, "make a client")?;
        // From here on it is given back, whatever happens.
        let mut cluster =
            Self { symbols, handle: Shared(handle), address: String::new(), fsid: String::new() };
        cluster.set(before)?;
        let conf = conf.map(|conf| text(conf, "the configuration's path")).transpose()?;
        // SAFETY: a null path stands for the system's file; a text outlives the call.
        let read = unsafe {
            (symbols.rados_conf_read_file)(handle, conf.as_ref().map_or(ptr::null(), |conf| conf.as_ptr()))
        };
        check(read, "read Ceph's configuration file")?;
        cluster.set(after)?;
        // SAFETY: the handle is alive and not connected yet.
        check(unsafe { (symbols.rados_connect)(handle) }, "connect to the cluster")?;
        cluster.fsid = cluster.ask_fsid()?;
        cluster.address = cluster.ask_address()?;
        Ok(Arc::new(cluster))
    }

    fn set(&self, options: &[(&str, &str)]) -> Result<(), Failure> {
        for (name, value) in options {
            let (name, value) = (text(name, "an option")?, text(value, "an option's value")?);
            // SAFETY: the handle is alive; the texts outlive the call.
            let set = unsafe { (self.symbols.rados_conf_set)(self.handle.0, name.as_ptr(), value.as_ptr()) };
            check(set, "set an option of Ceph's client")?;
        }
        Ok(())
    }

    fn ask_fsid(&self) -> Result<String, Failure> {
        let mut fsid = [0; FSID_BYTES];
        // SAFETY: the library writes at most the length that it is told, with the end of the text.
        let asked =
            unsafe { (self.symbols.rados_cluster_fsid)(self.handle.0, fsid.as_mut_ptr(), FSID_BYTES) };
        check(asked, "ask for the cluster's identity")?;
        if let Some(last) = fsid.last_mut() {
            *last = 0;
        }
        // SAFETY: its last byte is zero.
        Ok(unsafe { copied(fsid.as_ptr()) })
    }

    fn ask_address(&self) -> Result<String, Failure> {
        let mut address = ptr::null_mut();
        // SAFETY: the library puts a text there that is ours to give back.
        let asked = unsafe { (self.symbols.rados_getaddrs)(self.handle.0, &raw mut address) };
        check(asked, "ask for the client's address")?;
        // SAFETY: it ends with a zero, and nobody else has it.
        let copy = unsafe { copied(address) };
        // SAFETY: it came from the library and is not used any more.
        unsafe { (self.symbols.rados_buffer_free)(address) };
        Ok(copy)
    }

    /// The address by which Ceph tells this client from all others, also from a later one of the same process.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The cluster's identity.
    #[must_use]
    pub fn fsid(&self) -> &str {
        &self.fsid
    }

    /// Shuts the client with this address out for so many seconds. What this client does after that is done by nobody who does not know
    /// of it.
    ///
    /// # Errors
    /// When the monitors do not take it, or do not answer.
    pub fn shut_out(&self, address: &str, seconds: u32) -> Result<(), Failure> {
        // It becomes a part of the command's text.
        if address.bytes().any(|byte| !byte.is_ascii_graphic() || b"\"\\".contains(&byte)) {
            return Err(Failure::Text("a client's address"));
        }
        // As a command of its own: the library's function puts the time into quotes, which the monitors of 16.2 refuse.
        let command = format!(
            r#"{{"prefix": "osd blocklist", "blocklistop": "add", "addr": "{address}", "expire": {seconds}.0}}"#
        );
        let command = text(&command, "a command")?;
        let (commands, none) = ([command.as_ptr()], ptr::null_mut::<*mut c_char>());
        // SAFETY: one command, whose text outlives the call; there is no input, and no answer is wanted.
        let added = unsafe {
            (self.symbols.rados_mon_command)(
                self.handle.0,
                commands.as_ptr(),
                1,
                ptr::null(),
                0,
                none,
                ptr::null_mut(),
                none,
                ptr::null_mut(),
            )
        };
        check(added, "shut a client out")?;
        // SAFETY: the handle is alive.
        let waited = unsafe { (self.symbols.rados_wait_for_latest_osdmap)(self.handle.0) };
        check(waited, "wait for the cluster's map")?;
        Ok(())
    }

    /// A pool by its name, and a namespace in it (empty for none).
    ///
    /// # Errors
    /// When there is none.
    pub fn pool(self: &Arc<Self>, name: &str, namespace: &str) -> Result<Arc<Pool>, Failure> {
        let (name, namespace) = (text(name, "the pool's name")?, text(namespace, "the namespace")?);
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is where the new handle goes; the text outlives the call.
        let made =
            unsafe { (self.symbols.rados_ioctx_create)(self.handle.0, name.as_ptr(), &raw mut handle) };
        check(made, "open the pool")?;
        // SAFETY: the handle is alive and nobody else's yet; the text is copied. A full pool shall answer so instead of never.
        let id = unsafe {
            (self.symbols.rados_ioctx_set_namespace)(handle, namespace.as_ptr());
            (self.symbols.rados_set_pool_full_try)(handle);
            (self.symbols.rados_ioctx_get_id)(handle)
        };
        Ok(Arc::new(Pool { cluster: Arc::clone(self), handle: Shared(handle), id, one: Mutex::new(()) }))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: whoever uses the handle holds this value, so nobody does any more.
        unsafe { (self.symbols.rados_shutdown)(self.handle.0) };
    }
}

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Its version, for [`Pool::put`].
    pub version: u64,
}

/// A pool's objects.
pub struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) handle: Shared,
    id: i64,
    /// Locked from a reading to the asking for its version.
    one: Mutex<()>,
}

impl Pool {
    /// Its number in the cluster, which no other pool gets.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// What is in an object, of which up to `most` bytes are read; none where there is no such object.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, name: &str, most: usize) -> Result<Option<Object>, Failure> {
        let name = text(name, "an object's name")?;
        let mut bytes = vec![0_u8; most];
        let _alone = self.one.lock();
        let symbols = self.cluster.symbols;
        // SAFETY: the library writes at most `most` bytes, which `bytes` has.
        let read =
            unsafe { (symbols.rados_read)(self.handle.0, name.as_ptr(), bytes.as_mut_ptr().cast(), most, 0) };
        match check(read, "read an object") {
            Ok(len) => {
                bytes.truncate(usize::try_from(len).unwrap_or_default());
                // SAFETY: the handle is alive; the lock keeps other readings of it away.
                let version = unsafe { (symbols.rados_get_last_version)(self.handle.0) };
                Ok(Some(Object { bytes, version }))
            }
            Err(failure) if failure.code() == Some(ENOENT) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Replaces an object of this version, or makes it where it was not there (`None`). Whether it did: it does not when the object has
    /// another version by now.
    ///
    /// # Errors
    /// When it cannot be written; it may have been.
    pub fn put(&self, name: &str, bytes: &[u8], version: Option<u64>) -> Result<bool, Failure> {
        let name = text(name, "an object's name")?;
        let symbols = self.cluster.symbols;
        let _alone = self.one.lock();
        // SAFETY: the operation is made, used and released here; bytes and name outlive it.
        let written = unsafe {
            let operation = (symbols.rados_create_write_op)();
            match version {
                Some(version) => (symbols.rados_write_op_assert_version)(operation, version),
                None => (symbols.rados_write_op_create)(operation, CREATE_EXCLUSIVE, ptr::null()),
            }
            (symbols.rados_write_op_write_full)(operation, bytes.as_ptr().cast(), bytes.len());
            let written =
                (symbols.rados_write_op_operate)(operation, self.handle.0, name.as_ptr(), ptr::null_mut(), 0);
            (symbols.rados_release_write_op)(operation);
            written
        };
        match check(written, "write an object") {
            Ok(_) => Ok(true),
            Err(failure) if failure.code().is_some_and(|code| OTHER_VERSION.contains(&code)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: whoever uses the handle holds this value, so nobody does any more.
        unsafe { (self.cluster.symbols.rados_ioctx_destroy)(self.handle.0) };
    }
}
