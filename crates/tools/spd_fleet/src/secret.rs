//! The secret that agents and coordinators share, and how each proves that it has it: HMAC-SHA-256 over both sides'
//! challenges (challenge and response as in RFC 4279's spirit: the secret itself never travels).

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::error::FleetError;

/// Shortest secret in bytes. Whoever is taken for an agent can try secrets against a proof at leisure, so it must be
/// beyond guessing.
const SHORTEST: usize = 16;
/// Longest secret in bytes.
const LONGEST: usize = 4096;

/// Bytes of a MAC.
pub(crate) const MAC_BYTES: usize = 32;
/// Bytes of a challenge.
pub(crate) const NONCE_BYTES: usize = 32;

/// A MAC.
pub(crate) type Tag = [u8; MAC_BYTES];
/// A challenge: random, used once.
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// A shared secret; wiped when dropped, never shown.
pub struct Secret(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a key is for; both sides derive the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The coordinator's proof.
    CoordinatorProof,
    /// The agent's proof.
    AgentProof,
    /// Messages to the agent.
    ToAgent,
    /// Messages to the coordinator.
    ToCoordinator,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::CoordinatorProof => b"holdfast spd: proof of the coordinator\0",
            Self::AgentProof => b"holdfast spd: proof of the agent\0",
            Self::ToAgent => b"holdfast spd: messages to the agent\0",
            Self::ToCoordinator => b"holdfast spd: messages to the coordinator\0",
        }
    }
}

impl Secret {
    /// A secret from the text of a file or variable; white space around it does not count.
    ///
    /// # Errors
    /// When it is too short to be safe, or absurdly long.
    pub fn new(text: &str) -> Result<Self, FleetError> {
        let text = text.trim();
        if text.len() < SHORTEST || text.len() > LONGEST {
            return Err(FleetError::new(format!(
                "the secret has {} bytes, and must have {SHORTEST} to {LONGEST}: make one with `openssl rand -hex 32`",
                text.len()
            )));
        }
        Ok(Self(Zeroizing::new(text.as_bytes().to_vec())))
    }

    /// The MAC of both challenges for a purpose: a proof, or the key of a direction.
    pub(crate) fn derive(&self, purpose: Purpose, version: u16, agent: &Nonce, coordinator: &Nonce) -> Tag {
        mac(&self.0, &[purpose.label(), &version.to_le_bytes(), agent, coordinator])
    }
}

/// HMAC-SHA-256 over `parts` one after the other.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> Tag {
    keyed(key, parts).map_or([0; MAC_BYTES], |mac| mac.finalize().into_bytes().into())
}

/// Whether `tag` is the MAC of `parts`, compared without a timing side channel.
pub(crate) fn proves(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    keyed(key, parts).is_some_and(|mac| mac.verify_slice(tag).is_ok())
}

/// HMAC takes keys of any length: there is always one.
fn keyed(key: &[u8], parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}

/// Whether two proofs are the same, compared without a timing side channel.
pub(crate) fn same(mine: &Tag, theirs: &[u8]) -> bool {
    // Comparing MACs of both under a fixed key tells nothing of where they differ.
    proves(b"compare", &[mine], &mac(b"compare", &[theirs]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_hmac_sha_256() {
        // RFC 4231, test case 2.
        let tag = mac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(same(&tag, &tag) && !same(&tag, &[0; 32]) && !same(&tag, &tag[..31]));
    }

    #[test]
    fn purposes_and_challenges_have_their_own() {
        let secret = Secret::new("  0123456789abcdef\n").unwrap();
        let proof = secret.derive(Purpose::AgentProof, 1, &[1; 32], &[2; 32]);
        assert_ne!(proof, secret.derive(Purpose::CoordinatorProof, 1, &[1; 32], &[2; 32]));
        assert_ne!(proof, secret.derive(Purpose::AgentProof, 2, &[1; 32], &[2; 32]));
        assert_ne!(proof, secret.derive(Purpose::AgentProof, 1, &[2; 32], &[1; 32]));
        assert_eq!(
            proof,
            Secret::new("0123456789abcdef").unwrap().derive(Purpose::AgentProof, 1, &[1; 32], &[2; 32])
        );
        assert!(Secret::new("short").unwrap_err().0.contains("openssl rand"));
    }
}
