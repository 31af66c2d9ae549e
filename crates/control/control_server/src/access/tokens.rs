//! Tokens: made once, kept as a hash, shown by programs with each request.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use control_api::{ApiToken, ApiTokenCreated, Code, Problem, Role};
use serde::{Deserialize, Serialize};
use smb_protocol::security::Sid;
use subtle::ConstantTimeEq as _;

use super::{Hash, SECRET_BYTES, hash, hex};
use crate::data_dir::replace_file;
use crate::entropy::entropy;

/// Bytes that are read of the file at most; a token takes some 300.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Most tokens.
const MAX_TOKENS: usize = 1024;
/// Longest name.
const MAX_NAME_CHARS: usize = 64;
/// What a token begins with, so that who finds one knows what it is for, and scanners of repositories know it.
const PREFIX: &str = "holdfast_";
/// Version of the file.
const SCHEMA: u32 = 1;

/// A token to be.
#[derive(Clone, Debug)]
pub(crate) struct NewToken {
    /// What it is for.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) role: Role,
    /// When it ends, in seconds since 1970.
    pub(crate) expires: Option<u64>,
}

/// A token as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) role: Role,
    /// SHA-256 of what is shown, in hexadecimal.
    sha256: String,
    created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<u64>,
    /// The user who made it: identity and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner_sid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner_name: Option<String>,
    #[serde(skip)]
    pub(super) owner: Option<Sid>,
    #[serde(skip)]
    last_used: Option<u64>,
}

impl Kept {
    /// Whether its time is not over.
    pub(super) fn counts(&self, wall: u64) -> bool {
        self.expires.is_none_or(|end| wall < end)
    }

    fn told(&self, valid: bool) -> ApiToken {
        ApiToken {
            id: self.id.clone(),
            name: self.name.clone(),
            role: self.role,
            owner: self.owner_name.clone(),
            created: self.created,
            expires: self.expires,
            last_used: self.last_used,
            valid,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    schema: u32,
    tokens: Vec<Kept>,
}

/// All of them, by id.
#[derive(Debug)]
pub(super) struct Tokens {
    path: PathBuf,
    by_id: BTreeMap<String, Kept>,
    /// Revoked ones that the file still has, as it could not be written. They count no more, and can be revoked again.
    unwritten: BTreeMap<String, Kept>,
}

impl Tokens {
    /// Those of this file. One that cannot be read is set aside: nobody gets in by what was in it, and the node runs.
    pub(super) fn open(path: PathBuf) -> Self {
        let by_id = match read(&path) {
            Ok(tokens) => tokens,
            Err(error) => {
                let aside = path.with_extension("damaged");
                let kept = match fs::rename(&path, &aside) {
                    Ok(()) => format!("it is kept as {}", aside.display()),
                    Err(error) => format!("it can't be set aside either: {error}"),
                };
                tracing::error!("tokens of the API: {}: {error}; {kept}. Make new tokens", path.display());
                BTreeMap::new()
            }
        };
        Self { path, by_id, unwritten: BTreeMap::new() }
    }

    /// The token that is this secret, which is used at `wall`; none when there is none, or its time is over.
    pub(super) fn shown(&mut self, secret: &str, wall: u64) -> Option<Kept> {
        let (id, _) = secret.strip_prefix(PREFIX)?.split_once('_')?;
        let given = hex(&hash(secret));
        let token = self.by_id.get_mut(id)?;
        let same: bool = token.sha256.as_bytes().ct_eq(given.as_bytes()).into();
        if !same || !token.counts(wall) {
            return None;
        }
        token.last_used = Some(wall);
        Some(token.clone())
    }

    /// All of them, the newest first; `valid` says which count.
    pub(super) fn list(&self, valid: impl Fn(&Kept) -> bool) -> Vec<ApiToken> {
        let mut list: Vec<ApiToken> = self.by_id.values().map(|token| token.told(valid(token))).collect();
        list.extend(self.unwritten.values().map(|token| token.told(false)));
        list.sort_by_key(|token| std::cmp::Reverse(token.created));
        list
    }

    /// Makes one.
    pub(super) fn create(
        &mut self,
        new: NewToken,
        owner: Option<(Sid, String)>,
        wall: u64,
    ) -> Result<ApiTokenCreated, Problem> {
        let wrong = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
        if new.name.chars().count() > MAX_NAME_CHARS || new.name.chars().any(char::is_control) {
            return wrong(format!(
                "A token's name has at most {MAX_NAME_CHARS} characters, and none of control."
            ));
        }
        if new.expires.is_some_and(|end| end <= wall) {
            return wrong("The token would have ended before it is made.".into());
        }
        // Those that have ended make room.
        let full = self.by_id.len() >= MAX_TOKENS;
        let kept: BTreeMap<String, Kept> = self
            .by_id
            .iter()
            .filter(|(_, token)| !full || token.counts(wall))
            .map(|(id, t)| (id.clone(), t.clone()))
            .collect();
        if kept.len() >= MAX_TOKENS {
            let detail = format!("There are {MAX_TOKENS} tokens already.");
            return Err(Problem::new(Code::NoSpace, detail)
                .todo("Revoke what nobody uses: `holdfast api token list`."));
        }
        let id = hex(&entropy::<8>()?);
        let secret = format!("{PREFIX}{id}_{}", hex(&entropy::<SECRET_BYTES>()?));
        let sha256: Hash = hash(&secret);
        let (owner, owner_name) = owner.unzip();
        let token = Kept {
            id: id.clone(),
            name: new.name,
            role: new.role,
            sha256: hex(&sha256),
            created: wall,
            expires: new.expires,
            owner_sid: owner.map(|sid| sid.to_string()),
            owner_name,
            owner,
            last_used: None,
        };
        let told = token.told(true);
        let mut next = kept;
        next.insert(id, token);
        self.store(next)?;
        Ok(ApiTokenCreated { secret, token: told })
    }

    /// Revokes one; whether it was there.
    pub(super) fn revoke(&mut self, id: &str) -> Result<bool, Problem> {
        // Gone from memory first: it is not let in though the disk is full.
        if let Some(token) = self.by_id.remove(id) {
            self.unwritten.insert(id.to_owned(), token);
        }
        if !self.unwritten.contains_key(id) {
            return Ok(false);
        }
        self.store(self.by_id.clone())?;
        Ok(true)
    }

    fn store(&mut self, next: BTreeMap<String, Kept>) -> Result<(), Problem> {
        let failed = |why: String| {
            Problem::new(Code::Io, format!("{}: {why}.", self.path.display()))
                .todo("Make space or repair the file system of the data directory, and try again.")
        };
        let file = File { schema: SCHEMA, tokens: next.values().cloned().collect() };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.to_string()))?;
        replace_file(&self.path, &text).map_err(|error| failed(error.to_string()))?;
        self.by_id = next;
        self.unwritten.clear();
        Ok(())
    }
}

fn read(path: &PathBuf) -> io::Result<BTreeMap<String, Kept>> {
    let size = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other?.len(),
    };
    if size > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it has {size} bytes")));
    }
    let file: File = serde_json::from_slice(&fs::read(path)?)?;
    if file.schema != SCHEMA {
        return Err(io::Error::other(format!("its schema is {}", file.schema)));
    }
    let mut tokens = BTreeMap::new();
    for mut token in file.tokens {
        if let Some(sid) = &token.owner_sid {
            // Without its user it would count for more than it was made for.
            let sid =
                sid.parse().map_err(|_| io::Error::other(format!("token {}: {sid} is no SID", token.id)))?;
            token.owner = Some(sid);
        }
        tokens.insert(token.id.clone(), token);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, expires: Option<u64>) -> NewToken {
        NewToken { name: name.into(), role: Role::Viewer, expires }
    }

    #[test]
    fn a_token_is_kept_as_a_hash_until_it_ends_or_is_revoked() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("tokens.json");
        let mut tokens = Tokens::open(path.clone());
        let sid = Sid::ADMINISTRATORS;
        let made = tokens.create(new("a", Some(200)), Some((sid, "alice".into())), 100).expect("made");
        let other = tokens.create(new("b", None), None, 100).expect("made");
        let text = fs::read_to_string(&path).expect("there");
        let random =
            |made: &ApiTokenCreated| made.secret.rsplit('_').next().map(str::to_owned).expect("some");
        assert!(!text.contains(&random(&made)) && text.contains(&made.token.id));
        let mut tokens = Tokens::open(path);
        assert_eq!(tokens.shown(&made.secret, 199).expect("counts").owner, Some(sid));
        assert!(tokens.shown(&made.secret, 200).is_none(), "ended");
        assert_eq!(tokens.shown(&other.secret, 1 << 40).expect("for ever").owner, None);
        let swapped = format!("{PREFIX}{}_{}", other.token.id, random(&made));
        for wrong in ["", "holdfast_", "x", &other.secret[1..], &swapped, &format!("{} ", other.secret)] {
            assert!(tokens.shown(wrong, 100).is_none(), "{wrong}");
        }
        assert!(tokens.revoke(&other.token.id).expect("durable"));
        assert!(!tokens.revoke(&other.token.id).expect("nothing to do"));
        assert!(tokens.shown(&other.secret, 100).is_none());
    }

    #[test]
    fn a_damaged_file_lets_nobody_in_and_is_kept() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("tokens.json");
        let sid = r#"{"schema":1,"tokens":[{"id":"1","name":"","role":"viewer","sha256":"","created":0,"owner_sid":"x"}]}"#;
        for content in ["{", r#"{"schema":2,"tokens":[]}"#, sid] {
            fs::write(&path, content).expect("written");
            let mut tokens = Tokens::open(path.clone());
            assert!(tokens.list(|_| true).is_empty());
            assert_eq!(fs::read_to_string(dir.path().join("tokens.damaged")).expect("kept"), content);
            tokens.create(new("", None), None, 0).expect("goes on");
        }
    }

    #[test]
    fn there_are_only_so_many() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut tokens = Tokens::open(dir.path().join("tokens.json"));
        let kept = tokens.create(new("", Some(10)), None, 0).expect("made").token;
        for n in 1..MAX_TOKENS {
            let token = Kept { id: n.to_string(), ..tokens.by_id[&kept.id].clone() };
            tokens.by_id.insert(n.to_string(), token);
        }
        assert_eq!(tokens.create(new("", None), None, 9).expect_err("full").code, Code::NoSpace);
        tokens.create(new("", None), None, 10).expect("those that have ended make room");
        assert_eq!(tokens.by_id.len(), 1);
    }
}
