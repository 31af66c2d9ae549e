//! The table of registrations of an image, as an object beside it (`docs/formats/rbd.md`).

use std::collections::BTreeSet;

/// First line: what it is, and its version.
const FIRST: &str = "holdfast-reservations 1";
/// Bytes of a table at the most, and registrations in it: each opening that was never followed leaves one.
pub(crate) const MAX_BYTES: usize = 64 << 10;
const MAX_REGISTRATIONS: usize = 256;
/// Bytes of a client's address.
const MAX_ADDRESS: usize = 200;

/// A client that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    key: u64,
    address: String,
    holds: bool,
}

/// Who is registered, and who holds the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table(Vec<Registration>);

/// Why there is no table in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table of its reservations {0}")]
pub(crate) struct TableError(&'static str);

/// A condition does not hold; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict;

fn is_address(text: &str) -> bool {
    (1..=MAX_ADDRESS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Table {
    /// Reads a table.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        if bytes.len() > MAX_BYTES {
            return Err(TableError("is too long"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TableError("is no text"))?;
        let mut lines = text.strip_suffix('\n').ok_or(TableError("ends too early"))?.split('\n');
        if lines.next() != Some(FIRST) {
            return Err(TableError("is of a newer release, or something else"));
        }
        let mut table = Self::default();
        for line in lines {
            let registration = Self::line(line).ok_or(TableError("has a line that no release writes"))?;
            let clash = |other: &Registration| {
                other.address == registration.address || other.holds && registration.holds
            };
            if table.0.len() == MAX_REGISTRATIONS || table.0.iter().any(clash) {
                return Err(TableError("has too many lines, or one twice"));
            }
            table.0.push(registration);
        }
        Ok(table)
    }

    fn line(line: &str) -> Option<Registration> {
        let mut words = line.split(' ');
        let holds = match words.next()? {
            "holder" => true,
            "registered" => false,
            _ => return None,
        };
        let (key, address) = (words.next()?, words.next()?);
        let is_key = key.len() == 16 && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let key = u64::from_str_radix(key, 16).ok().filter(|key| is_key && *key != 0)?;
        let whole = words.next().is_none() && is_address(address);
        whole.then(|| Registration { key, address: address.to_owned(), holds })
    }

    /// The bytes of a table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{FIRST}\n");
        for Registration { key, address, holds } in &self.0 {
            let word = if *holds { "holder" } else { "registered" };
            text.push_str(&format!("{word} {key:016x} {address}\n"));
        }
        text.into_bytes()
    }

    /// Registers a client. Earlier openings under the same key end, and what they hold is this one's.
    pub(crate) fn register(&mut self, address: &str, key: u64) -> Result<(), Conflict> {
        if key == 0 || !is_address(address) {
            return Err(Conflict);
        }
        let same = |other: &Registration| other.address == address || other.key == key;
        let holds = self.0.iter().any(|other| same(other) && other.holds);
        self.0.retain(|other| !same(other));
        if self.0.len() == MAX_REGISTRATIONS {
            return Err(Conflict);
        }
        self.0.push(Registration { key, address: address.to_owned(), holds });
        Ok(())
    }

    /// Ends a client's registration, and the reservation if it holds it.
    pub(crate) fn unregister(&mut self, address: &str) {
        self.0.retain(|other| other.address != address);
    }

    /// The keys, each once.
    pub(crate) fn keys(&self) -> BTreeSet<u64> {
        self.0.iter().map(|registration| registration.key).collect()
    }

    /// The key and the address of the holder.
    pub(crate) fn holder(&self) -> Option<(u64, &str)> {
        self.0.iter().find(|registration| registration.holds).map(|held| (held.key, held.address.as_str()))
    }

    /// The addresses under a key.
    pub(crate) fn addresses(&self, key: u64) -> Vec<String> {
        self.0.iter().filter(|other| other.key == key).map(|other| other.address.clone()).collect()
    }

    fn registered(&mut self, address: &str, key: u64) -> Result<&mut Registration, Conflict> {
        self.0.iter_mut().find(|other| other.address == address && other.key == key).ok_or(Conflict)
    }

    /// Makes a registered client the holder, where there is no other.
    pub(crate) fn reserve(&mut self, address: &str, key: u64) -> Result<(), Conflict> {
        if self.holder().is_some_and(|(_, holder)| holder != address) {
            return Err(Conflict);
        }
        self.registered(address, key)?.holds = true;
        Ok(())
    }

    /// Ends the registrations under `victim`; where one of them holds, this client holds afterwards.
    pub(crate) fn preempt(&mut self, address: &str, key: u64, victim: u64) -> Result<(), Conflict> {
        self.registered(address, key)?;
        let is_victim = |other: &Registration| other.key == victim && other.address != address;
        if !self.0.iter().any(is_victim) {
            return Err(Conflict);
        }
        let held = self.0.iter().any(|other| is_victim(other) && other.holds);
        self.0.retain(|other| !is_victim(other));
        let mine = self.registered(address, key)?;
        mine.holds |= held;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_back_and_others_are_refused() {
        let mut table = Table::default();
        assert_eq!(Table::decode(&table.encode()), Ok(table.clone()));
        table.register("10.0.0.1:0/7", 0x1_0001).expect("registers");
        table.register("10.0.0.2:0/8", 0x2_0002).expect("registers");
        table.reserve("10.0.0.2:0/8", 0x2_0002).expect("reserves");
        assert_eq!(Table::decode(&table.encode()), Ok(table.clone()));
        let text = String::from_utf8(table.encode()).expect("text");
        for (from, to) in [
            (" 1\n", " 2\n"),
            ("holder", "owner"),
            ("registered", "holder"),
            ("10.0.0.2:0/8\n", "10.0.0.2:0/8"),
            ("10.0.0.2:0/8", "10.0.0.1:0/7"),
            ("10.0.0.2:0/8", "10.0.0.2:0/8 x"),
            ("0000000000020002", "0000000000000000"),
            ("0000000000020002", "+000000000020002"),
            ("0000000000020002", "20002"),
        ] {
            let other = text.replace(from, to);
            assert_ne!(other, text);
            assert!(Table::decode(other.as_bytes()).is_err(), "{other}");
        }
        assert!(Table::decode(b"").is_err() && Table::decode(&[0xff; 9]).is_err());
        let many: String =
            (0..=MAX_REGISTRATIONS).map(|n| format!("registered {:016x} a{n}\n", n + 1)).collect();
        assert!(Table::decode(format!("{FIRST}\n{many}").as_bytes()).is_err());
    }

    #[test]
    fn a_later_opening_under_one_key_takes_the_place_of_an_earlier_one() {
        let mut table = Table::default();
        table.register("a", 5).expect("registers");
        table.reserve("a", 5).expect("reserves");
        table.register("b", 5).expect("registers");
        assert_eq!(table.holder(), Some((5, "b")));
        assert_eq!(table.addresses(5), ["b"]);
        assert_eq!(table.reserve("a", 5), Err(Conflict));
        table.register("c", 6).expect("registers");
        assert_eq!(table.preempt("c", 5, 5), Err(Conflict));
        assert_eq!(table.preempt("c", 6, 6), Err(Conflict));
        table.preempt("c", 6, 5).expect("preempts");
        assert_eq!((table.holder(), table.keys().len()), (Some((6, "c")), 1));
        table.unregister("c");
        assert_eq!(table, Table::default());
    }
}
