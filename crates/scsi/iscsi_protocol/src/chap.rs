//! CHAP, one way and mutual (RFC 1994, RFC 7143 12.1.3).
//!
//! Rules beyond the arithmetic: our challenge must not come back at us (reflection), both directions must not
//! share a secret, responses are compared in constant time, and an unknown user takes as long as a wrong secret.

use std::fmt;

use subtle::ConstantTimeEq as _;

use crate::text::{binary, hex, number};

/// Longest challenge taken from a peer (RFC 7143 12.1.3).
pub const MAX_CHALLENGE_BYTES: usize = 1024;
/// Longest user name we compare.
pub const MAX_USER_BYTES: usize = 255;
/// Our challenge's length: as long as the longest hash.
pub const CHALLENGE_BYTES: usize = 32;

/// A secret; never printed.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Compares in constant time (the lengths may show).
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&other.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// A name with its secret.
#[derive(Clone, Debug)]
pub struct ChapUser {
    /// CHAP_N.
    pub name: String,
    /// The shared secret.
    pub secret: Secret,
}

impl ChapUser {
    /// Whether name and secret are the same: who has proved to be one of them has proved to be the other.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.name == other.name && self.secret.same_as(&other.secret)
    }
}

/// Hash functions by their CHAP_A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// 5; the only one that every initiator has.
    Md5,
    /// 6.
    Sha1,
    /// 7.
    Sha256,
    /// 8.
    Sha3_256,
}

impl Algorithm {
    /// The algorithm with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            5 => Self::Md5,
            6 => Self::Sha1,
            7 => Self::Sha256,
            8 => Self::Sha3_256,
            _ => return None,
        })
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 6,
            Self::Sha256 => 7,
            Self::Sha3_256 => 8,
        }
    }

    /// The response to a challenge.
    #[must_use]
    pub fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        fn hash<H: sha2::Digest>(id: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
            let mut hash = H::new();
            hash.update([id]);
            hash.update(&secret.0);
            hash.update(challenge);
            hash.finalize().to_vec()
        }
        match self {
            Self::Md5 => hash::<md5::Md5>(identifier, secret, challenge),
            Self::Sha1 => hash::<sha1::Sha1>(identifier, secret, challenge),
            Self::Sha256 => hash::<sha2::Sha256>(identifier, secret, challenge),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(identifier, secret, challenge),
        }
    }
}

/// Why authentication failed; for the log, the peer only learns that it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum ChapError {
    /// No common hash function.
    Algorithm,
    /// A key is missing, malformed or out of turn.
    Keys,
    /// The target is not who we take it for.
    Credentials,
    /// No user of that name may log in so.
    User,
    /// A wrong response.
    Secret,
    /// The peer sent our own challenge back, or both directions have the same secret.
    Reflection,
    /// The peer wants us to authenticate, and we have no secret for it.
    NoMutual,
}

impl ChapError {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Algorithm => "no common CHAP algorithm",
            Self::Keys => "CHAP keys missing, malformed or out of turn",
            Self::Credentials => "unknown user or wrong secret",
            Self::User => UNKNOWN_USER,
            Self::Secret => "wrong secret",
            Self::Reflection => "challenge reflected, or both directions share a secret",
            Self::NoMutual => "mutual CHAP asked for but not configured",
        }
    }
}

/// What the log says of a user that may not log in under the name of the initiator.
pub const UNKNOWN_USER: &str = "no such user may log in as this initiator";

#[derive(Debug)]
enum State {
    WaitAlgorithm,
    WaitResponse { algorithm: Algorithm, identifier: u8, challenge: [u8; CHALLENGE_BYTES] },
    Done,
}

/// The target's side of one authentication.
#[derive(Debug)]
pub struct ChapServer {
    users: Vec<ChapUser>,
    mutual: Option<ChapUser>,
    state: State,
    /// Who the peer says it is.
    claimed: Option<String>,
    user: Option<ChapUser>,
}

impl ChapServer {
    /// Accepts `users`; proves itself as `mutual` when asked. Several users may have one name: the secret tells them apart.
    #[must_use]
    pub fn new(users: Vec<ChapUser>, mutual: Option<ChapUser>) -> Self {
        Self { users, mutual, state: State::WaitAlgorithm, claimed: None, user: None }
    }

    /// Who has proved itself.
    #[must_use]
    pub fn user(&self) -> Option<&ChapUser> {
        self.user.as_ref()
    }

    /// Who the peer says it is, of up to [`MAX_USER_BYTES`] bytes.
    #[must_use]
    pub fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }

    /// Whether the peer has proved itself.
    #[must_use]
    pub fn done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Handles the CHAP keys of one request; the pairs are the answer.
    ///
    /// # Errors
    /// Ends the login.
    pub fn step(
        &mut self,
        keys: &[(String, String)],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Vec<(&'static str, String)>, ChapError> {
        let get = |name: &str| keys.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
        match &self.state {
            State::WaitAlgorithm => {
                let list = get("CHAP_A").ok_or(ChapError::Keys)?;
                let algorithm = list
                    .split(',')
                    .find_map(|n| Algorithm::from_number(number(n)?))
                    .ok_or(ChapError::Algorithm)?;
                let (mut challenge, mut identifier) = ([0; CHALLENGE_BYTES], [0]);
                random(&mut challenge);
                random(&mut identifier);
                let [identifier] = identifier;
                let answer = vec![
                    ("CHAP_A", algorithm.number().to_string()),
                    ("CHAP_I", identifier.to_string()),
                    ("CHAP_C", hex(&challenge)),
                ];
                self.state = State::WaitResponse { algorithm, identifier, challenge };
                Ok(answer)
            }
            State::WaitResponse { algorithm, identifier, challenge } => {
                let algorithm = *algorithm;
                let name = get("CHAP_N").filter(|n| n.len() <= MAX_USER_BYTES).ok_or(ChapError::Keys)?;
                self.claimed = Some(name.to_owned());
                let response =
                    get("CHAP_R").and_then(|v| binary(v, MAX_CHALLENGE_BYTES)).ok_or(ChapError::Keys)?;
                let right = |secret: &Secret| {
                    let expected = algorithm.response(*identifier, secret, challenge);
                    bool::from(expected.ct_eq(&response))
                };
                let mut named = self.users.iter().filter(|user| user.name == name).peekable();
                let unknown = named.peek().is_none();
                if unknown {
                    // An unknown name takes as long as a wrong secret.
                    let _ = right(&Secret::new(challenge.to_vec()));
                }
                let error = if unknown { ChapError::User } else { ChapError::Secret };
                let user = named.find(|user| right(&user.secret)).cloned().ok_or(error)?;
                let answer = match (get("CHAP_I"), get("CHAP_C")) {
                    (None, None) => Vec::new(),
                    (Some(id), Some(theirs)) => {
                        let id = number(id).and_then(|v| u8::try_from(v).ok()).ok_or(ChapError::Keys)?;
                        let theirs = binary(theirs, MAX_CHALLENGE_BYTES).ok_or(ChapError::Keys)?;
                        let mutual = self.mutual.as_ref().ok_or(ChapError::NoMutual)?;
                        if theirs == challenge || mutual.secret.same_as(&user.secret) {
                            return Err(ChapError::Reflection);
                        }
                        let proof = algorithm.response(id, &mutual.secret, &theirs);
                        vec![("CHAP_N", mutual.name.clone()), ("CHAP_R", hex(&proof))]
                    }
                    _ => return Err(ChapError::Keys),
                };
                self.user = Some(user);
                self.state = State::Done;
                Ok(answer)
            }
            State::Done => Err(ChapError::Keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, secret: &str) -> ChapUser {
        ChapUser { name: name.into(), secret: Secret::new(secret) }
    }

    fn pairs(list: &[(&str, String)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
    }

    fn run(
        algorithm: u8,
        secret: &str,
        reflect: bool,
        mutual: Option<ChapUser>,
    ) -> Result<Vec<(&'static str, String)>, ChapError> {
        let mut server = ChapServer::new(vec![user("me", "a secret of mine")], mutual);
        let mut random = |out: &mut [u8]| out.fill(0x5a);
        let first = server.step(&pairs(&[("CHAP_A", algorithm.to_string())]), &mut random)?;
        let challenge = binary(&first[2].1, 1024).unwrap();
        let id = first[1].1.parse().unwrap();
        let algorithm = Algorithm::from_number(u64::from(algorithm)).unwrap();
        let proof = algorithm.response(id, &Secret::new(secret), &challenge);
        let mut keys = vec![("CHAP_N", "me".to_owned()), ("CHAP_R", hex(&proof))];
        if reflect {
            keys.extend([("CHAP_I", "1".to_owned()), ("CHAP_C", first[2].1.clone())]);
        } else if server.mutual.is_some() {
            keys.extend([("CHAP_I", "1".to_owned()), ("CHAP_C", "0x010203".to_owned())]);
        }
        server.step(&pairs(&keys), &mut random)
    }

    #[test]
    fn all_algorithms() {
        for algorithm in [5, 6, 7, 8] {
            assert_eq!(run(algorithm, "a secret of mine", false, None), Ok(vec![]));
            assert_eq!(run(algorithm, "another secret", false, None), Err(ChapError::Secret));
        }
        assert_eq!(run(9, "", false, None), Err(ChapError::Algorithm));
    }

    #[test]
    fn users_of_one_name_are_told_apart_by_their_secrets() {
        for secret in ["a secret of mine", "another one's secret"] {
            let users = vec![user("me", "a secret of mine"), user("me", "another one's secret")];
            let mut server = ChapServer::new(users, None);
            let mut random = |out: &mut [u8]| out.fill(0x5a);
            let first = server.step(&pairs(&[("CHAP_A", "7".to_owned())]), &mut random).unwrap();
            let challenge = binary(&first[2].1, 1024).unwrap();
            let id = first[1].1.parse().unwrap();
            let proof = Algorithm::Sha256.response(id, &Secret::new(secret), &challenge);
            let keys = pairs(&[("CHAP_N", "me".to_owned()), ("CHAP_R", hex(&proof))]);
            server.step(&keys, &mut random).unwrap();
            assert!(server.user().unwrap().same_as(&user("me", secret)));
        }
    }

    #[test]
    fn mutual() {
        let answer = run(7, "a secret of mine", false, Some(user("it", "its own secret"))).unwrap();
        let proof = Algorithm::Sha256.response(1, &Secret::new("its own secret"), &[1, 2, 3]);
        assert_eq!(answer, vec![("CHAP_N", "it".to_owned()), ("CHAP_R", hex(&proof))]);
        let it = || Some(user("it", "its own secret"));
        assert_eq!(run(5, "a secret of mine", true, it()), Err(ChapError::Reflection));
        assert_eq!(
            run(5, "a secret of mine", false, Some(user("it", "a secret of mine"))),
            Err(ChapError::Reflection)
        );
        assert_eq!(run(5, "a secret of mine", true, None), Err(ChapError::NoMutual));
    }

    #[test]
    fn secrets_stay_secret() {
        assert!(!format!("{:?}", user("me", "hush")).contains("hush"));
    }
}
