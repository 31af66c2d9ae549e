//! What keys and values in the metadata log are made of: numbers little-endian, texts and bytes behind their length, one
//! behind the other.

use byte_codec::{DecodeError, Reader};

/// A part of a key or a value.
pub trait Field<'a>: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it back.
    ///
    /// # Errors
    /// When the bytes are none that [`Field::put`] makes.
    fn take(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// It, as all that `bytes` hold.
    ///
    /// # Errors
    /// As [`Field::take`], and when something is left.
    fn whole(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let field = Self::take(&mut reader)?;
        if reader.remaining() > 0 { Err(DecodeError::Invalid("length")) } else { Ok(field) }
    }
}

impl Field<'_> for () {
    fn put(&self, _out: &mut Vec<u8>) {}

    fn take(_reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Field<'_> for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u8()
    }
}

impl Field<'_> for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u32()
    }
}

impl Field<'_> for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u64()
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let len = reader.u32()?;
        reader.raw(len as usize)
    }
}

impl<'a> Field<'a> for &'a str {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes: &'a [u8] = Field::take(reader)?;
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid("text"))
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok((A::take(reader)?, B::take(reader)?))
    }
}

impl<'a, A: Field<'a>, B: Field<'a>, C: Field<'a>> Field<'a> for (A, B, C) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok((A::take(reader)?, B::take(reader)?, C::take(reader)?))
    }
}

/// Fields that are bytes already.
pub(crate) struct Raw<'a>(pub(crate) &'a [u8]);

impl<'a> Field<'a> for Raw<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.raw(reader.remaining()).map(Self)
    }
}

/// A field behind its length.
pub(crate) fn sized<'a>(out: &mut Vec<u8>, field: &impl Field<'a>) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    field.put(out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}
