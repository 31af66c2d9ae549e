//! Logging in, once more, and with further connections.

use shard_runtime::{Entropy as _, SystemEntropy};
use smb_auth::initiator::Answer;
use smb_auth::ntlm::client::{Credentials, Randomness};
use smb_auth::{Initiator, NtHash, SessionKey};
use smb_crypto::{NonceSequence, PreauthHash, Sealer, SessionKeys, Signer};
use smb_protocol::framing::PREFIX_BYTES;
use smb_protocol::message::{Request, Response};
use smb_protocol::negotiate::Capabilities;
use smb_protocol::session::{SessionFlags, SessionSetupFlags, SessionSetupRequest};
use smb_protocol::{Command, FileTime, Header, NtStatus};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::types::{Protection, Received, Session};

impl Connection {
    /// Logs in; from then on messages are signed.
    ///
    /// # Errors
    /// The server's status, and when it proves nothing.
    pub fn login(&mut self, user: &str, password: &str) -> Result<(), ClientError> {
        let (id, flags, key, preauth) = self.authenticate(user, password, 0, SessionSetupFlags::NONE, 0)?;
        self.adopt(id, flags, &key, &preauth, None)
    }

    /// Logs in instead of an earlier session, which was lost.
    ///
    /// # Errors
    /// The same as those of [`Connection::login`].
    pub fn login_again(&mut self, user: &str, password: &str, previous: u64) -> Result<(), ClientError> {
        let (id, flags, key, preauth) =
            self.authenticate(user, password, 0, SessionSetupFlags::NONE, previous)?;
        self.adopt(id, flags, &key, &preauth, None)
    }

    /// Proves the session's user once more.
    ///
    /// # Errors
    /// The same as those of [`Connection::login`].
    pub fn prove_again(&mut self, user: &str, password: &str) -> Result<(), ClientError> {
        let id = self.session.as_ref().map_or(0, |session| session.id);
        self.authenticate(user, password, id, SessionSetupFlags::NONE, 0).map(drop)
    }

    /// Names the session of another connection and signs with its key, as who wants to join it does.
    ///
    /// # Errors
    /// When the other connection has no session.
    pub fn speak_for(&mut self, other: &Self) -> Result<(), ClientError> {
        let session = other.session.as_ref().ok_or(ClientError::Protocol("no session to join"))?;
        let keys = session.keys.clone();
        let signer = Signer::new(other.signing, &keys.signing)?;
        let seal = self.sealers(&keys)?;
        let nonces = NonceSequence::new(1).ok_or(ClientError::Protocol("channel"))?;
        self.session = Some(Session { id: session.id, flags: session.flags, keys, signer, seal, nonces });
        self.protection = Protection::Sign;
        Ok(())
    }

    /// Joins the session of another connection.
    ///
    /// # Errors
    /// The same as those of [`Connection::login`].
    pub fn bind(&mut self, other: &Self, user: &str, password: &str) -> Result<(), ClientError> {
        self.speak_for(other)?;
        let session = self.session.as_ref().ok_or(ClientError::Protocol("no session to join"))?;
        let (id, keys) = (session.id, session.keys.clone());
        let (id, flags, key, preauth) =
            self.authenticate(user, password, id, SessionSetupFlags::BINDING, 0)?;
        self.adopt(id, flags, &key, &preauth, Some(keys))
    }

    #[allow(clippy::type_complexity, reason = "used in three lines above")]
    fn authenticate(
        &mut self,
        user: &str,
        password: &str,
        session: u64,
        flags: SessionSetupFlags,
        previous_session_id: u64,
    ) -> Result<(u64, SessionFlags, SessionKey, PreauthHash), ClientError> {
        let credentials = Credentials {
            user: user.to_owned(),
            domain: String::new(),
            nt_hash: NtHash::of_password(password),
            workstation: "CLIENT".to_owned(),
            target_name: String::new(),
        };
        // The server tells the time.
        let mut random = Randomness { challenge: [0; 8], session_key: [0; 16], now: FileTime::ZERO };
        SystemEntropy.fill(&mut random.challenge);
        SystemEntropy.fill(&mut random.session_key);
        let mut initiator = Initiator::new(credentials, random, None);
        let mut token = initiator.first();
        let mut preauth = self.preauth;
        let mut id = session;
        loop {
            let request = Request::SessionSetup(SessionSetupRequest {
                flags,
                security_mode: 1,
                capabilities: Capabilities::NONE,
                previous_session_id,
                security_buffer: &token,
            });
            let header = Header { session_id: id, ..self.header(Command::SESSION_SETUP, 0) };
            let sent = self.send_as(&[(header, &request)])?;
            preauth.update(sent.get(PREFIX_BYTES..).unwrap_or_default());
            let received = self.receive_unchecked()?;
            let status = received.header.status;
            if status != NtStatus::MORE_PROCESSING_REQUIRED && !status.is_success() {
                return Err(ClientError::Status { command: Command::SESSION_SETUP, status });
            }
            let Response::SessionSetup(answer) = received.response()? else {
                return Err(ClientError::Protocol("SESSION_SETUP was answered with something else"));
            };
            id = received.header.session_id;
            let step = initiator.step(answer.security_buffer)?;
            match (status, step) {
                (NtStatus::SUCCESS, Answer::Done) => {
                    let key = initiator.session_key().ok_or(ClientError::Protocol("no key"))?;
                    self.check_last(&received, &key, &preauth)?;
                    return Ok((id, answer.flags, key, preauth));
                }
                (NtStatus::MORE_PROCESSING_REQUIRED, Answer::Continue(next)) => token = next,
                _ => return Err(ClientError::Protocol("the server ends the login too early or too late")),
            }
            preauth.update(&received.bytes);
        }
    }

    /// The last answer of a login is signed with the new key.
    fn check_last(
        &self,
        received: &Received,
        key: &SessionKey,
        preauth: &PreauthHash,
    ) -> Result<(), ClientError> {
        let keys = SessionKeys::derive(self.dialect, self.cipher, key.expose(), preauth);
        Ok(Signer::new(self.signing, &keys.signing)?.verify(&mut received.bytes.clone())?)
    }

    fn sealers(&self, keys: &SessionKeys) -> Result<Option<(Sealer, Sealer)>, ClientError> {
        let Some(cipher) = self.cipher else { return Ok(None) };
        Ok(Some((Sealer::new(cipher, &keys.client_to_server)?, Sealer::new(cipher, &keys.server_to_client)?)))
    }

    fn adopt(
        &mut self,
        id: u64,
        flags: SessionFlags,
        key: &SessionKey,
        preauth: &PreauthHash,
        joined: Option<SessionKeys>,
    ) -> Result<(), ClientError> {
        let channel = SessionKeys::derive(self.dialect, self.cipher, key.expose(), preauth);
        let signer = Signer::new(self.signing, &channel.signing)?;
        let number = u32::from(joined.is_some());
        let keys = joined.unwrap_or(channel);
        let seal = self.sealers(&keys)?;
        let nonces = NonceSequence::new(number).ok_or(ClientError::Protocol("channel"))?;
        self.session = Some(Session { id, flags, keys, signer, seal, nonces });
        self.protection =
            if flags.contains(SessionFlags::ENCRYPT_DATA) { Protection::Seal } else { Protection::Sign };
        Ok(())
    }
}
