//! Ceph's client libraries, librados and librbd, behind an interface without `unsafe`. They are loaded when the first cluster is connected
//! to, so the program starts and runs where they are not installed.
//!
//! ```text
//!   Cluster   one client instance: an address that Ceph can shut out (blocklist)      rados_t
//!     └ Pool    objects of a pool, compared and set by their version                  rados_ioctx_t
//!        └ Image  a block device: asynchronous reads and writes, its exclusive lock   rbd_image_t
//! ```
//!
//! What holds for every call into the libraries:
//! * **Handles.** A handle is made once, owned by one value, and given back when that value is dropped. An [`Image`] holds its [`Pool`],
//!   which holds its [`Cluster`], so they are closed in the order in which the libraries want it. The libraries' handles may be used by
//!   several threads at a time; what may not (the version that was read last) is behind a lock.
//! * **Buffers.** What a transfer reads or writes is owned by the transfer until its completion has been called, whatever becomes of the
//!   future that waits for it. An image is held by each of its transfers, so it is closed after the last completion.
//! * **Completions** are called by the libraries' own threads, once for each transfer that was accepted. They do nothing that blocks:
//!   they hand the result over and wake who waits. An image whose last holder is a completion is closed by a thread of its own.
//! * **Texts** go in with their terminating zero, and are copied before what they came in is given back.
//!
//! Everything but transfers blocks: call it on a thread of its own ([`shard_runtime::spawn_thread`]).
//!
//! Deliberately absent: what a result means to a disk, who may write, and when to give up (`block_rbd`).

mod cluster;
mod failure;
mod image;
mod symbols;
mod transfers;

pub use cluster::{Cluster, Object, Pool};
pub use failure::{Failure, LoadError};
pub use image::{Access, Image};
pub use transfers::Held;
