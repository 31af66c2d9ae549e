//! Selectors: which disks, said by what they are.
//!
//! ```text
//!   selector  = clause { "," clause }                        all of them hold
//!   clause    = "all"
//!             | property ( "=" | "!=" ) pattern { "|" pattern }
//!             | "size" ( "=" | "!=" | ">" | ">=" | "<" | "<=" ) size
//!             | "count=" number | "per-enclosure=" number
//!   property  = "media" | "model" | "serial" | "vendor" | "bus" | "enclosure" | "slot" | "disk" | "state"
//!   pattern   = text with "*" for anything and "?" for one character; in double quotes when it has "," or "|"
//! ```
//!
//! Case does not matter. A selector chooses **free** disks unless a `state` clause says otherwise, in the order of
//! their enclosures and slots ([`choose`]). A size with a unit stands for what is sold under it: `4TB` and up to
//! 0.1 % more, since a disk of 4 TB has 4,000,787,030,016 bytes; without a unit it is exact.
//!
//! The same text is used on the command line and in requests. Everything here is a pure function of the text and of
//! the disks' descriptions.

mod choose;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use choose::{choose, natural_order};

use crate::parse_bytes;

/// Longest selector, in bytes: room for a thousand serial numbers.
pub const MAX_SELECTOR_BYTES: usize = 32 << 10;

/// Which disks, as a list of conditions and how many of those that meet them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    clauses: Vec<Clause>,
    take: Take,
}

/// How many of the disks that meet the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    All,
    Count(u32),
    PerEnclosure(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    Is { property: Property, not: bool, patterns: Vec<String> },
    Size { comparison: Comparison, size: Size },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Media,
    Model,
    Serial,
    Vendor,
    Bus,
    Enclosure,
    Slot,
    Disk,
    State,
}

const PROPERTIES: [(&str, Property); 9] = [
    ("media", Property::Media),
    ("model", Property::Model),
    ("serial", Property::Serial),
    ("vendor", Property::Vendor),
    ("bus", Property::Bus),
    ("enclosure", Property::Enclosure),
    ("slot", Property::Slot),
    ("disk", Property::Disk),
    ("state", Property::State),
];

/// What `media` may be compared with: what is made of what, and `nvme` for flash on that bus.
const MEDIA: [&str; 4] = ["hdd", "ssd", "nvme", "unspecified"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    More,
    AtLeast,
    Less,
    AtMost,
}

/// Longer ones first, so that `>=` is not read as `>`.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("!=", Comparison::NotEqual),
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("=", Comparison::Equal),
    (">", Comparison::More),
    ("<", Comparison::Less),
];

/// A size as it was written, and the sizes in bytes that count as this one, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Size {
    text: String,
    low: u64,
    high: u64,
}

impl Size {
    fn parse(text: &str) -> Result<Self, String> {
        let low = parse_bytes(text)?;
        let exact = text.bytes().all(|b| b.is_ascii_digit());
        // Disks have a little more than is printed on them: 0.02 % by the industry's rule (IDEMA LBA1-03).
        let high = if exact { low } else { low.saturating_add(low / 1000) };
        Ok(Self { text: text.into(), low, high })
    }

    fn holds(&self, comparison: Comparison, bytes: u64) -> bool {
        match comparison {
            Comparison::Equal => (self.low..=self.high).contains(&bytes),
            Comparison::NotEqual => !(self.low..=self.high).contains(&bytes),
            Comparison::More => bytes > self.high,
            Comparison::AtLeast => bytes >= self.low,
            Comparison::Less => bytes < self.low,
            Comparison::AtMost => bytes <= self.high,
        }
    }
}

impl Selector {
    /// Whether it says which state the disks are in; those for pools do not, since pools take free disks only.
    #[must_use]
    pub fn names_state(&self) -> bool {
        self.clauses.iter().any(|clause| matches!(clause, Clause::Is { property: Property::State, .. }))
    }

    /// The same with what disks are compared with by id or path changed, as for paths that are relative to somewhere.
    #[must_use]
    pub fn with_disks(mut self, change: impl Fn(String) -> String) -> Self {
        for clause in &mut self.clauses {
            if let Clause::Is { property: Property::Disk, patterns, .. } = clause {
                *patterns = std::mem::take(patterns).into_iter().map(&change).collect();
            }
        }
        self
    }

    /// A selector of disks for a pool, from its text.
    ///
    /// # Errors
    /// When the text makes no sense or names a state.
    pub fn for_pool(text: &str) -> Result<Self, String> {
        let selector: Self = text.parse()?;
        if selector.names_state() {
            return Err(format!(
                "{text:?}: a pool takes free disks only, so `state` is of no use here: leave it out"
            ));
        }
        Ok(selector)
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(format!("the selector is longer than {MAX_SELECTOR_BYTES} bytes"));
        }
        let wrong = |why: String| format!("{text:?} is not a selector: {why}");
        let mut selector = Self { clauses: Vec::new(), take: Take::All };
        for clause in split(text, ',').map_err(wrong)? {
            add_clause(&mut selector, clause.trim()).map_err(wrong)?;
        }
        Ok(selector)
    }
}

fn add_clause(selector: &mut Selector, clause: &str) -> Result<(), String> {
    if clause.eq_ignore_ascii_case("all") {
        return Ok(());
    }
    let end = clause.find(['=', '!', '<', '>']).unwrap_or(clause.len());
    let (name, rest) = clause.split_at(end);
    let name = name.trim().to_ascii_lowercase();
    let compared = COMPARISONS.iter().find_map(|(sign, comparison)| {
        rest.strip_prefix(sign).map(|value| (*sign, *comparison, value.trim()))
    });
    let Some((sign, comparison, value)) = compared else {
        let example = "use `all`, or clauses like media=hdd,size>1T,count=4";
        return Err(if clause.is_empty() {
            format!("there is an empty clause; {example}")
        } else {
            format!("the clause {clause:?} compares nothing; {example}")
        });
    };
    if value.is_empty() {
        return Err(format!("nothing follows {name}{sign}"));
    }
    if name == "size" {
        selector.clauses.push(Clause::Size { comparison, size: Size::parse(value)? });
        return Ok(());
    }
    if let "count" | "per-enclosure" = name.as_str() {
        let number = value.parse().ok().filter(|number| *number > 0 && comparison == Comparison::Equal);
        let number = number.ok_or_else(|| format!("write {name}=N with a number from 1"))?;
        if selector.take != Take::All {
            return Err("how many disks is said twice: use one of count and per-enclosure, once".into());
        }
        selector.take = if name == "count" { Take::Count(number) } else { Take::PerEnclosure(number) };
        return Ok(());
    }
    let Some((_, property)) = PROPERTIES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = PROPERTIES.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "there is no property {name:?}: use {}, size, count or per-enclosure",
            known.join(", ")
        ));
    };
    let not = match comparison {
        Comparison::Equal => false,
        Comparison::NotEqual => true,
        _ => return Err(format!("{name} can be compared with = and != only")),
    };
    let patterns = split(value, '|')?.into_iter().map(unquoted).collect::<Result<Vec<String>, String>>()?;
    let unknown = patterns.iter().find(|pattern| !MEDIA.contains(&pattern.to_ascii_lowercase().as_str()));
    match unknown {
        Some(media) if *property == Property::Media => {
            Err(format!("{media:?} is not a media type: use {}", MEDIA.join(", ")))
        }
        _ => {
            selector.clauses.push(Clause::Is { property: *property, not, patterns });
            Ok(())
        }
    }
}

/// Splits outside double quotes.
fn split(text: &str, at: char) -> Result<Vec<&str>, String> {
    let mut quoted = false;
    let parts = text.split(|c: char| {
        quoted ^= c == '"';
        c == at && !quoted
    });
    let parts = parts.collect();
    if quoted { Err("a double quote is not closed".into()) } else { Ok(parts) }
}

fn unquoted(text: &str) -> Result<String, String> {
    let text = text.trim();
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if inner.is_empty() {
        return Err("there is an empty pattern; `*` stands for anything".into());
    }
    if inner.contains('"') {
        return Err(format!("{text:?}: quotes go around a whole pattern; write ? for one inside"));
    }
    Ok(inner.into())
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut clauses: Vec<String> = self.clauses.iter().map(ToString::to_string).collect();
        match self.take {
            Take::All if clauses.is_empty() => clauses.push("all".into()),
            Take::All => {}
            Take::Count(number) => clauses.push(format!("count={number}")),
            Take::PerEnclosure(number) => clauses.push(format!("per-enclosure={number}")),
        }
        f.write_str(&clauses.join(","))
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { comparison, size } => {
                let sign = COMPARISONS.iter().find(|(_, known)| known == comparison);
                write!(f, "size{}{}", sign.map_or("=", |(sign, _)| sign), size.text)
            }
            Self::Is { property, not, patterns } => {
                let name = PROPERTIES.iter().find(|(_, known)| known == property);
                let quoted = |pattern: &String| {
                    let plain = !pattern.contains([',', '|']) && pattern.trim() == pattern;
                    if plain { pattern.clone() } else { format!("\"{pattern}\"") }
                };
                let patterns: Vec<String> = patterns.iter().map(quoted).collect();
                let sign = if *not { "!=" } else { "=" };
                write!(f, "{}{sign}{}", name.map_or("", |(name, _)| name), patterns.join("|"))
            }
        }
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Selector {
    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": MAX_SELECTOR_BYTES,
            "description": "Which disks, by what they are: clauses separated by commas, all of which hold. \
                `all`; `media`, `model`, `serial`, `vendor`, `bus`, `enclosure`, `slot`, `disk` or `state` with `=` \
                or `!=` and patterns separated by `|` (`*` and `?` are wild); `size` with `=`, `!=`, `>`, `>=`, `<` \
                or `<=`; `count=N` or `per-enclosure=N`. Free disks, unless `state` says otherwise.",
            "examples": ["all", "media=hdd,size>1T", "model=ST95*,count=10", "media=ssd,per-enclosure=4"],
        })
    }
}
