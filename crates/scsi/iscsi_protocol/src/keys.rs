//! Operational keys: what each means, who may say it when, and how two wishes become one value (RFC 7143 13).

use crate::text::number;

/// MaxRecvDataSegmentLength until a side declares another.
pub const DEFAULT_MAX_RECV: u32 = 8192;
/// Smallest legal segment and burst.
pub const MIN_SEGMENT: u32 = 512;
/// Largest legal segment and burst.
pub const MAX_SEGMENT: u32 = (1 << 24) - 1;

/// What we are ready to agree to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Connections per session.
    pub max_connections: u16,
    /// Whether we insist on R2T before the first data.
    pub initial_r2t: bool,
    /// Whether data may come with the command.
    pub immediate_data: bool,
    /// Longest data segment that we take.
    pub max_recv: u32,
    /// Longest sequence of one R2T or Data-In burst.
    pub max_burst: u32,
    /// Most unsolicited data of a command.
    pub first_burst: u32,
    /// R2Ts of one command in flight.
    pub max_outstanding_r2t: u16,
    /// Seconds before a reconnect.
    pub time2wait: u16,
    /// Seconds tasks are kept for a reconnect.
    pub time2retain: u16,
    /// Whether CRC-32C digests may be chosen.
    pub allow_digests: bool,
    /// Whether `None` is refused for both digests.
    pub require_digests: bool,
}

impl Default for Offer {
    /// What common initiators get the best speed from: large segments and bursts, data without waiting.
    fn default() -> Self {
        Self {
            max_connections: 8,
            initial_r2t: false,
            immediate_data: true,
            max_recv: 256 << 10,
            max_burst: 1 << 20,
            first_burst: 256 << 10,
            max_outstanding_r2t: 4,
            time2wait: 2,
            time2retain: 20,
            allow_digests: true,
            require_digests: false,
        }
    }
}

/// What holds for a session. The defaults are the RFC's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFC's keys")]
pub struct SessionParams {
    pub max_connections: u16,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub max_burst: u32,
    pub first_burst: u32,
    pub max_outstanding_r2t: u16,
    pub time2wait: u16,
    pub time2retain: u16,
}

impl Default for SessionParams {
    fn default() -> Self {
        Self {
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst: 262_144,
            first_burst: 65_536,
            max_outstanding_r2t: 1,
            time2wait: 2,
            time2retain: 20,
        }
    }
}

/// What holds for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionParams {
    /// Whether headers carry a digest, both ways.
    pub header_digest: bool,
    /// Whether data segments carry a digest, both ways.
    pub data_digest: bool,
    /// Longest data segment that the peer takes.
    pub peer_max_recv: u32,
    /// Longest data segment that we declared.
    pub max_recv: u32,
}

impl Default for ConnectionParams {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            peer_max_recv: DEFAULT_MAX_RECV,
            max_recv: DEFAULT_MAX_RECV,
        }
    }
}

/// When a key comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Login of the first connection of a normal session.
    Leading,
    /// Login of a further connection.
    Joining,
    /// Login of a discovery session.
    Discovery,
    /// Full feature phase.
    FullFeature,
}

/// What to answer to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: the key was a declaration.
    Silent,
    /// `key=` this.
    Value(String),
}

/// A declaration with a value that cannot stand; the login fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} has an illegal value")]
pub struct IllegalDeclaration {
    /// The key.
    pub key: &'static str,
}

/// Turns offered keys into parameters.
#[derive(Clone, Debug)]
pub struct Negotiator {
    offer: Offer,
    /// The first burst was agreed on, and no longer burst than it may be.
    first_burst_agreed: bool,
    /// The session's parameters so far.
    pub session: SessionParams,
    /// The connection's parameters so far.
    pub connection: ConnectionParams,
}

const REJECT: &str = "Reject";
const IRRELEVANT: &str = "Irrelevant";

impl Negotiator {
    /// Starts from the RFC's defaults.
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        Self {
            offer,
            first_burst_agreed: false,
            session: SessionParams::default(),
            connection: ConnectionParams::default(),
        }
    }

    /// What we are ready to agree to.
    #[must_use]
    pub fn our_offer(&self) -> &Offer {
        &self.offer
    }

    /// Says that our MaxRecvDataSegmentLength has been declared to the peer.
    pub fn declared(&mut self) {
        self.connection.max_recv = self.offer.max_recv;
    }

    /// Handles one operational key.
    ///
    /// # Errors
    /// When a declaration is illegal.
    pub fn handle(&mut self, key: &str, value: &str, phase: Phase) -> Result<Answer, IllegalDeclaration> {
        let in_login = phase != Phase::FullFeature;
        let answer = match key {
            "MaxRecvDataSegmentLength" => {
                self.connection.peer_max_recv = ranged(value, MIN_SEGMENT, MAX_SEGMENT)
                    .ok_or(IllegalDeclaration { key: "MaxRecvDataSegmentLength" })?;
                return Ok(Answer::Silent);
            }
            "InitiatorAlias" | "InitiatorName" | "TargetName" | "SessionType" => return Ok(Answer::Silent),
            "HeaderDigest" if in_login => self.digest(value, |c| &mut c.header_digest),
            "DataDigest" if in_login => self.digest(value, |c| &mut c.data_digest),
            // Obsolete since RFC 7143: markers are not used, and without them there is no interval.
            "OFMarker" | "IFMarker" | "RDMAExtensions" if in_login => "No".to_owned(),
            "OFMarkInt" | "IFMarkInt" => REJECT.to_owned(),
            "TaskReporting" if phase == Phase::Leading => {
                if value.split(',').any(|v| v == "RFC3720") { "RFC3720" } else { REJECT }.to_owned()
            }
            "iSCSIProtocolLevel" if phase == Phase::Leading => {
                ranged(value, 0, 31).map_or_else(|| REJECT.to_owned(), |level| level.min(1).to_string())
            }
            "MaxConnections"
            | "InitialR2T"
            | "ImmediateData"
            | "MaxBurstLength"
            | "FirstBurstLength"
            | "MaxOutstandingR2T"
            | "DataPDUInOrder"
            | "DataSequenceInOrder"
            | "DefaultTime2Wait"
            | "DefaultTime2Retain"
            | "ErrorRecoveryLevel" => match phase {
                Phase::Leading => self.session_key(key, value),
                Phase::Discovery
                    if matches!(key, "DefaultTime2Wait" | "DefaultTime2Retain" | "ErrorRecoveryLevel") =>
                {
                    self.session_key(key, value)
                }
                Phase::Discovery => IRRELEVANT.to_owned(),
                Phase::Joining | Phase::FullFeature => REJECT.to_owned(),
            },
            // Only a target says these, or only before or after this phase.
            "TargetAlias"
            | "TargetAddress"
            | "TargetPortalGroupTag"
            | "AuthMethod"
            | "SendTargets"
            | "HeaderDigest"
            | "DataDigest"
            | "OFMarker"
            | "IFMarker"
            | "TaskReporting"
            | "iSCSIProtocolLevel" => REJECT.to_owned(),
            _ => "NotUnderstood".to_owned(),
        };
        Ok(Answer::Value(answer))
    }

    fn session_key(&mut self, key: &str, value: &str) -> String {
        let (ours, now) = (&self.offer, &mut self.session);
        let done = match key {
            "MaxConnections" => {
                lower(value, 1, u32::from(ours.max_connections), 65_535, |v| now.max_connections = v as u16)
            }
            "InitialR2T" => boolean(value, |v| v || ours.initial_r2t, |v| now.initial_r2t = v),
            "ImmediateData" => boolean(value, |v| v && ours.immediate_data, |v| now.immediate_data = v),
            // The first burst is part of a burst (RFC 7143 13.14): what was agreed on for it stays true.
            "MaxBurstLength"
                if self.first_burst_agreed
                    && ranged(value, MIN_SEGMENT, MAX_SEGMENT).is_some_and(|v| v < now.first_burst) =>
            {
                None
            }
            "MaxBurstLength" => lower(value, MIN_SEGMENT, ours.max_burst, MAX_SEGMENT, |v| now.max_burst = v),
            "FirstBurstLength" => {
                let most = ours.first_burst.min(now.max_burst);
                let answer = lower(value, MIN_SEGMENT, most, MAX_SEGMENT, |v| now.first_burst = v);
                self.first_burst_agreed |= answer.is_some();
                answer
            }
            "MaxOutstandingR2T" => lower(value, 1, u32::from(ours.max_outstanding_r2t), 65_535, |v| {
                now.max_outstanding_r2t = v as u16
            }),
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(value, |_| true, |_| ()),
            "DefaultTime2Wait" => ranged(value, 0, 3600).map(|v| {
                now.time2wait = (v as u16).max(ours.time2wait);
                now.time2wait.to_string()
            }),
            "DefaultTime2Retain" => {
                lower(value, 0, u32::from(ours.time2retain), 3600, |v| now.time2retain = v as u16)
            }
            "ErrorRecoveryLevel" => lower(value, 0, 0, 2, |_| ()),
            _ => None,
        };
        done.unwrap_or_else(|| REJECT.to_owned())
    }

    /// Settles what depends on several keys: a first burst that nobody spoke of is part of a burst, too.
    pub fn settle(&mut self) {
        self.session.first_burst = self.session.first_burst.min(self.session.max_burst);
    }

    /// Whether the digests agreed on are enough for us.
    #[must_use]
    pub fn digests_suffice(&self) -> bool {
        !self.offer.require_digests || (self.connection.header_digest && self.connection.data_digest)
    }

    fn digest(&mut self, value: &str, field: impl Fn(&mut ConnectionParams) -> &mut bool) -> String {
        for choice in value.split(',') {
            match choice {
                "None" if !self.offer.require_digests => {
                    *field(&mut self.connection) = false;
                    return "None".to_owned();
                }
                "CRC32C" if self.offer.allow_digests => {
                    *field(&mut self.connection) = true;
                    return "CRC32C".to_owned();
                }
                _ => {}
            }
        }
        REJECT.to_owned()
    }
}

fn ranged(value: &str, low: u32, high: u32) -> Option<u32> {
    number(value).and_then(|v| u32::try_from(v).ok()).filter(|v| (low..=high).contains(v))
}

fn lower(value: &str, low: u32, ours: u32, high: u32, set: impl FnOnce(u32)) -> Option<String> {
    let result = ranged(value, low, high)?.min(ours);
    set(result);
    Some(result.to_string())
}

fn boolean(value: &str, function: impl FnOnce(bool) -> bool, set: impl FnOnce(bool)) -> Option<String> {
    let theirs = match value {
        "Yes" => true,
        "No" => false,
        _ => return None,
    };
    let result = function(theirs);
    set(result);
    Some(if result { "Yes" } else { "No" }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(n: &mut Negotiator, key: &str, value: &str, phase: Phase) -> String {
        match n.handle(key, value, phase).unwrap() {
            Answer::Silent => String::new(),
            Answer::Value(v) => v,
        }
    }

    #[test]
    fn every_key_of_the_rfc() {
        let mut n = Negotiator::new(Offer::default());
        for (key, value, answer) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("DataDigest", "None,CRC32C", "None"),
            ("HeaderDigest", "SHA3", "Reject"),
            ("MaxConnections", "100", "8"),
            ("MaxConnections", "0", "Reject"),
            ("InitialR2T", "No", "No"),
            ("InitialR2T", "Yes", "Yes"),
            ("ImmediateData", "Yes", "Yes"),
            ("ImmediateData", "Maybe", "Reject"),
            ("MaxRecvDataSegmentLength", "65536", ""),
            ("MaxBurstLength", "16776192", "1048576"),
            ("FirstBurstLength", "0x2000", "8192"),
            ("DefaultTime2Wait", "0", "2"),
            ("DefaultTime2Retain", "0", "0"),
            ("MaxOutstandingR2T", "1", "1"),
            ("DataPDUInOrder", "No", "Yes"),
            ("DataSequenceInOrder", "No", "Yes"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("IFMarker", "Yes", "No"),
            ("OFMarker", "No", "No"),
            ("IFMarkInt", "2048~65535", "Reject"),
            ("OFMarkInt", "2048", "Reject"),
            ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
            ("TaskReporting", "FastAbort", "Reject"),
            ("iSCSIProtocolLevel", "2", "1"),
            ("X-com.example.key", "1", "NotUnderstood"),
            ("Y#digest", "1", "NotUnderstood"),
            ("TargetPortalGroupTag", "1", "Reject"),
            ("InitiatorAlias", "me", ""),
        ] {
            assert_eq!(say(&mut n, key, value, Phase::Leading), answer, "{key}={value}");
        }
        assert_eq!(say(&mut n, "MaxBurstLength", "512", Phase::Joining), "Reject");
        assert_eq!(say(&mut n, "MaxBurstLength", "512", Phase::Discovery), "Irrelevant");
        assert_eq!(say(&mut n, "HeaderDigest", "None", Phase::FullFeature), "Reject");
        assert!(n.handle("MaxRecvDataSegmentLength", "511", Phase::Leading).is_err());
        assert!(n.connection.header_digest && n.connection.peer_max_recv == 65_536);
    }

    #[test]
    fn first_burst_is_part_of_a_burst() {
        let mut n = Negotiator::new(Offer::default());
        say(&mut n, "MaxBurstLength", "4096", Phase::Leading);
        n.settle();
        assert_eq!(n.session.first_burst, 4096);
        // One that is spoken of: the answer says so, and what was answered holds.
        let mut n = Negotiator::new(Offer::default());
        assert_eq!(say(&mut n, "MaxBurstLength", "4096", Phase::Leading), "4096");
        assert_eq!(say(&mut n, "FirstBurstLength", "65536", Phase::Leading), "4096");
        let mut n = Negotiator::new(Offer::default());
        assert_eq!(say(&mut n, "FirstBurstLength", "65536", Phase::Leading), "65536");
        assert_eq!(say(&mut n, "MaxBurstLength", "4096", Phase::Leading), "Reject");
        n.settle();
        assert_eq!((n.session.first_burst, n.session.max_burst), (65_536, 262_144));
    }
}
