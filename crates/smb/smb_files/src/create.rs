//! CREATE (MS-FSA 2.1.5.1): from a path and what is wanted to an open.
//!
//! ```text
//!   plan (what is asked makes sense) → resolve (where it is) ┬ existing: checks → admit → overwrite
//!                                                            └ missing:  checks → make  → admit
//! ```
//! `admit` is where opens meet: share modes, oplocks and leases of others, what is granted. Everything before it can be
//! done again when the file turns out to have changed meanwhile.

mod admit;
mod asker;
mod existing;
mod new_file;
mod plan;
mod resolve;

use std::sync::Arc;

use std::rc::Rc;

use parking_lot::Mutex;
use smb_protocol::access::{AccessMask, CreateAction};
use smb_protocol::create::contexts::{MaximalAccessReply, OnDiskIdReply};
use smb_protocol::{FileTime, NtStatus};

use crate::FileSystem;
use crate::api::{Caller, CreateRequest, Granted, OpenInfo};
use crate::error::{Result, refuse};
use crate::file_system::{Core, Open, Pin};

use asker::{Asker, OwnRequest};
use plan::Plan;
use resolve::Found;

/// How often a create looks again when the name changes under it, before it gives up.
const ATTEMPTS_MAX: usize = 100;

/// An open that was admitted, and what was done for it.
struct Admitted {
    open: Arc<Open>,
    action: CreateAction,
    granted: Granted,
    maximal: AccessMask,
}

/// What an attempt came to.
enum Attempt {
    Done(Admitted),
    /// The file or the name changed meanwhile.
    Again,
}

/// What CREATE did.
pub struct Created {
    /// The open.
    pub open: Arc<Open>,
    /// What was done.
    pub action: CreateAction,
    /// Caching granted.
    pub granted: Granted,
    /// Times, sizes, attributes.
    pub info: OpenInfo,
    /// Whether it is a reparse point.
    pub reparse_point: bool,
    /// The answer to MxAc.
    pub maximal_access: Option<MaximalAccessReply>,
    /// The answer to QFid.
    pub on_disk_id: Option<OnDiskIdReply>,
}

impl FileSystem {
    /// CREATE (MS-FSA 2.1.5.1). Dropping the future before it ends leaves nothing open, and no file half made or half emptied: what has
    /// begun to change something comes to its end, and is closed then.
    ///
    /// # Errors
    /// Those of the specification, among them STOPPED_ON_SYMLINK with its data in the detail, SHARING_VIOLATION after
    /// breaks that could have helped, and FILE_NOT_AVAILABLE where a disconnected persistent open protects the file.
    pub async fn create(&self, caller: &Caller, request: CreateRequest<'_>) -> Result<Created> {
        let asker = Rc::new(Asker::default());
        let (files, own, with) = (self.clone(), OwnRequest::of(caller, &request), Rc::clone(&asker));
        let work = async move { files.create_for(&own, &with).await };
        asker::ask(asker, request.on_wait, work).await
    }

    async fn create_for(&self, own: &OwnRequest, asker: &Asker) -> Result<Created> {
        let on_wait = |waits| asker.waits(waits);
        let request = own.request(&on_wait)?;
        let plan = Plan::new(&own.caller, &request, asker)?;
        let root = self.core.share_root(own.caller.share.root).await?;
        let made = self.attempts(&plan, &root).await;
        // Nobody would close what nobody hears of.
        let made = made.and_then(|made| asker.is_there().map(|()| made));
        match made {
            Ok(_) => plan.unwind.defuse(),
            Err(_) => plan.unwind.run().await,
        }
        made
    }

    async fn attempts(&self, plan: &Plan<'_>, root: &Pin) -> Result<Created> {
        for _ in 0..ATTEMPTS_MAX {
            plan.asker.is_there()?;
            let attempt = match self.core.resolve(root, plan).await? {
                Found::Existing(node) => self.core.open_existing(plan, node).await?,
                Found::Missing(directory, name) => self.core.make(plan, &directory, &name).await?,
            };
            match attempt {
                Attempt::Done(admitted) => return self.core.created(plan, admitted).await,
                Attempt::Again => {}
            }
        }
        refuse(NtStatus::RETRY, "the name kept changing")
    }
}

/// Takes an admitted open back when its CREATE fails or is dropped before it could answer.
#[derive(Default)]
struct Unwind(Mutex<Option<Arc<Open>>>);

impl Unwind {
    fn arm(&self, open: &Arc<Open>) {
        *self.0.lock() = Some(Arc::clone(open));
    }

    fn defuse(&self) {
        self.0.lock().take();
    }

    /// Closes the open as any other: it may be the last of a file that somebody else has deleted meanwhile.
    async fn run(&self) {
        let open = self.0.lock().take();
        if let Some(open) = open {
            open.state.lock().delete_on_close = false;
            // Closed before means closed.
            let _ = open.close(false).await;
        }
    }
}

impl Drop for Unwind {
    fn drop(&mut self) {
        if let Some(open) = self.0.lock().take() {
            open.state.lock().delete_on_close = false;
            shard_runtime::detach(async move {
                let _ = open.close(false).await;
            });
        }
    }
}

impl Core {
    /// The answer to a CREATE.
    async fn created(self: &Arc<Self>, plan: &Plan<'_>, admitted: Admitted) -> Result<Created> {
        let Admitted { open, action, granted, maximal } = admitted;
        let info = open.info().await?;
        let reparse_point = self.is_reparse_point(open.node.file).await?;
        let request = plan.request;
        let maximal_access = request.maximal_access.map(|since| match since {
            // Only if the file changed since (MS-SMB2 3.3.5.9.5).
            Some(time) if time != FileTime::ZERO && time == info.last_write_time => {
                MaximalAccessReply { status: NtStatus::NONE_MAPPED, access: AccessMask::NONE }
            }
            _ => MaximalAccessReply { status: NtStatus::SUCCESS, access: maximal },
        });
        let on_disk_id = request
            .on_disk_id
            .then(|| OnDiskIdReply { file_id: open.node.file.0, volume_id: self.options.serial });
        Ok(Created { open, action, granted, info, reparse_point, maximal_access, on_disk_id })
    }
}
