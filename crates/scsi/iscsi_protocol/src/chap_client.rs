//! CHAP from the initiator's side, one way and mutual (RFC 1994, RFC 7143 12.1.3).

use subtle::ConstantTimeEq as _;

use crate::chap::{Algorithm, CHALLENGE_BYTES, ChapError, ChapUser, MAX_CHALLENGE_BYTES};
use crate::text::{binary, hex, number};

/// What we ask for, best first. MD5 is last, and all that many targets have. SHA-256 (7) is left out: tgt takes its number
/// for SHA-1, as it was before the registry, and would find our proof wrong.
const ALGORITHMS: &str = "8,6,5";

#[derive(Debug)]
enum State {
    Begin,
    WaitChallenge,
    WaitProof { algorithm: Algorithm, identifier: u8, challenge: [u8; CHALLENGE_BYTES] },
    Done,
}

/// The initiator's side of one authentication.
#[derive(Debug)]
pub struct ChapClient {
    user: ChapUser,
    target: Option<ChapUser>,
    state: State,
}

impl ChapClient {
    /// Proves itself as `user`; with `target`, that must prove itself in turn.
    #[must_use]
    pub fn new(user: ChapUser, target: Option<ChapUser>) -> Self {
        Self { user, target, state: State::Begin }
    }

    /// Whether all that was asked for is proved.
    #[must_use]
    pub fn done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether our own proof is given: what may still come is the target's.
    #[must_use]
    pub fn said_all(&self) -> bool {
        matches!(self.state, State::WaitProof { .. } | State::Done)
    }

    /// Takes the CHAP keys of a response; returns those of the next request, none when done.
    ///
    /// # Errors
    /// Ends the login.
    pub fn step(
        &mut self,
        keys: &[(String, String)],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Vec<(&'static str, String)>, ChapError> {
        let get = |name: &str| keys.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match &self.state {
            State::Begin => {
                self.state = State::WaitChallenge;
                Ok(vec![("CHAP_A", ALGORITHMS.to_owned())])
            }
            State::WaitChallenge => {
                let chosen = get("CHAP_A").filter(|chosen| ALGORITHMS.split(',').any(|ours| ours == *chosen));
                let algorithm = chosen
                    .and_then(|chosen| Algorithm::from_number(number(chosen)?))
                    .ok_or(ChapError::Algorithm)?;
                let id = get("CHAP_I").and_then(number).and_then(|id| u8::try_from(id).ok());
                let theirs = get("CHAP_C").and_then(|value| binary(value, MAX_CHALLENGE_BYTES));
                let (Some(id), Some(theirs)) = (id, theirs) else { return Err(ChapError::Keys) };
                let proof = algorithm.response(id, &self.user.secret, &theirs);
                let mut answer = vec![("CHAP_N", self.user.name.clone()), ("CHAP_R", hex(&proof))];
                let Some(target) = &self.target else {
                    self.state = State::Done;
                    return Ok(answer);
                };
                // A target with our own secret could have us calculate its proof.
                if target.secret.same_as(&self.user.secret) {
                    return Err(ChapError::Reflection);
                }
                let (mut challenge, mut identifier) = ([0; CHALLENGE_BYTES], [0]);
                random(&mut challenge);
                random(&mut identifier);
                let [identifier] = identifier;
                answer.extend([("CHAP_I", identifier.to_string()), ("CHAP_C", hex(&challenge))]);
                self.state = State::WaitProof { algorithm, identifier, challenge };
                Ok(answer)
            }
            State::WaitProof { algorithm, identifier, challenge } => {
                let target = self.target.as_ref().ok_or(ChapError::Keys)?;
                let name = get("CHAP_N").ok_or(ChapError::Keys)?;
                let proof = get("CHAP_R").and_then(|value| binary(value, MAX_CHALLENGE_BYTES));
                let proof = proof.ok_or(ChapError::Keys)?;
                let expected = algorithm.response(*identifier, &target.secret, challenge);
                let right = bool::from(expected.ct_eq(&proof));
                if !right || name != target.name {
                    return Err(ChapError::Credentials);
                }
                self.state = State::Done;
                Ok(Vec::new())
            }
            State::Done => Err(ChapError::Keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chap::{ChapServer, Secret};

    fn user(name: &str, secret: &str) -> ChapUser {
        ChapUser { name: name.into(), secret: Secret::new(secret) }
    }

    fn owned(list: Vec<(&'static str, String)>) -> Vec<(String, String)> {
        list.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn meet(client: &mut ChapClient, server: &mut ChapServer) -> Result<(), ChapError> {
        let mut random = |out: &mut [u8]| out.fill(0x5a);
        let mut keys = Vec::new();
        while !client.done() {
            let request = owned(client.step(&keys, &mut random)?);
            if request.is_empty() {
                break;
            }
            keys = owned(server.step(&request, &mut |out: &mut [u8]| out.fill(0xa5))?);
        }
        assert!(server.done() && client.done());
        Ok(())
    }

    #[test]
    fn one_way_and_mutual() {
        let it = || user("it", "its own secret");
        let server = |mutual| ChapServer::new(vec![user("me", "my own secret")], mutual);
        let me = || user("me", "my own secret");
        assert_eq!(meet(&mut ChapClient::new(me(), None), &mut server(None)), Ok(()));
        assert_eq!(meet(&mut ChapClient::new(me(), Some(it())), &mut server(Some(it()))), Ok(()));
        let wrong = ChapClient::new(user("me", "guessed"), None);
        assert_eq!(meet(&mut { wrong }, &mut server(None)), Err(ChapError::Secret));
        for false_target in [user("it", "another"), user("other", "its own secret")] {
            let met = meet(&mut ChapClient::new(me(), Some(it())), &mut server(Some(false_target)));
            assert_eq!(met, Err(ChapError::Credentials));
        }
        let twice = Some(user("it", "my own secret"));
        assert_eq!(
            meet(&mut ChapClient::new(me(), twice), &mut server(Some(it()))),
            Err(ChapError::Reflection)
        );
    }

    #[test]
    fn answers_that_cannot_be() {
        let keys = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        for (answer, error) in [
            (keys(&[]), ChapError::Algorithm),
            (keys(&[("CHAP_A", "7"), ("CHAP_I", "1"), ("CHAP_C", "0x01")]), ChapError::Algorithm),
            (keys(&[("CHAP_A", "5"), ("CHAP_I", "256"), ("CHAP_C", "0x01")]), ChapError::Keys),
            (keys(&[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "zz")]), ChapError::Keys),
        ] {
            let mut client = ChapClient::new(user("me", "my own secret"), None);
            let mut random = |out: &mut [u8]| out.fill(1);
            client.step(&[], &mut random).unwrap();
            assert_eq!(client.step(&answer, &mut random).unwrap_err(), error);
        }
    }
}
