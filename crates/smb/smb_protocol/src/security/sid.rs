//! Security identifiers (MS-DTYP 2.4.2).

use std::fmt;
use std::str::FromStr;

use crate::wire::{DecodeError, Reader, Wire};

/// Most sub-authorities.
pub const MAX_SUB_AUTHORITIES: usize = 15;

/// A user, group or role. Kept in place: comparing and copying it needs no allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    authority: [u8; 6],
    count: u8,
    sub: [u32; MAX_SUB_AUTHORITIES],
}

/// A text that is no SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SID: expected S-1-…")]
pub struct InvalidSid;

impl Sid {
    /// Everyone.
    pub const EVERYONE: Self = Self::known(1, &[0]);
    /// Who creates a file, in inheritable entries.
    pub const CREATOR_OWNER: Self = Self::known(3, &[0]);
    /// The group of who creates a file, in inheritable entries.
    pub const CREATOR_GROUP: Self = Self::known(3, &[1]);
    /// Who owns a file: entries for it replace the owner's implied rights.
    pub const OWNER_RIGHTS: Self = Self::known(3, &[4]);
    /// Who came over the network.
    pub const NETWORK: Self = Self::known(5, &[2]);
    /// Who did not say who it is.
    pub const ANONYMOUS: Self = Self::known(5, &[7]);
    /// Who did.
    pub const AUTHENTICATED_USERS: Self = Self::known(5, &[11]);
    /// The machine itself.
    pub const SYSTEM: Self = Self::known(5, &[18]);
    /// Administrators.
    pub const ADMINISTRATORS: Self = Self::known(5, &[32, 544]);
    /// Users.
    pub const USERS: Self = Self::known(5, &[32, 545]);
    /// Guests.
    pub const GUESTS: Self = Self::known(5, &[32, 546]);
    /// Backup operators.
    pub const BACKUP_OPERATORS: Self = Self::known(5, &[32, 551]);

    const fn known(authority: u8, values: &[u32]) -> Self {
        let mut sub = [0; MAX_SUB_AUTHORITIES];
        let mut at = 0;
        // const code: neither iterators nor fallible indexing; the lists above are short.
        while at < values.len() {
            sub[at] = values[at];
            at += 1;
        }
        Self { authority: [0, 0, 0, 0, 0, authority], count: values.len() as u8, sub }
    }

    /// A SID of an authority; `None` with more than 15 sub-authorities.
    #[must_use]
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Option<Self> {
        let [0, 0, a @ ..] = authority.to_be_bytes() else { return None };
        let mut sub = [0; MAX_SUB_AUTHORITIES];
        sub.get_mut(..sub_authorities.len())?.copy_from_slice(sub_authorities);
        Some(Self { authority: a, count: sub_authorities.len() as u8, sub })
    }

    /// The authority.
    #[must_use]
    pub fn authority(&self) -> u64 {
        let [a, b, c, d, e, f] = self.authority;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The sub-authorities.
    #[must_use]
    pub fn sub_authorities(&self) -> &[u32] {
        self.sub.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// The last sub-authority: the number of an account in its domain.
    #[must_use]
    pub fn rid(&self) -> Option<u32> {
        self.sub_authorities().last().copied()
    }

    /// The SID without its last sub-authority: the domain of an account.
    #[must_use]
    pub fn domain(&self) -> Option<Self> {
        Self::new(self.authority(), self.sub_authorities().split_last()?.1)
    }

    /// An account of this domain; `None` when it is too long for one.
    #[must_use]
    pub fn child(&self, rid: u32) -> Option<Self> {
        let mut child = *self;
        *child.sub.get_mut(usize::from(self.count))? = rid;
        child.count += 1;
        Some(child)
    }

    /// Bytes on the wire.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        8 + self.sub_authorities().len() * 4
    }

    /// The SID at a reader.
    ///
    /// # Errors
    /// When it is not whole, its revision is not 1, or it has more than 15 sub-authorities.
    pub fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.u8()? != 1 {
            return Err(DecodeError::Invalid("SID revision"));
        }
        let count = reader.u8()?;
        let authority = Wire::take(reader)?;
        let mut sub = [0; MAX_SUB_AUTHORITIES];
        let places = sub.get_mut(..usize::from(count)).ok_or(DecodeError::Invalid("SID"))?;
        for place in places {
            *place = reader.u32()?;
        }
        Ok(Self { authority, count, sub })
    }

    /// The SID at the beginning of `bytes`.
    ///
    /// # Errors
    /// The same as those of [`Sid::take`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut Reader::new(bytes))
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(1);
        out.push(self.count);
        self.authority.put(out);
        self.sub_authorities().iter().for_each(|sub| sub.put(out));
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Authorities of more than 32 bits are written in hexadecimal (MS-DTYP 2.4.2.1).
        match self.authority() {
            small if small >> 32 == 0 => write!(f, "S-1-{small}")?,
            large => write!(f, "S-1-{large:#014X}")?,
        }
        self.sub_authorities().iter().try_for_each(|sub| write!(f, "-{sub}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sid {
    type Err = InvalidSid;

    fn from_str(text: &str) -> Result<Self, InvalidSid> {
        let rest = text.strip_prefix("S-1-").or_else(|| text.strip_prefix("s-1-")).ok_or(InvalidSid)?;
        let mut parts = rest.split('-');
        let first = parts.next().ok_or(InvalidSid)?;
        let authority = match first.strip_prefix("0x").or_else(|| first.strip_prefix("0X")) {
            Some(hex) if hex.len() == 12 => digits(hex, 16)?,
            Some(_) => return Err(InvalidSid),
            None => digits(first, 10)?,
        };
        let mut sid = Self::new(authority, &[]).ok_or(InvalidSid)?;
        for part in parts {
            let sub = u32::try_from(digits(part, 10)?).map_err(|_| InvalidSid)?;
            sid = sid.child(sub).ok_or(InvalidSid)?;
        }
        if sid.count == 0 { Err(InvalidSid) } else { Ok(sid) }
    }
}

/// A number without the sign that the standard parser would take.
fn digits(text: &str, radix: u32) -> Result<u64, InvalidSid> {
    if !text.chars().all(|c| c.is_digit(radix)) {
        return Err(InvalidSid);
    }
    u64::from_str_radix(text, radix).map_err(|_| InvalidSid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes() {
        let sid: Sid = "S-1-5-21-1004336348-1177238915-682003330-512".parse().unwrap();
        let mut bytes = Vec::new();
        sid.put(&mut bytes);
        // MS-DTYP 2.4.2 layout: revision, count, authority big-endian, sub-authorities little-endian.
        assert_eq!(bytes[..12], [1, 5, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0]);
        assert_eq!(bytes.len(), sid.encoded_len());
        assert_eq!(Sid::decode(&bytes), Ok(sid));
        assert_eq!(sid.to_string(), "S-1-5-21-1004336348-1177238915-682003330-512");
        assert_eq!((sid.rid(), sid.domain().unwrap().child(512)), (Some(512), Some(sid)));
        for cut in 0..bytes.len() {
            assert!(Sid::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn odd_ones() {
        assert_eq!(Sid::ADMINISTRATORS.to_string(), "S-1-5-32-544");
        let large: Sid = "S-1-0x123456789ABC-7".parse().unwrap();
        assert_eq!(large.to_string(), "S-1-0x123456789ABC-7");
        for bad in [
            "",
            "S-1-",
            "S-1-5",
            "S-2-5-18",
            "S-1-5-",
            "S-1-5--1",
            "S-1-5-+1",
            "S-1-5-4294967296",
            "S-1-0x1-1",
            "S-1-281474976710656-1",
            "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15-16",
        ] {
            assert_eq!(bad.parse::<Sid>(), Err(InvalidSid), "{bad}");
        }
        assert!(Sid::decode(&[1, 16, 0, 0, 0, 0, 0, 5]).is_err());
        assert!(Sid::decode(&[2, 0, 0, 0, 0, 0, 0, 5]).is_err());
    }
}
