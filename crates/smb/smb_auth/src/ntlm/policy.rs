//! What a server accepts of NTLM.

/// Which servers a client may mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetNames {
    /// Any: what clients write depends on how they were told to connect (a name, an alias, an address).
    #[default]
    Any,
    /// If the client says so, one of these hosts, in `cifs/host` or `host/host`, without regard to case. A client that
    /// does not say is let in.
    OneOfIfPresent(Vec<String>),
    /// One of these hosts. What was meant for another server is refused, and so is who does not say.
    OneOf(Vec<String>),
}

impl TargetNames {
    /// Whether a client that means `name` is let in.
    #[must_use]
    pub fn allow(&self, name: Option<&str>) -> bool {
        let one_of = |hosts: &[String], name: &str| {
            let host = name.split_once('/').map_or(name, |(_, host)| host);
            hosts.iter().any(|each| each.eq_ignore_ascii_case(host))
        };
        match (self, name) {
            (Self::Any, _) | (Self::OneOfIfPresent(_), None | Some("")) => true,
            (Self::OneOf(_), None) => false,
            (Self::OneOfIfPresent(hosts) | Self::OneOf(hosts), Some(name)) => one_of(hosts, name),
        }
    }
}

/// What proves that client and server are on one channel: the MD5 of the channel's bindings (MS-NLMP 2.2.2.1). Plain
/// TCP has none; over TLS (QUIC) they are the certificate's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBindings {
    /// The field is not looked at.
    #[default]
    Ignore,
    /// If the client has some, these.
    IfPresent([u8; 16]),
    /// These.
    Require([u8; 16]),
}

impl ChannelBindings {
    /// Whether a client with these bindings is let in; all zeros mean none.
    #[must_use]
    pub fn allow(&self, found: Option<[u8; 16]>) -> bool {
        let found = found.filter(|hash| *hash != [0; 16]);
        match (self, found) {
            (Self::Ignore, _) | (Self::IfPresent(_), None) => true,
            (Self::Require(_), None) => false,
            (Self::IfPresent(ours) | Self::Require(ours), Some(hash)) => *ours == hash,
        }
    }
}

/// What is asked of clients beyond a right password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether a client may stay anonymous; the server then lets it see IPC$ at most.
    pub anonymous: bool,
    /// Whether a message integrity code is required. Windows and Samba always send one, the Linux kernel does not.
    pub require_mic: bool,
    /// Which servers it may mean.
    pub target_names: TargetNames,
    /// On which channel it must be.
    pub channel_bindings: ChannelBindings,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let hosts = vec!["server".to_owned(), "server.example.com".to_owned()];
        let (soft, hard) = (TargetNames::OneOfIfPresent(hosts.clone()), TargetNames::OneOf(hosts));
        for (name, soft_says, hard_says) in [
            (Some("cifs/SERVER"), true, true),
            (Some("cifs/server.example.com"), true, true),
            (Some("server"), true, true),
            (Some("cifs/other"), false, false),
            (Some(""), true, false),
            (None, true, false),
        ] {
            assert!(TargetNames::Any.allow(name));
            assert_eq!((soft.allow(name), hard.allow(name)), (soft_says, hard_says), "{name:?}");
        }
    }

    #[test]
    fn bindings() {
        let (ours, other) = ([1; 16], [2; 16]);
        for (found, soft, hard) in [
            (None, true, false),
            (Some([0; 16]), true, false),
            (Some(ours), true, true),
            (Some(other), false, false),
        ] {
            assert!(ChannelBindings::Ignore.allow(found));
            assert_eq!(ChannelBindings::IfPresent(ours).allow(found), soft);
            assert_eq!(ChannelBindings::Require(ours).allow(found), hard);
        }
    }
}
