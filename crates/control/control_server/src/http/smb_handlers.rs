//! Handlers of the SMB server: shares, users, groups, opens.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{
    AccountRename, Confirm, List, PasswordChange, ShareCreate, ShareUpdate, SmbUpdate, UserCreate,
    UserGroupCreate, UserGroupUpdate, UserUpdate,
};

use super::handle;
use super::parts::{Json, S, Sent, answer, number};
use super::subject::Subject;
use crate::node::Node;

type P = Path<String>;
/// What the record of changes says of it.
type R = Extension<Subject>;

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    Some(match id {
        "smb_show" => handle(f, async |State(n): S| Json(n.smb_show())),
        "smb_update" => {
            handle(f, async |State(n): S, Sent(b): Sent<SmbUpdate>| answer(n.smb_update(b).await))
        }
        "share_list" => handle(f, async |State(n): S| answer(n.share_list().await.map(List::from))),
        "share_create" => {
            handle(f, async |State(n): S, Sent(b): Sent<ShareCreate>| answer(n.share_create(b).await))
        }
        "share_show" => handle(f, async |State(n): S, Path(s): P| answer(n.share_show(&s).await)),
        "share_update" => handle(f, async |State(n): S, Path(s): P, Sent(b): Sent<ShareUpdate>| {
            answer(n.share_update(&s, b).await)
        }),
        "share_delete" => handle(f, async |State(n): S, Path(s): P, Sent(b): Sent<Confirm>| {
            answer(n.share_delete(&s, b.confirm).await)
        }),
        "open_list" => handle(f, async |State(n): S| Json(List::from(n.open_list()))),
        "open_close" => {
            handle(f, async |State(n): S, Path(o): P, Sent(b): Sent<Confirm>| match number(&n, &o) {
                Ok(id) => answer(n.open_close(id, b.confirm).await),
                Err(problem) => answer(Err(problem)),
            })
        }
        _ => return account_handler(id, f),
    })
}

fn account_handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    Some(match id {
        "user_list" => handle(f, async |State(n): S| answer(n.user_list().map(List::from))),
        "user_create" => handle(f, async |State(n): S, Extension(r): R, Sent(b): Sent<UserCreate>| {
            answer(n.user_create(b).await.inspect(|made| r.sid(&made.sid)))
        }),
        "user_show" => handle(f, async |State(n): S, Path(u): P| answer(n.user_show(&u))),
        "user_update" => handle(f, async |State(n): S, Path(u): P, Sent(b): Sent<UserUpdate>| {
            answer(n.user_update(&u, b).await)
        }),
        "user_rename" => handle(f, async |State(n): S, Path(u): P, Sent(b): Sent<AccountRename>| {
            answer(n.user_rename(&u, b).await)
        }),
        "user_delete" => handle(f, async |State(n): S, Path(u): P, Sent(b): Sent<Confirm>| {
            answer(n.user_delete(&u, b.confirm).await)
        }),
        "user_password" => handle(f, async |State(n): S, Path(u): P, Sent(b): Sent<PasswordChange>| {
            answer(n.user_password(&u, b).await)
        }),
        "user_unlock" => handle(f, async |State(n): S, Path(u): P| answer(n.user_unlock(&u))),
        "user_group_list" => handle(f, async |State(n): S| answer(n.user_group_list().map(List::from))),
        "user_group_create" => {
            handle(f, async |State(n): S, Extension(r): R, Sent(b): Sent<UserGroupCreate>| {
                answer(n.user_group_create(b).await.inspect(|made| r.sid(&made.sid)))
            })
        }
        "user_group_show" => handle(f, async |State(n): S, Path(g): P| answer(n.user_group_show(&g))),
        "user_group_update" => handle(f, async |State(n): S, Path(g): P, Sent(b): Sent<UserGroupUpdate>| {
            answer(n.user_group_update(&g, b).await)
        }),
        "user_group_rename" => handle(f, async |State(n): S, Path(g): P, Sent(b): Sent<AccountRename>| {
            answer(n.user_group_rename(&g, b).await)
        }),
        "user_group_delete" => handle(f, async |State(n): S, Path(g): P, Sent(b): Sent<Confirm>| {
            answer(n.user_group_delete(&g, b.confirm).await)
        }),
        _ => return None,
    })
}
