//! Kinds of shares, as configurations say them and as those did that knew none.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// What a share promises its clients, and what they may cache for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShareKind {
    /// Continuously available: what clients have open outlives the server, and each write is durable when it is answered.
    /// Clients cache reads only, so nobody waits for one that is away: for virtual machines.
    #[default]
    ScaleOut,
    /// Continuously available, and clients cache writes and handles, too: who wants a file whose client is away waits until
    /// it comes back or its time is over.
    Clustered,
    /// What clients have open is lost with the server, and writes may wait in memory until the client flushes.
    Plain,
}

impl ShareKind {
    /// Whether what clients have open outlives the server.
    #[must_use]
    pub fn is_continuously_available(self) -> bool {
        self != Self::Plain
    }

    /// Its name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ScaleOut => "scale-out",
            Self::Clustered => "clustered",
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for ShareKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By its name; or by a yes or no to "continuously available", which is all that configurations had before there were kinds
/// (`ca`). What was continuously available then gave clients what scale-out does now.
impl<'de> Deserialize<'de> for ShareKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl Visitor<'_> for Named {
            type Value = ShareKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("scale-out, clustered or plain")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ShareKind, E> {
                let kinds = [ShareKind::ScaleOut, ShareKind::Clustered, ShareKind::Plain];
                let found = kinds.into_iter().find(|kind| kind.name() == name);
                found.ok_or_else(|| E::unknown_variant(name, &["scale-out", "clustered", "plain"]))
            }

            fn visit_bool<E: Error>(self, available: bool) -> Result<ShareKind, E> {
                Ok(if available { ShareKind::ScaleOut } else { ShareKind::Plain })
            }
        }

        deserializer.deserialize_any(Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ShareUpdate};

    fn read(line: &str) -> Result<ShareKind, String> {
        let text = format!("schema = 1\n[[share]]\nname='a'\nvolume='v'\nfolder='/a'\n{line}\n");
        let config: Config = toml::from_str(&text).map_err(|error| error.to_string())?;
        let kind = config.shares.first().expect("a share").kind;
        let again = toml::to_string(&config).expect("text");
        assert!(again.contains(&format!("kind = \"{kind}\"")) && !again.contains("ca ="), "{again}");
        assert_eq!(toml::from_str::<Config>(&again).expect("parses"), config);
        Ok(kind)
    }

    #[test]
    fn a_configuration_that_knows_no_kinds_keeps_its_meaning() {
        assert_eq!(read(""), Ok(ShareKind::ScaleOut));
        assert_eq!(read("ca = true"), Ok(ShareKind::ScaleOut));
        assert_eq!(read("ca = false"), Ok(ShareKind::Plain));
        assert_eq!(read("kind = 'clustered'"), Ok(ShareKind::Clustered));
        assert_eq!(read("kind = 'plain'"), Ok(ShareKind::Plain));
        assert_eq!(read("kind = 'scale-out'"), Ok(ShareKind::ScaleOut));
        for (line, words) in [
            ("kind = 'fast'", "`scale-out`, `clustered`"),
            ("kind = 3", "scale-out, clustered or plain"),
            ("kind = 'plain'\nca = true", "duplicate field `kind`"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn a_change_can_be_said_both_ways() {
        let read = |text: &str| serde_json::from_str::<ShareUpdate>(text).expect("parses").kind;
        assert_eq!(read(r#"{"ca":false}"#), Some(ShareKind::Plain));
        assert_eq!(read(r#"{"kind":"clustered"}"#), Some(ShareKind::Clustered));
        assert_eq!(read("{}"), None);
    }
}
