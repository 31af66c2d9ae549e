//! What the log says of logins that are refused: who wanted what, from where, and why.
//!
//! Nobody who is refused decides what the log holds: some lines a minute are written for each network, and for all together, whatever
//! they are refused for ([`Throttle`] counts what is left out); names are iSCSI names, which have no characters to control a terminal
//! with, or are escaped and cut; secrets, challenges and answers to them are in none.

use std::net::SocketAddr;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::UNKNOWN_USER;
use iscsi_protocol::login::{LoginMachine, Refusal};
use tcp_service::{Throttle, network_of};

use crate::shared::Shared;

/// Characters of a name that nobody has proved.
const MOST_SHOWN: usize = 64;

/// Who is refused.
#[derive(Default)]
pub(crate) struct Subject<'a> {
    pub(crate) initiator: Option<&'a IscsiName>,
    pub(crate) target: Option<&'a IscsiName>,
    /// The CHAP user that it says it is.
    pub(crate) user: Option<&'a str>,
}

impl<'a> Subject<'a> {
    pub(crate) fn of(machine: &'a LoginMachine) -> Self {
        let target = machine.subject().and_then(|subject| subject.target.as_ref());
        Self { initiator: machine.initiator(), target, user: machine.claimed_user() }
    }
}

impl Shared {
    /// Writes of a login that is refused, unless enough was written of its network.
    pub(crate) fn tell_refused(&self, subject: &Subject<'_>, remote: SocketAddr, refusal: Refusal) {
        if let Some(line) = line(&self.throttle, subject, remote, refusal, |user| self.knows(subject, user)) {
            tracing::info!("{line}");
        }
    }

    /// Whether the target has a user of that name, for other initiators than this one.
    fn knows(&self, subject: &Subject<'_>, user: &str) -> bool {
        let targets = self.targets.read();
        let target = subject.target.and_then(|name| targets.get(name));
        target.is_some_and(|target| target.config.read().auth.has_user(user))
    }
}

fn line(
    throttle: &Throttle,
    subject: &Subject<'_>,
    remote: SocketAddr,
    refusal: Refusal,
    knows: impl Fn(&str) -> bool,
) -> Option<String> {
    if !throttle.admits("iSCSI login refused", network_of(remote.ip())) {
        return None;
    }
    let name =
        |name: Option<&IscsiName>| name.map_or("-".to_owned(), |name| shown(name.as_str(), usize::MAX));
    let why = match subject.user {
        Some(user) if refusal.why == UNKNOWN_USER && knows(user) => {
            "the user may not log in under the name of this initiator"
        }
        _ => refusal.why,
    };
    Some(format!(
        "iSCSI login refused: {why} (target {}, initiator {}, user {}, address {remote}, status {:04x}h)",
        name(subject.target),
        name(subject.initiator),
        subject.user.map_or("-".to_owned(), |user| format!("\"{}\"", shown(user, MOST_SHOWN))),
        refusal.status.0,
    ))
}

/// Text of a stranger's: what is not printable is escaped, and what is too long is cut.
fn shown(text: &str, most: usize) -> String {
    let mut out: String = text.chars().take(most).flat_map(char::escape_debug).collect();
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use iscsi_protocol::login::LoginStatus;

    use super::*;

    const SECRET: Refusal = LoginStatus::AUTHENTICATION_FAILURE.because("wrong secret");
    const UNKNOWN: Refusal = LoginStatus::AUTHENTICATION_FAILURE.because(UNKNOWN_USER);

    fn told(throttle: &Throttle, user: &str, remote: &str, refusal: Refusal) -> Option<String> {
        let name = |name: &str| IscsiName::parse(name).expect("name");
        let (initiator, target) =
            (name("iqn.2026-01.org.example:host"), name("iqn.2026-01.org.example:disk"));
        let subject = Subject { initiator: Some(&initiator), target: Some(&target), user: Some(user) };
        line(throttle, &subject, remote.parse().expect("address"), refusal, |user| user == "other's")
    }

    #[test]
    fn a_line_says_who_wanted_what_from_where_and_why() {
        let throttle = Throttle::default();
        assert_eq!(
            told(&throttle, "alice", "192.0.2.7:4000", SECRET).as_deref(),
            Some(
                "iSCSI login refused: wrong secret (target iqn.2026-01.org.example:disk, initiator \
                 iqn.2026-01.org.example:host, user \"alice\", address 192.0.2.7:4000, status 0201h)"
            )
        );
        let bound = told(&throttle, "other's", "192.0.2.7:4000", UNKNOWN).expect("a line");
        assert!(bound.contains("may not log in under the name of this initiator"), "{bound}");
        let unknown = told(&throttle, "nobody", "192.0.2.7:4000", UNKNOWN).expect("a line");
        assert!(unknown.contains("no such user"), "{unknown}");
    }

    #[test]
    fn nobody_writes_lines_of_its_own_or_controls_a_terminal() {
        let evil = "root\n2026-11-27 INFO all is well\r\x1b[2J\u{202e}\u{9b}31m\"";
        let line = told(&Throttle::default(), evil, "192.0.2.7:4000", SECRET).expect("a line");
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        let long = told(&Throttle::default(), &"x".repeat(250), "192.0.2.7:4000", SECRET).expect("a line");
        assert!(!long.contains(&"x".repeat(MOST_SHOWN + 1)) && long.contains('…'), "{long}");
    }

    #[test]
    fn whatever_a_network_is_refused_for_counts_together() {
        let throttle = Throttle::default();
        let reasons = [SECRET, UNKNOWN, LoginStatus::NOT_FOUND.because("masked")];
        let lines = (0..300_usize).filter(|n| {
            let remote = format!("[2001:db8::{n:x}]:4000");
            told(&throttle, &n.to_string(), &remote, reasons[n % 3]).is_some()
        });
        assert_eq!(lines.count(), 10, "the addresses of one network, and all reasons");
        assert!(told(&throttle, "alice", "[2001:db8:0:1::1]:4000", SECRET).is_some(), "another network");
    }
}
