//! Arguments: bytes of a client, of which nothing is believed.

use smb_protocol::security::sid::{MAX_SUB_AUTHORITIES, Sid};

use super::Order;
use crate::error::Fault;

/// Most elements of an array: lookups take 20,480 at most (MS-LSAT 2.2.8), and nothing takes more.
pub const MAX_ELEMENTS: usize = 20_480;
/// Most UTF-16 units of a string: as many as an RPC_UNICODE_STRING can have.
pub const MAX_STRING_UNITS: usize = 32_767;

/// Arguments that are not what the interface says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadStub;

impl From<BadStub> for Fault {
    fn from(_: BadStub) -> Self {
        Self::BAD_STUB_DATA
    }
}

/// Reads values one after another. Counts are compared with the bytes that are left before anything is made of them.
#[derive(Clone, Debug)]
pub struct NdrIn<'a> {
    bytes: &'a [u8],
    at: usize,
    order: Order,
}

/// The part of an RPC_UNICODE_STRING that is not deferred (MS-DTYP 2.3.10).
#[derive(Clone, Copy, Debug)]
#[must_use = "what it points to has to be read, too"]
pub struct UnicodeHead {
    /// Bytes of the text.
    len: u16,
    present: bool,
}

macro_rules! integers {
    ($($(#[$meta:meta])* $name:ident $t:ty;)*) => {$(
        $(#[$meta])*
        ///
        /// # Errors
        /// When the bytes end.
        pub fn $name(&mut self) -> Result<$t, BadStub> {
            self.align(size_of::<$t>())?;
            let bytes = self.array::<{ size_of::<$t>() }>()?;
            Ok(match self.order {
                Order::Little => <$t>::from_le_bytes(bytes),
                Order::Big => <$t>::from_be_bytes(bytes),
            })
        }
    )*};
}

impl<'a> NdrIn<'a> {
    /// Reads a whole stub.
    #[must_use]
    pub fn new(bytes: &'a [u8], order: Order) -> Self {
        Self { bytes, at: 0, order }
    }

    /// Bytes that have not been read.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Skips to a multiple of `to`.
    ///
    /// # Errors
    /// When the bytes end before.
    pub fn align(&mut self, to: usize) -> Result<(), BadStub> {
        self.at = self.at.checked_next_multiple_of(to).filter(|at| *at <= self.bytes.len()).ok_or(BadStub)?;
        Ok(())
    }

    /// Bytes as they are.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], BadStub> {
        let end = self.at.checked_add(len).ok_or(BadStub)?;
        let found = self.bytes.get(self.at..end).ok_or(BadStub)?;
        self.at = end;
        Ok(found)
    }

    /// The next bytes, as many as asked for, as they are.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BadStub> {
        self.raw(N)?.first_chunk::<N>().copied().ok_or(BadStub)
    }

    integers! {
        /// One byte.
        u8 u8;
        /// Two bytes; enumerations, too (14.2.11).
        u16 u16;
        /// Four bytes.
        u32 u32;
        /// Eight bytes.
        u64 u64;
    }

    /// A unique pointer: whether it points to something.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn pointer(&mut self) -> Result<bool, BadStub> {
        self.u32().map(|referent| referent != 0)
    }

    /// A number of elements, each of at least `least` bytes, which all have to be here.
    ///
    /// # Errors
    /// When there are more than the bytes that are left can hold.
    pub fn count(&mut self, least: usize) -> Result<usize, BadStub> {
        let count = usize::try_from(self.u32()?).map_err(|_| BadStub)?;
        self.fits(count, least)?;
        Ok(count)
    }

    fn fits(&self, count: usize, least: usize) -> Result<(), BadStub> {
        let bytes = count.checked_mul(least.max(1)).ok_or(BadStub)?;
        if bytes > self.left() { Err(BadStub) } else { Ok(()) }
    }

    /// The number before a conformant array, which has to be the one that a field elsewhere says (14.3.3.2).
    ///
    /// # Errors
    /// When it is another one, there are more than [`MAX_ELEMENTS`], or they do not fit.
    pub fn conformance(&mut self, count: usize, least: usize) -> Result<(), BadStub> {
        if count > MAX_ELEMENTS || self.count(least)? != count { Err(BadStub) } else { Ok(()) }
    }

    /// The three numbers before a conformant varying array (14.3.3.4): how many elements follow.
    ///
    /// # Errors
    /// When the part is not inside the array, does not begin at its first element, or does not fit.
    pub fn varying(&mut self, least: usize) -> Result<usize, BadStub> {
        let most = usize::try_from(self.u32()?).map_err(|_| BadStub)?;
        let offset = self.u32()?;
        let count = self.count(least)?;
        if offset != 0 || count > most { Err(BadStub) } else { Ok(count) }
    }

    fn units(&mut self, count: usize) -> Result<Vec<u16>, BadStub> {
        if count > MAX_STRING_UNITS {
            return Err(BadStub);
        }
        let order = self.order;
        let bytes = self.raw(count * 2)?;
        Ok(bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|unit| match order {
                Order::Little => u16::from_le_bytes(*unit),
                Order::Big => u16::from_be_bytes(*unit),
            })
            .collect())
    }

    /// A string of wide characters that ends with a zero (14.3.4.2). What some clients send behind the zero is no part of
    /// it, as it would be none in C.
    ///
    /// # Errors
    /// When there is no zero, or it is too long or not UTF-16.
    pub fn wide(&mut self) -> Result<String, BadStub> {
        let count = self.varying(2)?;
        let mut units = self.units(count)?;
        let end = units.iter().position(|unit| *unit == 0).ok_or(BadStub)?;
        units.truncate(end);
        String::from_utf16(&units).map_err(|_| BadStub)
    }

    /// A unique pointer to such a string, as an argument of its own.
    ///
    /// # Errors
    /// The same as those of [`NdrIn::wide`].
    pub fn wide_pointer(&mut self) -> Result<Option<String>, BadStub> {
        if self.pointer()? { self.wide().map(Some) } else { Ok(None) }
    }

    /// The head of an RPC_UNICODE_STRING.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn unicode_head(&mut self) -> Result<UnicodeHead, BadStub> {
        self.align(4)?;
        let len = self.u16()?;
        self.u16()?;
        Ok(UnicodeHead { len, present: self.pointer()? })
    }

    /// What it points to. Its own length counts; some clients count a terminator in the array's.
    ///
    /// # Errors
    /// When it is shorter than the head says, or is not UTF-16.
    pub fn unicode_body(&mut self, head: UnicodeHead) -> Result<String, BadStub> {
        if !head.present {
            return if head.len == 0 { Ok(String::new()) } else { Err(BadStub) };
        }
        let count = self.varying(2)?;
        let mut units = self.units(count)?;
        let len = usize::from(head.len / 2);
        if !head.len.is_multiple_of(2) || len > count {
            return Err(BadStub);
        }
        units.truncate(len);
        String::from_utf16(&units).map_err(|_| BadStub)
    }

    /// An RPC_UNICODE_STRING whose text follows at once.
    ///
    /// # Errors
    /// The same as those of [`NdrIn::unicode_body`].
    pub fn unicode(&mut self) -> Result<String, BadStub> {
        let head = self.unicode_head()?;
        self.unicode_body(head)
    }

    /// The next RPC_UNICODE_STRINGs, as many as asked for, and then their texts.
    ///
    /// # Errors
    /// The same as those of [`NdrIn::unicode_body`].
    pub fn unicodes(&mut self, count: usize) -> Result<Vec<String>, BadStub> {
        self.fits(count, 8)?;
        let heads = (0..count).map(|_| self.unicode_head()).collect::<Result<Vec<_>, _>>()?;
        heads.into_iter().map(|head| self.unicode_body(head)).collect()
    }

    /// An RPC_SID (MS-DTYP 2.4.2.3): its conformance comes before the structure.
    ///
    /// # Errors
    /// When the numbers of sub-authorities differ, there are more than fifteen, or the revision is not 1.
    pub fn sid(&mut self) -> Result<Sid, BadStub> {
        let conformance = self.u32()?;
        let (revision, count) = (self.u8()?, self.u8()?);
        if revision != 1 || conformance != u32::from(count) {
            return Err(BadStub);
        }
        let [a, b, c, d, e, f] = self.array()?;
        let mut sub = [0; MAX_SUB_AUTHORITIES];
        let places = sub.get_mut(..usize::from(count)).ok_or(BadStub)?;
        for place in places.iter_mut() {
            *place = self.u32()?;
        }
        Sid::new(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), places).ok_or(BadStub)
    }

    /// A conformant array of bytes that a pointer points to.
    ///
    /// # Errors
    /// When its length is not `len`, or it is not all here.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], BadStub> {
        if usize::try_from(self.u32()?) != Ok(len) { Err(BadStub) } else { self.raw(len) }
    }

    /// A context handle: attributes and a UUID (C706 6.1.6, MS-RPCE 2.2.3.4), as the 20 bytes that were sent there. Its
    /// fields are integers, so that a client with another order of bytes has turned them round.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn context_handle(&mut self) -> Result<[u8; 20], BadStub> {
        let attributes = self.u32()?;
        let (a, b, c) = (self.u32()?, self.u16()?, self.u16()?);
        let rest = self.array::<8>()?;
        let mut handle = [0; 20];
        let fields = attributes
            .to_le_bytes()
            .into_iter()
            .chain(a.to_le_bytes())
            .chain(b.to_le_bytes())
            .chain(c.to_le_bytes())
            .chain(rest);
        handle.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        Ok(handle)
    }
}
