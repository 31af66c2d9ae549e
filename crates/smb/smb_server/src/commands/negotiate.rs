//! NEGOTIATE (MS-SMB2 3.3.5.3, 3.3.5.4).

use std::rc::Rc;

use smb_auth::spnego::{hint, oid};
use smb_crypto::Signer;
use smb_protocol::header::HeaderFlags;
use smb_protocol::negotiate::contexts::{
    Cipher, ContextType, HashAlgorithm, NegotiateContext, SigningAlgorithm, U16List, list,
};
use smb_protocol::negotiate::{
    Capabilities, NegotiateContexts, NegotiateRequest, NegotiateResponse, SecurityMode,
};
use smb_protocol::smb1::Smb1;
use smb_protocol::{Command, Dialect, Guid, Header, NtStatus};

use crate::config::{ServerConfig, Signing};
use crate::connection::answer::{Answer, Body, Hashed, Outcome, Reply};
use crate::connection::state::{Conn, Negotiated};
use crate::limits::{MAX_TRANSFER, MAX_TRANSFER_SMALL};
use crate::session::Terms;

/// Bytes of the salt that makes each negotiation's hash another.
const SALT_BYTES: usize = 32;

/// What a 3.1.1 client offered in contexts, and we chose.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    cipher: Option<Cipher>,
    signing: Option<SigningAlgorithm>,
    offered_cipher: bool,
    offered_signing: bool,
}

/// Runs a NEGOTIATE.
pub(crate) fn run(conn: &Rc<Conn>, message: &[u8]) -> Reply {
    if conn.negotiated().is_some_and(|negotiated| negotiated.terms.dialect != Dialect::WILDCARD) {
        // A second one ends the connection (3.3.5.4).
        conn.fail("NEGOTIATE comes twice");
        return Reply::new(NtStatus::INVALID_PARAMETER, None);
    }
    match negotiate(conn, message) {
        Ok(outcome) => Reply { hash: Hashed::Connection, ..Reply::new(outcome, None) },
        Err(status) => Reply::new(status, None),
    }
}

fn negotiate(conn: &Rc<Conn>, message: &[u8]) -> Result<Outcome, NtStatus> {
    let request = NegotiateRequest::decode(message)?;
    let config = conn.shared.config();
    let dialect = Dialect::ALL
        .into_iter()
        .rev()
        .filter(|dialect| *dialect <= config.max_dialect && *dialect >= config.min_dialect)
        .find(|dialect| request.dialects.contains(dialect.0))
        .ok_or(NtStatus::NOT_SUPPORTED)?;
    let mut chosen = Chosen::default();
    if dialect == Dialect::SMB_3_1_1 {
        chosen = choose(&config, &request.contexts)?;
        let mut hash = conn.preauth.get();
        hash.update(message);
        conn.preauth.set(hash);
    } else if dialect.is_smb3()
        && request.capabilities.contains(Capabilities::ENCRYPTION)
        && config.ciphers.contains(&Cipher::AES_128_CCM)
    {
        // 3.0 and 3.0.2 know no other cipher.
        chosen.cipher = Some(Cipher::AES_128_CCM);
    }
    let terms = Terms {
        dialect,
        client: if dialect == Dialect::SMB_2_0_2 { Guid::ZERO } else { request.client_guid },
        cipher: chosen.cipher,
        signing: chosen.signing.unwrap_or_else(|| Signer::default_algorithm(dialect)),
    };
    let capabilities = capabilities(&config, &request, dialect, chosen.cipher);
    let negotiated = Negotiated {
        terms,
        client_capabilities: request.capabilities,
        client_security: request.security_mode,
        capabilities,
        security: security(&config),
        max_transfer: max_transfer(capabilities),
    };
    let outcome = respond(conn, &negotiated, &chosen)?;
    *conn.negotiated.borrow_mut() = Some(Rc::new(negotiated));
    Ok(outcome)
}

fn security(config: &ServerConfig) -> SecurityMode {
    match config.signing {
        Signing::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
        Signing::Offered => SecurityMode::SIGNING_ENABLED,
    }
}

fn max_transfer(capabilities: Capabilities) -> u32 {
    if capabilities.contains(Capabilities::LARGE_MTU) { MAX_TRANSFER } else { MAX_TRANSFER_SMALL }
}

fn capabilities(
    config: &ServerConfig,
    request: &NegotiateRequest<'_>,
    dialect: Dialect,
    cipher: Option<Cipher>,
) -> Capabilities {
    let mut ours = Capabilities::NONE;
    if dialect != Dialect::SMB_2_0_2 {
        ours |= Capabilities::LEASING | Capabilities::LARGE_MTU;
    }
    if dialect.is_smb3() {
        // What the client does not know it does not hear (3.3.5.4).
        let mut both = Capabilities::PERSISTENT_HANDLES | Capabilities::DIRECTORY_LEASING;
        if config.multichannel {
            both |= Capabilities::MULTI_CHANNEL;
        }
        ours |= both & request.capabilities;
        // In 3.1.1 the context says it.
        if dialect != Dialect::SMB_3_1_1 && cipher.is_some() {
            ours |= Capabilities::ENCRYPTION;
        }
    }
    ours
}

/// The contexts of 3.1.1 (3.3.5.4).
fn choose(config: &ServerConfig, contexts: &NegotiateContexts<'_>) -> Result<Chosen, NtStatus> {
    let mut chosen = Chosen::default();
    let mut seen = Vec::new();
    let mut hash = false;
    for context in contexts.iter() {
        let kind = context.kind();
        let single = matches!(
            kind,
            ContextType::PREAUTH_INTEGRITY
                | ContextType::ENCRYPTION
                | ContextType::COMPRESSION
                | ContextType::SIGNING
        );
        if single && seen.contains(&kind) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        seen.push(kind);
        match context {
            NegotiateContext::Preauth { algorithms, .. } => {
                if !algorithms.contains(HashAlgorithm::SHA_512.0) {
                    return Err(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
                }
                hash = true;
            }
            NegotiateContext::Encryption(ciphers) => {
                chosen.offered_cipher = true;
                chosen.cipher = config.ciphers.iter().copied().find(|ours| ciphers.contains(ours.0));
            }
            NegotiateContext::Signing(algorithms) => {
                chosen.offered_signing = true;
                chosen.signing =
                    config.signing_algorithms.iter().copied().find(|ours| algorithms.contains(ours.0));
            }
            _ => {}
        }
    }
    if hash { Ok(chosen) } else { Err(NtStatus::INVALID_PARAMETER) }
}

fn respond(conn: &Conn, negotiated: &Negotiated, chosen: &Chosen) -> Result<Outcome, NtStatus> {
    let mut salt = [0; SALT_BYTES];
    conn.shared.parts.entropy.fill(&mut salt);
    let hash = HashAlgorithm::SHA_512.0.to_le_bytes();
    let cipher = chosen.cipher.map_or(0, |cipher| cipher.0).to_le_bytes();
    let signing = negotiated.terms.signing.0.to_le_bytes();
    let mut contexts = vec![NegotiateContext::Preauth { algorithms: U16List::new(&hash), salt: &salt }];
    if chosen.offered_cipher {
        contexts.push(NegotiateContext::Encryption(U16List::new(&cipher)));
    }
    if chosen.offered_signing && chosen.signing.is_some() {
        contexts.push(NegotiateContext::Signing(U16List::new(&signing)));
    }
    let (count, bytes) = list(&contexts);
    let token = hint(&[oid::NTLMSSP]);
    let response = NegotiateResponse {
        security_mode: negotiated.security,
        dialect: negotiated.terms.dialect,
        server_guid: conn.shared.parts.guid,
        capabilities: negotiated.capabilities,
        max_transact: negotiated.max_transfer,
        max_read: negotiated.max_transfer,
        max_write: negotiated.max_transfer,
        system_time: conn.shared.now(),
        start_time: conn.shared.start,
        security_buffer: &token,
        contexts: NegotiateContexts::of(count, &bytes)?,
    };
    Ok(Outcome::ok(Body::of(|out| response.encode(out))?))
}

/// SMB 1: a NEGOTIATE that also offers SMB 2 is answered in SMB 2 (3.3.5.3.1); everything else ends the connection and
/// is remembered.
///
/// # Errors
/// Why the connection ends.
pub(crate) fn smb1(conn: &Rc<Conn>, packet: &[u8]) -> Result<(), &'static str> {
    let remote = conn.peer.remote;
    let found = match Smb1::decode(packet) {
        Ok(Smb1::Negotiate(found)) if conn.negotiated().is_none() => found,
        Ok(Smb1::Negotiate(_)) => return Err("SMB 1 after SMB 2"),
        Ok(Smb1::Other(command)) => {
            conn.shared.saw_smb1(remote, format!("command {command:#04x}"));
            return Err("SMB 1");
        }
        Err(_) => {
            conn.shared.saw_smb1(remote, "a malformed message".to_owned());
            return Err("SMB 1");
        }
    };
    let config = conn.shared.config();
    let dialect = if found.smb2_wildcard {
        Dialect::WILDCARD
    } else if found.smb2_002 && config.min_dialect <= Dialect::SMB_2_0_2 {
        Dialect::SMB_2_0_2
    } else {
        let offered: Vec<String> =
            found.dialects().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        conn.shared.saw_smb1(remote, format!("offers only {}", offered.join(", ")));
        return Err("SMB 1");
    };
    if conn.credits.borrow_mut().consume(0, 1).is_err() {
        return Err("SMB 1 after SMB 2");
    }
    let large = if dialect == Dialect::WILDCARD { Capabilities::LARGE_MTU } else { Capabilities::NONE };
    let terms = Terms { dialect, client: Guid::ZERO, cipher: None, signing: SigningAlgorithm::HMAC_SHA256 };
    let negotiated = Negotiated {
        terms,
        client_capabilities: Capabilities::NONE,
        client_security: SecurityMode::NONE,
        capabilities: large,
        security: security(&config),
        max_transfer: max_transfer(large),
    };
    let outcome =
        respond(conn, &negotiated, &Chosen::default()).map_err(|_| "NEGOTIATE cannot be answered")?;
    // Credits are granted one by one until the versions are settled.
    let credits = conn.credits.borrow_mut().grant(1);
    let header = Header {
        command: Command::NEGOTIATE,
        credits,
        flags: HeaderFlags::SERVER_TO_REDIR,
        ..Header::default()
    };
    *conn.negotiated.borrow_mut() = Some(Rc::new(negotiated));
    conn.send(vec![Answer { header, body: outcome.body, sign: None, hash: Hashed::No }], None);
    Ok(())
}
