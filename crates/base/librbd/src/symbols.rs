//! The functions of both libraries, found by name in what the system has installed.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::LoadError;

/// A handle of the libraries; only they know what it leads to.
pub(crate) type Handle = *mut c_void;
/// What is called when a transfer has ended: its completion, and what was given along.
pub(crate) type Callback = unsafe extern "C" fn(Handle, *mut c_void);

/// A client that has an image open (`rbd_image_watcher_t`).
#[repr(C)]
pub(crate) struct Watcher {
    pub(crate) address: *mut c_char,
    pub(crate) id: i64,
    pub(crate) cookie: u64,
}

/// An option as it holds for an image (`rbd_config_option_t`).
#[repr(C)]
pub(crate) struct ConfigOption {
    pub(crate) name: *mut c_char,
    pub(crate) value: *mut c_char,
    pub(crate) source: c_int,
}

macro_rules! symbols {
    ($($library:ident { $(fn $name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)* })*) => {
        /// Each function under its own name.
        pub(crate) struct Symbols {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Symbols {
            fn find($($library: &Library),*) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the signatures are those of rados/librados.h and rbd/librbd.h of the libraries' major versions, whose
                    // names are asked for; they are never unloaded, so the functions stay where they are.
                    $($($name: unsafe { *$library.get(concat!(stringify!($name), "\0").as_bytes())? },)*)*
                })
            }
        }
    };
}

symbols! {
    rados {
        fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        fn rados_conf_read_file(Handle, *const c_char) -> c_int;
        fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rados_connect(Handle) -> c_int;
        fn rados_shutdown(Handle);
        fn rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
        fn rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
        fn rados_buffer_free(*mut c_char);
        fn rados_mon_command(
            Handle, *const *const c_char, usize, *const c_char, usize,
            *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize) -> c_int;
        fn rados_wait_for_latest_osdmap(Handle) -> c_int;
        fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        fn rados_ioctx_destroy(Handle);
        fn rados_ioctx_set_namespace(Handle, *const c_char);
        fn rados_ioctx_get_id(Handle) -> i64;
        fn rados_set_pool_full_try(Handle);
        fn rados_get_last_version(Handle) -> u64;
        fn rados_read(Handle, *const c_char, *mut c_char, usize, u64) -> c_int;
        fn rados_create_write_op() -> Handle;
        fn rados_release_write_op(Handle);
        fn rados_write_op_assert_version(Handle, u64);
        fn rados_write_op_create(Handle, c_int, *const c_char);
        fn rados_write_op_write_full(Handle, *const c_char, usize);
        fn rados_write_op_operate(Handle, Handle, *const c_char, *mut c_void, c_int) -> c_int;
    }
    rbd {
        fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_close(Handle) -> c_int;
        fn rbd_get_size(Handle, *mut u64) -> c_int;
        fn rbd_get_features(Handle, *mut u64) -> c_int;
        fn rbd_get_id(Handle, *mut c_char, usize) -> c_int;
        fn rbd_config_image_list(Handle, *mut ConfigOption, *mut c_int) -> c_int;
        fn rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
        fn rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
        fn rbd_watchers_list_cleanup(*mut Watcher, usize);
        fn rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
        fn rbd_lock_acquire(Handle, c_int) -> c_int;
        fn rbd_lock_release(Handle) -> c_int;
        fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        fn rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
        fn rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
        fn rbd_aio_get_return_value(Handle) -> isize;
        fn rbd_aio_release(Handle);
        fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
        fn rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
        fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
        fn rbd_aio_flush(Handle, Handle) -> c_int;
    }
}

fn load() -> Result<Symbols, LoadError> {
    let open = |name: &str| {
        // SAFETY: initialisers of these libraries register their classes and read nothing of ours.
        unsafe { Library::new(name) }.map_err(|error| LoadError(error.to_string()))
    };
    let (rados, rbd) = (open("librados.so.2")?, open("librbd.so.1")?);
    let found = Symbols::find(&rados, &rbd).map_err(|error| LoadError(error.to_string()));
    // The libraries have threads of their own, which may outlive every handle for a moment: they are never unloaded.
    std::mem::forget((rados, rbd));
    found
}

/// The libraries, loaded once. Where they are not there they are looked for again: they may be installed meanwhile.
pub(crate) fn symbols() -> Result<&'static Symbols, LoadError> {
    static LOADED: OnceLock<Symbols> = OnceLock::new();
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    let loaded = load()?;
    Ok(LOADED.get_or_init(|| loaded))
}
