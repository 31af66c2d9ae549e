//! What the server holds: users to ask and to change, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shard_runtime::{Clock, Entropy};
use smb_auth::{Account, AccountState, Accounts, NtHash};
use smb_protocol::security::sid::Sid;

use crate::directory::{Directory, Secret, User};
use crate::error::UsersError;
use crate::files::Files;
use crate::format::{self, SealingKey};
use crate::lockout::{Lockout, Tallies};
use crate::names::PASSWORD_MAX;
use crate::shared::{Common, SharedUsers};
use crate::token::Token;

/// A change is made anew on what other nodes have changed so often, each time after a longer pause of chance.
const TRIES: u32 = 8;
/// The longest that the first of these pauses is, in milliseconds.
const PAUSE_MILLIS: u64 = 16;

/// What is asked of passwords and of those who guess them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fewest characters of a new password; an empty one is never taken.
    pub min_password_chars: usize,
    /// When an account is locked out.
    pub lockout: Lockout,
}

impl Default for Policy {
    fn default() -> Self {
        // NIST SP 800-63B 5.1.1.2: at least eight, and no rules of composition.
        Self { min_password_chars: 8, lockout: Lockout::default() }
    }
}

/// A user to be.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// What it is called.
    pub name: String,
    /// The person's name.
    pub full_name: String,
    /// What it is for.
    pub comment: String,
    /// Whether it may not be used yet.
    pub disabled: bool,
    /// The groups that it is in from the beginning, beside those that everybody is in.
    pub groups: Vec<Sid>,
    /// What proves it.
    pub secret: Secret,
}

/// What changes of a user; `None` stays.
#[derive(Clone, Debug, Default)]
pub struct UserChange {
    /// What it is called.
    pub name: Option<String>,
    /// The person's name.
    pub full_name: Option<String>,
    /// What it is for.
    pub comment: Option<String>,
    /// Whether it may not be used.
    pub disabled: Option<bool>,
}

/// Users and groups of the node.
///
/// Questions are answered from memory. Changes write and flush two small files, so they belong on a thread of the
/// control plane, not on a shard; each is durable when it returns.
pub struct Users {
    now: RwLock<Arc<Directory>>,
    policy: RwLock<Policy>,
    tallies: Mutex<Tallies>,
    /// Held while a change is made: one at a time. Where users are shared, it is waited for within [`SharedUsers::blocking`] only: whoever
    /// holds it may wait for the store, whose answers come by the threads that would wait here.
    writer: Mutex<Writer>,
    /// Where other nodes have the same users.
    common: RwLock<Option<Common>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// Other nodes may have changed what is known here.
    behind: AtomicBool,
}

struct Writer {
    files: Files,
    key: SealingKey,
    /// A change may be durable or not: what is in memory and what a restart would find can differ.
    unsure: bool,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("machine", &self.snapshot().machine()).finish_non_exhaustive()
    }
}

impl Users {
    /// The users in these files; where there are none, new files with the built-in groups and a new machine SID.
    ///
    /// # Errors
    /// When a file cannot be read or written, is damaged, was changed without the key, or others may read the key; a
    /// database without its key stays as it is.
    pub fn open(
        files: Files,
        policy: Policy,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, UsersError> {
        let (directory, writer) = match files.load()? {
            Some((directory, key)) => (directory, Writer { files, key, unsure: false }),
            None => {
                // The key first: a crash between the two leaves a key without a database, which is used.
                let key = files.key(&*entropy)?;
                let [low, high] = [entropy.next_u64(), entropy.next_u64()];
                let directory = Directory::new([low as u32, (low >> 32) as u32, high as u32]);
                let mut writer = Writer { files, key, unsure: false };
                writer.store(&directory, &*entropy)?;
                (directory, writer)
            }
        };
        Ok(Self {
            now: RwLock::new(Arc::new(directory)),
            policy: RwLock::new(policy),
            tallies: Mutex::default(),
            writer: Mutex::new(writer),
            common: RwLock::default(),
            clock,
            entropy,
            behind: AtomicBool::new(false),
        })
    }

    /// All users and groups as they are at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Directory> {
        Arc::clone(&self.now.read())
    }

    /// The SIDs of a user; `None` when it is gone.
    #[must_use]
    pub fn token(&self, user: Sid) -> Option<Token> {
        let directory = self.snapshot();
        directory.user_by_sid(user)?;
        Some(Token::of_user(&directory, user))
    }

    /// Whether it is certain that a user is gone, or disabled: not while what other nodes have changed cannot be read.
    #[must_use]
    pub fn has_left(&self, user: Sid) -> bool {
        let may = self.snapshot().user_by_sid(user).is_some_and(|user| !user.disabled);
        !may && !self.is_behind()
    }

    /// Whether other nodes may have changed what this one has not read yet.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Sets what is asked of passwords and guesses, from now on.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write() = policy;
    }

    /// How long a user stays locked out; `None` when it is not.
    #[must_use]
    pub fn locked_for(&self, user: Sid) -> Option<Duration> {
        let rule = self.policy.read().lockout;
        self.tallies.lock().locked_for(user, &rule, self.clock.now())
    }

    /// Lets a locked user in again.
    ///
    /// # Errors
    /// When there is none.
    pub fn unlock(&self, name: &str) -> Result<(), UsersError> {
        let sid = self.snapshot().user(name).ok_or_else(|| UsersError::NoUser(name.to_owned()))?.sid;
        self.tallies.lock().forget(sid);
        Ok(())
    }

    /// Makes a change durable, then lets it take effect: all that `change` does of it, or nothing. When another node was faster, `change` is
    /// called again with what is there then. A name may be somebody else's then, so it finds whom it means by SID.
    ///
    /// # Errors
    /// Those of `change`, and when it cannot be made durable.
    pub fn change<T>(
        &self,
        mut change: impl FnMut(&mut Directory) -> Result<T, UsersError>,
    ) -> Result<T, UsersError> {
        let common = self.common.read().clone();
        let Some(common) = common else {
            let mut writer = self.writer.lock();
            let mut next = Directory::clone(&self.snapshot());
            let answer = change(&mut next)?;
            writer.store(&next, &*self.entropy)?;
            *self.now.write() = Arc::new(next);
            return Ok(answer);
        };
        let mut answer = Err(UsersError::Stopped);
        // Also the lock is waited for in there.
        common.place.blocking(&mut || answer = self.change_common(&common, &mut change));
        answer
    }

    /// From now on other nodes have the same users: a change is one for all of them, or none. `key` is that of all nodes.
    pub fn share(&self, key: SealingKey, place: Arc<dyn SharedUsers>) {
        self.behind.store(true, Ordering::Release);
        *self.common.write() = Some(Common { place, key });
    }

    /// Takes up what other nodes have changed; says whether that was something. Where there is nothing yet, all nodes get what this one has.
    ///
    /// # Errors
    /// When it cannot be read: what was known stays.
    pub fn catch_up(&self) -> Result<bool, UsersError> {
        let Some(common) = self.common.read().clone() else { return Ok(false) };
        let (mut answer, mut behind) = (Ok(false), false);
        common.place.blocking(&mut || {
            let mut writer = self.writer.lock();
            answer = self.adopt(&common, &mut writer).and_then(|new| {
                // Another node may have given its own first: that is taken up the next time.
                behind = common.place.is_empty() && !common.replace(&self.snapshot(), self.nonce())?;
                Ok(new)
            });
        });
        self.behind.store(answer.is_err() || behind, Ordering::Release);
        answer
    }

    fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        self.entropy.fill(&mut nonce);
        nonce
    }

    fn adopt(&self, common: &Common, writer: &mut Writer) -> Result<bool, UsersError> {
        let Some(theirs) = common.news()? else { return Ok(false) };
        self.keep(writer, theirs);
        Ok(true)
    }

    /// What all nodes have takes effect here; the file is only for when it cannot be read.
    fn keep(&self, writer: &mut Writer, directory: Directory) {
        if let Err(error) = writer.store(&directory, &*self.entropy) {
            tracing::error!(%error, "after a restart without the others this node does not know the users that they have");
        }
        *self.now.write() = Arc::new(directory);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it is called within SharedUsers::blocking, where waiting is allowed"
    )]
    fn change_common<T>(
        &self,
        common: &Common,
        change: &mut impl FnMut(&mut Directory) -> Result<T, UsersError>,
    ) -> Result<T, UsersError> {
        for tried in 0..TRIES {
            if tried > 0 {
                let chance = self.entropy.next_u64() % (PAUSE_MILLIS << tried);
                std::thread::sleep(Duration::from_millis(chance));
            }
            let mut writer = self.writer.lock();
            self.adopt(common, &mut writer)?;
            let mut next = Directory::clone(&self.snapshot());
            let answer = change(&mut next)?;
            if common.replace(&next, self.nonce())? {
                self.keep(&mut writer, next);
                return Ok(answer);
            }
        }
        Err(UsersError::Shared(
            "they were changed on other nodes at the same time, again and again; try again".into(),
        ))
    }

    fn hash(&self, secret: &Secret) -> Result<NtHash, UsersError> {
        let text = match secret {
            Secret::Hash(hash) => return Ok(hash.clone()),
            Secret::Password(text) => text,
        };
        let least = self.policy.read().min_password_chars.max(1);
        if text.chars().count() < least {
            return Err(UsersError::Password("it is too short"));
        }
        if text.encode_utf16().count() > PASSWORD_MAX {
            return Err(UsersError::Password("it has more than 256 characters"));
        }
        // Where passwords are typed and sent as text, a zero ends them.
        if text.contains('\0') {
            return Err(UsersError::Password("it contains a zero"));
        }
        Ok(NtHash::of_password(text))
    }

    /// Adds a user.
    ///
    /// # Errors
    /// When the name cannot be one or is taken, a group is none, the password cannot be one, there are too many, or the change cannot be
    /// made durable.
    pub fn create_user(&self, new: NewUser) -> Result<User, UsersError> {
        let nt_hash = self.hash(&new.secret)?;
        let NewUser { name, full_name, comment, disabled, groups, secret: _ } = new;
        let password_set = self.clock.wall().0;
        let sid = Sid::ANONYMOUS;
        let user = User { sid, name, full_name, comment, disabled, password_set, nt_hash };
        self.change(|directory| {
            let user = directory.add_user(user.clone())?.clone();
            for group in &groups {
                let group = directory.name_of(*group)?;
                directory.add_member(&group, user.sid)?;
            }
            Ok(user)
        })
    }

    /// Changes a user. Sessions that it has are the caller's to end.
    ///
    /// # Errors
    /// When it is gone, a new name cannot be one or is taken, or the change cannot be made durable.
    pub fn change_user(&self, user: Sid, change: &UserChange) -> Result<User, UsersError> {
        self.change(|directory| {
            let apply = |user: &mut User| {
                for (now, new) in [
                    (&mut user.name, &change.name),
                    (&mut user.full_name, &change.full_name),
                    (&mut user.comment, &change.comment),
                ] {
                    if let Some(new) = new {
                        now.clone_from(new);
                    }
                }
                user.disabled = change.disabled.unwrap_or(user.disabled);
            };
            let name = directory.name_of(user)?;
            directory.change_user(&name, apply).cloned()
        })
    }

    /// Sets a user's password, as an administrator does, and lets it in again if it was locked out.
    ///
    /// # Errors
    /// When it is gone, the password cannot be one, or the change cannot be made durable.
    pub fn set_password(&self, user: Sid, secret: &Secret) -> Result<(), UsersError> {
        let nt_hash = self.hash(secret)?;
        let now = self.clock.wall().0;
        let apply = |user: &mut User| {
            user.nt_hash = nt_hash.clone();
            // Later than the one before in any unit, whatever the clock of the node says that set it: nodes tell by it which one they know.
            user.password_set = now.max(user.password_set.saturating_add(1_000_000_000));
        };
        self.change(|directory| {
            let name = directory.name_of(user)?;
            directory.change_user(&name, apply).map(drop)
        })?;
        self.tallies.lock().forget(user);
        Ok(())
    }

    /// Changes a user's password, as the user does. A wrong old one counts as a guess.
    ///
    /// # Errors
    /// [`UsersError::Refused`], whether the user, the old password or the account's state is to blame; otherwise as
    /// [`Users::set_password`].
    pub fn change_password(&self, name: &str, old: &str, new: &Secret) -> Result<(), UsersError> {
        let account = self.account("", name).filter(|account| account.state != AccountState::LockedOut);
        let Some(account) = account else { return Err(UsersError::Refused) };
        let right = account.nt_hash == NtHash::of_password(old);
        self.judged(&account, right);
        if !right || account.state != AccountState::Active {
            return Err(UsersError::Refused);
        }
        self.set_password(account.sid, new)
    }

    /// Removes a user, from groups too. Its sessions are the caller's to end; what it owns stays its own, and nobody
    /// else will ever have its SID.
    ///
    /// # Errors
    /// When it is gone, or the change cannot be made durable.
    pub fn remove_user(&self, user: Sid) -> Result<User, UsersError> {
        let removed = self.change(|directory| {
            let name = directory.name_of(user)?;
            directory.remove_user(&name)
        })?;
        self.tallies.lock().forget(user);
        Ok(removed)
    }
}

impl Writer {
    fn store(&mut self, directory: &Directory, entropy: &dyn Entropy) -> Result<(), UsersError> {
        if self.unsure {
            return Err(UsersError::Stopped);
        }
        let mut nonce = [0; 12];
        entropy.fill(&mut nonce);
        let sealed = format::seal(directory, &self.key, nonce).ok_or(UsersError::Full("accounts"))?;
        self.files.store(&sealed).map_err(|failure| {
            self.unsure = failure.unsure;
            failure.error
        })
    }
}

/// The domain that the client names is not looked at: a machine in no domain takes every name for one of its own, as
/// Windows does, so that somebody who is logged on elsewhere under the same name and password gets in.
impl Accounts for Users {
    fn account(&self, _domain: &str, user: &str) -> Option<Account> {
        let directory = self.snapshot();
        let found = directory.user(user)?;
        let state = if self.locked_for(found.sid).is_some() {
            AccountState::LockedOut
        } else if found.disabled {
            AccountState::Disabled
        } else {
            AccountState::Active
        };
        Some(Account { name: found.name.clone(), sid: found.sid, nt_hash: found.nt_hash.clone(), state })
    }

    fn judged(&self, account: &Account, right: bool) {
        let rule = self.policy.read().lockout;
        let locked = self.tallies.lock().judged(account.sid, right, &rule, self.clock.now());
        if locked {
            // Who guessed, and from where, is in the lines of the server before this one.
            tracing::warn!(
                user = %account.name,
                "locked out for {} s after {} wrong passwords",
                rule.locked_for.as_secs(),
                rule.failures
            );
        }
    }
}

#[cfg(test)]
mod tests;
