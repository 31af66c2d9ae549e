//! An image: what it is, and its exclusive lock.

use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use crate::cluster::{Shared, copied, text};
use crate::failure::check;
use crate::symbols::{ConfigOption, Watcher};
use crate::{Failure, Pool};

/// `RBD_LOCK_MODE_EXCLUSIVE`.
const EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Bytes of an image's identity: the library's own bound, with room.
const ID_BYTES: usize = 256;
/// Places in a list of the library's; there are about a hundred options, and as many watchers as clients.
const LIST: usize = 1024;
/// Owners of a lock that has one.
const OWNERS: usize = 8;
/// `ENOENT`: nobody has the lock.
const ENOENT: i32 = 2;

/// How an image is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be written to.
    ReadWrite,
    /// To be looked at, beside whoever uses it.
    ReadOnly,
}

/// An image that is open.
pub struct Image {
    pub(crate) pool: ManuallyDrop<Arc<Pool>>,
    pub(crate) handle: Shared,
}

impl Image {
    /// Opens an image by its name.
    ///
    /// # Errors
    /// When there is none, or it cannot be opened.
    pub fn open(pool: &Arc<Pool>, name: &str, access: Access) -> Result<Arc<Self>, Failure> {
        let name = text(name, "the image's name")?;
        let symbols = pool.cluster.symbols;
        let open = match access {
            Access::ReadWrite => symbols.rbd_open,
            Access::ReadOnly => symbols.rbd_open_read_only,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the pool's handle is alive and stays so for as long as the image; `handle` is where the new one goes.
        check(unsafe { open(pool.handle.0, name.as_ptr(), &raw mut handle, ptr::null()) }, "open the image")?;
        Ok(Arc::new(Self { pool: ManuallyDrop::new(Arc::clone(pool)), handle: Shared(handle) }))
    }

    /// Its pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn size(&self) -> Result<u64, Failure> {
        let mut size = 0;
        // SAFETY: the handle is alive; `size` is where the answer goes.
        let asked = unsafe { (self.pool.cluster.symbols.rbd_get_size)(self.handle.0, &raw mut size) };
        check(asked, "ask for the image's size")?;
        Ok(size)
    }

    /// Whether it has an exclusive lock.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn can_be_locked(&self) -> Result<bool, Failure> {
        let mut features = 0;
        // SAFETY: the handle is alive; `features` is where the answer goes.
        let asked = unsafe { (self.pool.cluster.symbols.rbd_get_features)(self.handle.0, &raw mut features) };
        check(asked, "ask for the image's features")?;
        Ok(features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    /// Its identity in its pool, which stays when its name changes.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn id(&self) -> Result<String, Failure> {
        let mut id: [c_char; ID_BYTES] = [0; ID_BYTES];
        // SAFETY: the library writes at most the length that it is told.
        let asked =
            unsafe { (self.pool.cluster.symbols.rbd_get_id)(self.handle.0, id.as_mut_ptr(), ID_BYTES - 1) };
        check(asked, "ask for the image's identity")?;
        // SAFETY: the last byte was not the library's to write, and is zero.
        Ok(unsafe { copied(id.as_ptr()) })
    }

    /// An option as it holds for this image, whoever has set it.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn option(&self, name: &str) -> Result<Option<String>, Failure> {
        let symbols = self.pool.cluster.symbols;
        let empty = || ConfigOption { name: ptr::null_mut(), value: ptr::null_mut(), source: 0 };
        let mut options: Vec<ConfigOption> = (0..LIST).map(|_| empty()).collect();
        let mut count = LIST as c_int;
        // SAFETY: the library fills at most `count` places, and says how many.
        let asked =
            unsafe { (symbols.rbd_config_image_list)(self.handle.0, options.as_mut_ptr(), &raw mut count) };
        check(asked, "ask for the image's options")?;
        let filled = usize::try_from(count).unwrap_or_default().min(LIST);
        // SAFETY: texts of the library in the places that it has filled, until they are cleaned up.
        let found = options.iter().take(filled).find(|option| unsafe { copied(option.name) } == name);
        // SAFETY: as above.
        let value = found.map(|option| unsafe { copied(option.value) });
        // SAFETY: what the library has put into the places goes back to it, once.
        unsafe { (symbols.rbd_config_image_list_cleanup)(options.as_mut_ptr(), filled as c_int) };
        Ok(value)
    }

    /// The addresses of the clients that have it open to write.
    ///
    /// # Errors
    /// When they cannot be asked for.
    pub fn watchers(&self) -> Result<Vec<String>, Failure> {
        let symbols = self.pool.cluster.symbols;
        let empty = || Watcher { address: ptr::null_mut(), id: 0, cookie: 0 };
        let mut watchers: Vec<Watcher> = (0..LIST).map(|_| empty()).collect();
        let mut count = LIST;
        // SAFETY: the library fills at most `count` places, and says how many.
        let asked =
            unsafe { (symbols.rbd_watchers_list)(self.handle.0, watchers.as_mut_ptr(), &raw mut count) };
        check(asked, "ask who has the image open")?;
        let filled = count.min(LIST);
        // SAFETY: texts of the library in the places that it has filled, until they are cleaned up.
        let found = watchers.iter().take(filled).map(|watcher| unsafe { copied(watcher.address) }).collect();
        // SAFETY: what the library has put into the places goes back to it, once.
        unsafe { (symbols.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), filled) };
        Ok(found)
    }

    /// Whether this client has the exclusive lock, as the cluster knows it.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn is_locked_by_us(&self) -> Result<bool, Failure> {
        let mut owner = 0;
        // SAFETY: the handle is alive; `owner` is where the answer goes.
        let asked =
            unsafe { (self.pool.cluster.symbols.rbd_is_exclusive_lock_owner)(self.handle.0, &raw mut owner) };
        check(asked, "ask for the image's lock")?;
        Ok(owner != 0)
    }

    /// The address of the client that has the exclusive lock.
    ///
    /// # Errors
    /// When it cannot be asked for.
    pub fn lock_owner(&self) -> Result<Option<String>, Failure> {
        let symbols = self.pool.cluster.symbols;
        let mut owners: [*mut c_char; OWNERS] = [ptr::null_mut(); OWNERS];
        let (mut mode, mut count) = (EXCLUSIVE, OWNERS);
        // SAFETY: the library fills at most `count` places, and says how many.
        let asked = unsafe {
            (symbols.rbd_lock_get_owners)(self.handle.0, &raw mut mode, owners.as_mut_ptr(), &raw mut count)
        };
        match check(asked, "ask who has the image's lock") {
            Ok(_) => {}
            Err(failure) if failure.code() == Some(ENOENT) => return Ok(None),
            Err(failure) => return Err(failure),
        }
        let filled = count.min(OWNERS);
        let first = owners.first().copied().filter(|_| filled > 0);
        // SAFETY: a text of the library, until it is cleaned up.
        let owner = first.map(|first| unsafe { copied(first) });
        // SAFETY: what the library has put into the places goes back to it, once.
        unsafe { (symbols.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), filled) };
        Ok(owner)
    }

    /// Takes the exclusive lock, and keeps it: who asks for it is refused.
    ///
    /// # Errors
    /// When another client has it and lives, or it cannot be taken.
    pub fn lock(&self) -> Result<(), Failure> {
        // SAFETY: the handle is alive.
        let locked = unsafe { (self.pool.cluster.symbols.rbd_lock_acquire)(self.handle.0, EXCLUSIVE) };
        check(locked, "take the image's lock").map(drop)
    }

    /// Lets go of the lock, after what is under way has ended.
    ///
    /// # Errors
    /// When it cannot be said to the cluster.
    pub fn unlock(&self) -> Result<(), Failure> {
        // SAFETY: the handle is alive.
        check(
            unsafe { (self.pool.cluster.symbols.rbd_lock_release)(self.handle.0) },
            "let go of the image's lock",
        )
        .map(drop)
    }

    /// Takes the lock from a client, which is shut out of the cluster before that.
    ///
    /// # Errors
    /// When somebody else has it by now, or it cannot be said to the cluster.
    pub fn break_lock(&self, owner: &str) -> Result<(), Failure> {
        let owner = text(owner, "a client's address")?;
        // SAFETY: the handle is alive; the text outlives the call.
        let broken =
            unsafe { (self.pool.cluster.symbols.rbd_lock_break)(self.handle.0, EXCLUSIVE, owner.as_ptr()) };
        check(broken, "break the image's lock").map(drop)
    }
}

/// What is left of an image to close: its pool, which stays for good where it cannot be closed, and its handle.
struct Closing(ManuallyDrop<Arc<Pool>>, Shared);

impl Closing {
    fn close(self) {
        let Self(pool, Shared(handle)) = self;
        let pool = ManuallyDrop::into_inner(pool);
        // SAFETY: whoever uses the handle, each transfer too, held the image, which is gone; the pool goes after it.
        let closed = unsafe { (pool.cluster.symbols.rbd_close)(handle) };
        if let Err(failure) = check(closed, "close the image") {
            tracing::debug!(%failure, "an image of Ceph was closed with an error");
        }
    }
}

impl Drop for Image {
    /// Closes it on a thread of its own: this may be one of the library's, which must not wait for itself.
    fn drop(&mut self) {
        // SAFETY: the image is never used again, so the pool is taken out of it once.
        let pool = unsafe { ManuallyDrop::take(&mut self.pool) };
        let closing = Closing(ManuallyDrop::new(pool), Shared(self.handle.0));
        if let Err(error) = shard_runtime::spawn_thread("rbd-close", move || closing.close()) {
            tracing::error!(%error, "an image of Ceph stays open until the process ends: no thread can be started");
        }
    }
}
