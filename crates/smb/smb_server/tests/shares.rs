//! Folders of shares, as other shares see them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "common/wanted.rs"]
mod wanted;

use std::sync::Arc;

use common::share;
use file_store::MemoryStore;
use smb_protocol::access::{CreateDisposition, CreateOptions};
use smb_protocol::{Guid, NtStatus};
use smb_server::ShareConfig;
use wanted::{Wanted, client, close, file_id, served};

#[test]
fn the_folder_of_a_share_stays_while_it_is_shared() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    let mut folder = Wanted::plain();
    (folder.name, folder.options) = ("vms", CreateOptions::DIRECTORY_FILE);
    let made = file_id(&folder.open(&mut connection, tree));
    assert_eq!(close(&mut connection, tree, made), NtStatus::SUCCESS);
    let config = |folder: &str| ShareConfig {
        name: "vms".to_owned(),
        folder: folder.to_owned(),
        ..share(&served.files)
    };
    folder.disposition = CreateDisposition::OPEN;
    folder.options |= CreateOptions::DELETE_ON_CLOSE;
    let mut delete = || folder.open(&mut connection, tree).header.status;
    served.server.add_share(config("vms")).unwrap();
    assert_eq!(delete(), NtStatus::CANNOT_DELETE);
    served.server.update_share(config("VMS")).unwrap();
    assert_eq!(delete(), NtStatus::CANNOT_DELETE);
    assert!(served.server.remove_share("vms"));
    assert_eq!(delete(), NtStatus::SUCCESS);
}
