//! The node's users, as the SMB server asks for them.

use std::sync::Arc;

use smb_auth::{Account, Accounts};
use smb_protocol::security::Sid;
use smb_security::{Privileges, Token};
use smb_server::Directory;
use smb_users::{PrincipalKind, Users};

/// The users, or nobody when the database cannot be read.
pub(super) struct NodeUsers(pub(super) Option<Arc<Users>>);

/// As access checks want it.
fn token(of: smb_users::Token) -> Token {
    let is_admin = of.is_administrator();
    let mut privileges = if is_admin { Privileges::ADMINISTRATOR } else { Privileges::default() };
    if of.is_backup_operator() {
        (privileges.backup, privileges.restore) = (true, true);
    }
    Token { user: of.user, primary_group: of.primary_group, groups: of.groups, privileges, is_admin }
}

impl Accounts for NodeUsers {
    fn account(&self, domain: &str, user: &str) -> Option<Account> {
        self.0.as_ref()?.account(domain, user)
    }

    fn judged(&self, account: &Account, right: bool) {
        if let Some(users) = &self.0 {
            users.judged(account, right);
        }
    }
}

impl Directory for NodeUsers {
    fn token(&self, user: Sid, _groups: &[Sid]) -> Option<Token> {
        // All users are the node's own: no directory service names groups.
        let directory = self.0.as_ref()?.snapshot();
        directory.user_by_sid(user).filter(|user| !user.disabled)?;
        Some(token(smb_users::Token::of_user(&directory, user)))
    }

    fn anonymous(&self) -> Token {
        token(smb_users::Token::anonymous())
    }

    fn has_left(&self, user: Sid) -> bool {
        self.0.as_ref().is_some_and(|users| users.has_left(user))
    }

    fn is_group(&self, sid: Sid) -> bool {
        let found = self.0.as_ref().and_then(|users| users.snapshot().find_sid(sid));
        found.is_some_and(|found| found.kind != PrincipalKind::User)
    }

    fn name_of(&self, user: Sid) -> Option<String> {
        self.0.as_ref()?.snapshot().user_by_sid(user).map(|user| user.name.clone())
    }
}
