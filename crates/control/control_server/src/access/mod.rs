//! Who asks: tokens, sessions of users that have logged in, and what each may do.
//!
//! ```text
//!   Authorization: Bearer ─► tokens    ─┐
//!   Cookie                ─► sessions  ─┴─► the user behind it: there? enabled? not locked? which groups? ─► Asker
//! ```
//! Invariants:
//! * Neither a token nor a session's secret is kept: only their SHA-256, so that who reads the data directory gets in nowhere.
//! * The user behind a token or session is looked at with each request: who is disabled, locked out or deleted has no access
//!   from that moment on, and a role that was taken away is gone. Sessions end with it (also with another password), so that
//!   being let in again takes logging in again.
//! * What is compared with a secret takes the same time whatever it is.

mod guesses;
mod sessions;
mod tokens;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use control_api::{Code, HttpConfig, Me, Problem, Proof, Role, SESSION_COOKIE};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use shard_runtime::{Clock, Monotonic};
use smb_auth::{AccountState, Accounts as _, NtHash};
use smb_protocol::security::Sid;
use smb_users::{Directory, Token, Users};

use guesses::Guesses;
use sessions::Sessions;
pub(crate) use tokens::NewToken;
use tokens::Tokens;

/// Bytes of randomness in a secret.
const SECRET_BYTES: usize = 32;

/// SHA-256 of a secret.
type Hash = [u8; 32];

fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who asks, as far as it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// What people read: the user's or token's name.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) proof: Proof,
    /// The user behind it; none on the machine itself, and of what was made there.
    pub(crate) user: Option<Sid>,
    /// The session that it has.
    session: Option<Hash>,
    /// The token that it has shown.
    token: Option<String>,
    /// Another node says so, and has written down the name as the record of changes has it.
    through_node: bool,
}

impl Asker {
    /// Whom another node of the cluster asks for. Without a role it may nothing.
    pub(crate) fn through_node(name: String, role: Option<Role>, proof: Option<Proof>) -> Self {
        let (role, proof) = (role.unwrap_or(Role::Metrics), proof.unwrap_or(Proof::Token));
        Self { name, role, proof, user: None, session: None, token: None, through_node: true }
    }

    /// Who is on the machine: root, or the node's own user.
    pub(crate) fn local(uid: u32) -> Self {
        let name = format!("uid {uid}");
        Self {
            name,
            role: Role::Administrator,
            proof: Proof::Socket,
            user: None,
            session: None,
            token: None,
            through_node: false,
        }
    }

    /// As it is told to itself.
    pub(crate) fn me(&self) -> Me {
        let user = if self.proof == Proof::Socket { "local".into() } else { self.name.clone() };
        Me { user, role: self.role, proof: self.proof }
    }

    /// As the record of changes names it.
    pub(crate) fn who(&self) -> String {
        match &self.token {
            _ if self.through_node => self.name.clone(),
            Some(id) => format!("token {id} {}", self.name).trim_end().to_owned(),
            // A user may be called "uid 0".
            None if self.proof == Proof::Session => format!("user {}", self.name),
            None => self.name.clone(),
        }
    }
}

/// What is needed to say who somebody is.
pub(crate) struct Known<'a> {
    pub(crate) users: Option<&'a Users>,
    pub(crate) config: &'a HttpConfig,
}

impl Known<'_> {
    /// What a user may do; none when it is not there, may not be used, or is in no group that may.
    fn role(&self, user: Sid) -> Option<Role> {
        let users = self.users?;
        let role = role_in(&users.snapshot(), self.config, user)?;
        users.locked_for(user).is_none().then_some(role)
    }

    /// When the user's password was set, which ends sessions that were opened with another.
    fn password_set(&self, user: Sid) -> Option<u64> {
        self.users?.snapshot().user_by_sid(user).map(|user| user.password_set)
    }

    fn name(&self, user: Sid) -> Option<String> {
        self.users?.snapshot().user_by_sid(user).map(|user| user.name.clone())
    }
}

/// What a user may do by the groups of `directory` and the roles of `config`; none when it is not there, is disabled, or is in no group
/// that may.
fn role_in(directory: &Directory, config: &HttpConfig, user: Sid) -> Option<Role> {
    directory.user_by_sid(user).filter(|user| !user.disabled)?;
    let token = Token::of_user(directory, user);
    let in_one = |groups: &[String]| groups.iter().any(|group| is_in(directory, &token, group));
    if token.is_administrator() {
        Some(Role::Administrator)
    } else if in_one(&config.operators) {
        Some(Role::Operator)
    } else if in_one(&config.viewers) {
        Some(Role::Viewer)
    } else {
        None
    }
}

/// Whether it is a member of the group with this SID. A name counts nothing: another group may get it. Users have SIDs of the same
/// kind, and are no groups.
fn is_in(directory: &Directory, token: &Token, group: &str) -> bool {
    let group = group.parse().ok().and_then(|sid| directory.group_by_sid(sid));
    group.is_some_and(|group| token.is(group.sid))
}

/// The question of who asks.
pub(crate) struct Access {
    tokens: Mutex<Tokens>,
    sessions: Mutex<Sessions>,
    guesses: Mutex<Guesses>,
    clock: Arc<dyn Clock>,
}

fn nobody(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail)
        .todo("Log in, or send a token that counts as `Authorization: Bearer`: `holdfast api token create` makes one.")
}

impl Access {
    /// With the tokens of this file.
    pub(crate) fn open(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self {
            tokens: Mutex::new(Tokens::open(path)),
            sessions: Mutex::default(),
            guesses: Mutex::default(),
            clock,
        }
    }

    fn now(&self) -> Monotonic {
        self.clock.now()
    }

    fn wall(&self) -> u64 {
        self.clock.wall().0 / 1_000_000_000
    }

    /// Who sends these headers. Unless it `uses` what it shows, its session goes on to be idle.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] when that is not proven. What was wrong is said only as far as it helps nobody else.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        known: &Known<'_>,
        uses: bool,
    ) -> Result<Asker, Problem> {
        let mut bearers = headers.get_all(header::AUTHORIZATION).iter();
        if let Some(value) = bearers.next() {
            let secret = value.to_str().ok().and_then(bearer).filter(|_| bearers.next().is_none());
            let secret = secret.ok_or_else(|| nobody("The header Authorization holds no token."))?;
            return self.of_token(secret, known);
        }
        match cookie(headers) {
            Some(secret) => self.of_session(secret, known, uses),
            None => Err(nobody("This needs a token or a session.")),
        }
    }

    fn of_token(&self, secret: &str, known: &Known<'_>) -> Result<Asker, Problem> {
        // One sentence for all that can be wrong: what is a token, or was one, is not told.
        let wrong = || nobody("The token is wrong, has ended, or was revoked.");
        let wall = self.wall();
        let token = self.tokens.lock().shown(secret, wall).ok_or_else(wrong)?;
        let role = match token.owner {
            Some(owner) => known.role(owner).ok_or_else(wrong)?.min(token.role),
            None => token.role,
        };
        Ok(Asker {
            name: token.name.clone(),
            role,
            proof: Proof::Token,
            user: token.owner,
            session: None,
            token: Some(token.id.clone()),
            through_node: false,
        })
    }

    fn of_session(&self, secret: &str, known: &Known<'_>, uses: bool) -> Result<Asker, Problem> {
        let key = hash(secret);
        let ended = || nobody("The session has ended.");
        let session = self.sessions.lock().shown(&key, self.now(), uses).ok_or_else(ended)?;
        let allowed = known.role(session.user).zip(known.name(session.user));
        let same = known.password_set(session.user) == Some(session.password_set);
        match allowed.filter(|_| same) {
            Some((role, name)) => {
                let user = Some(session.user);
                Ok(Asker {
                    name,
                    role,
                    proof: Proof::Session,
                    user,
                    session: Some(key),
                    token: None,
                    through_node: false,
                })
            }
            None => {
                self.sessions.lock().end(&key);
                Err(ended())
            }
        }
    }

    /// Lets a user in: who it is from now on, and the secret of its session.
    ///
    /// # Errors
    /// [`Code::TooMany`] after too many wrong ones from `from`; otherwise the same whatever was wrong, unless the password was
    /// right.
    pub(crate) fn log_in(
        &self,
        user: &str,
        password: &str,
        from: IpAddr,
        known: &Known<'_>,
    ) -> Result<(Asker, String), Problem> {
        let now = self.now();
        if let Some(left) = self.guesses.lock().locked_for(from, now) {
            let detail = format!("Too many wrong passwords came from {from}.");
            return Err(Problem::new(Code::TooMany, detail).todo(format!(
                "Wait {} seconds, and make sure of user and password.",
                left.as_secs().max(1)
            )));
        }
        let users = known.users.ok_or_else(|| {
            Problem::new(Code::Unavailable, "The node's users can't be read.")
                .todo("`holdfast status` says why.")
        })?;
        let account = users.account("", user);
        // The same work for a user that is not there.
        let given = NtHash::of_password(password);
        let expected = account.as_ref().map_or(NtHash::new([0; 16]), |account| account.nt_hash.clone());
        let right = given == expected;
        let wrong = || {
            self.guesses.lock().wrong(from, now);
            let todo = "After several wrong passwords the user is locked out for some minutes; `holdfast user list` shows who is.";
            Problem::new(Code::Unauthenticated, "User or password is wrong, or the user may not be used.")
                .todo(todo)
        };
        let account = account.ok_or_else(wrong)?;
        if account.state == AccountState::LockedOut {
            return Err(wrong());
        }
        users.judged(&account, right);
        if !right || account.state != AccountState::Active {
            return Err(wrong());
        }
        let Some(role) = known.role(account.sid) else {
            let detail = format!("User {} may not use the management of the node.", account.name);
            return Err(Problem::new(Code::Forbidden, detail).todo(
                "Members of Administrators may, and of the groups that `holdfast api set --operators` and --viewers name.",
            ));
        };
        let secret = hex(&crate::entropy::entropy::<SECRET_BYTES>()?);
        let key = hash(&secret);
        let password_set = known.password_set(account.sid).unwrap_or_default();
        self.sessions.lock().begin(key, account.sid, password_set, now);
        let user = Some(account.sid);
        let proof = Proof::Session;
        Ok((
            Asker {
                name: account.name,
                role,
                proof,
                user,
                session: Some(key),
                token: None,
                through_node: false,
            },
            secret,
        ))
    }

    /// Ends the session of whoever asks; whether it had one.
    pub(crate) fn log_out(&self, asker: &Asker) -> bool {
        asker.session.is_some_and(|key| self.sessions.lock().end(&key))
    }

    /// Ends sessions whose time is over, and those of users that may not come any more.
    pub(crate) fn sweep(&self, known: &Known<'_>) {
        let now = self.now();
        // A user has several, and its groups take a look at all groups.
        let mut users: BTreeMap<Sid, Option<u64>> = BTreeMap::new();
        self.sessions.lock().sweep(now, |session| {
            let allowed = || known.role(session.user).and_then(|_| known.password_set(session.user));
            *users.entry(session.user).or_insert_with(allowed) == Some(session.password_set)
        });
    }

    /// The users who may not ask for anything any more where users and groups are those of `directory`, and roles those of `config`: their names.
    pub(crate) fn losing(known: &Known<'_>, directory: &Directory, config: &HttpConfig) -> Vec<String> {
        let Some(users) = known.users else { return Vec::new() };
        let before = users.snapshot();
        let loses = |user: &&smb_users::User| {
            role_in(&before, known.config, user.sid).is_some()
                && role_in(directory, config, user.sid).is_none()
        };
        before.users().filter(loses).map(|user| user.name.clone()).collect()
    }

    /// The users whose sessions end where users and groups are those of `directory`, and roles those of `config`: their names, and how
    /// many sessions each has.
    pub(crate) fn ending(
        &self,
        known: &Known<'_>,
        directory: &Directory,
        config: &HttpConfig,
    ) -> Vec<(String, u64)> {
        let counts = self.sessions.lock().of_users(self.now());
        let ending = counts.into_iter().filter_map(|(user, sessions)| {
            // Who may not come already loses nothing by it.
            known.role(user)?;
            role_in(directory, config, user).is_none().then_some((known.name(user)?, sessions))
        });
        ending.collect()
    }

    /// Users that are logged in.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.lock().count()
    }

    /// All tokens, the newest first.
    pub(crate) fn token_list(&self, known: &Known<'_>) -> Vec<control_api::ApiToken> {
        let wall = self.wall();
        self.tokens
            .lock()
            .list(|token| token.counts(wall) && token.owner.is_none_or(|user| known.role(user).is_some()))
    }

    /// Makes a token for `asker`, who answers for it. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// When there are too many, or it cannot be made durable.
    pub(crate) fn token_create(
        &self,
        new: NewToken,
        asker: &Asker,
        known: &Known<'_>,
    ) -> Result<control_api::ApiTokenCreated, Problem> {
        if new.role > asker.role {
            let detail = format!("A {} can't make a token of role {}.", asker.role, new.role);
            return Err(Problem::new(Code::Forbidden, detail));
        }
        if asker.proof == Proof::Token {
            // Revoking the one would leave the other.
            let detail = "A token can't make tokens.";
            return Err(Problem::new(Code::Forbidden, detail)
                .todo("Log in as a user, or make it on the node itself: `holdfast api token create`."));
        }
        let owner = match asker.user {
            // Who has gone meanwhile must not leave a token that nobody answers for.
            Some(user) => {
                Some((user, known.name(user).ok_or_else(|| nobody("The user is not there any more."))?))
            }
            None => None,
        };
        self.tokens.lock().create(new, owner, self.wall())
    }

    /// Revokes a token; whether it was there. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// When that cannot be made durable; it counts nothing all the same until the node starts anew.
    pub(crate) fn token_revoke(&self, id: &str) -> Result<bool, Problem> {
        self.tokens.lock().revoke(id)
    }

    /// A token, by its id.
    pub(crate) fn token(&self, id: &str) -> Option<control_api::ApiToken> {
        self.tokens.lock().list(|_| true).into_iter().find(|token| token.id == id)
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then_some(secret.trim())
}

/// The session that is shown; none when there are two, one of which somebody else may have set.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut found = pairs
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == SESSION_COOKIE)
        .map(|(_, value)| value);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests;
