//! Fields of fixed size, and a message that is being built.
//!
//! Offsets inside an SMB 2 message count from the first byte of its header, not of its body (MS-SMB2 2.2). Therefore
//! every decoder of a body takes the whole message, and [`Out`] knows where in a longer buffer its header begins.

pub use byte_codec::{DecodeError, Reader};

/// A value of fixed size on the wire.
pub trait Wire: Sized {
    /// Its bytes.
    const SIZE: usize;

    /// Takes it from a reader.
    ///
    /// # Errors
    /// When the bytes end, or have a value that is not allowed.
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// It, from the beginning of `bytes`; what follows is ignored.
    ///
    /// # Errors
    /// The same as those of [`Wire::take`].
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut Reader::new(bytes))
    }

    /// Its bytes in a vector of their own.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        self.put(&mut out);
        out
    }
}

macro_rules! wire_integer {
    ($($t:ty)*) => {$(
        impl Wire for $t {
            const SIZE: usize = size_of::<$t>();
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                <[u8; size_of::<$t>()]>::take(reader).map(<$t>::from_le_bytes)
            }
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
wire_integer!(u8 u16 u32 u64 i64);

impl<const N: usize> Wire for [u8; N] {
    const SIZE: usize = N;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.raw(N)?.first_chunk::<N>().copied().ok_or(DecodeError::Truncated)
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// A byte that is zero or not (MS-FSCC writes BOOLEAN).
impl Wire for bool {
    const SIZE: usize = 1;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u8().map(|byte| byte != 0)
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

/// Bytes that are written as zero and not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved<const N: usize>;

impl<const N: usize> Wire for Reserved<N> {
    const SIZE: usize = N;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.raw(N).map(|_| Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; N]);
    }
}

/// The StructureSize with which each body begins; another value is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StructureSize<const N: u16>;

impl<const N: u16> Wire for StructureSize<N> {
    const SIZE: usize = 2;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.u16()? == N { Ok(Self) } else { Err(DecodeError::Invalid("structure size")) }
    }
    fn put(&self, out: &mut Vec<u8>) {
        N.put(out);
    }
}

/// The part of a message that an offset and a length on the wire name.
///
/// An empty part may have any offset, as clients write 0 there or where the part would be. `least` is the end of the
/// fixed fields: a part that begins before it would overlap what has another meaning.
///
/// # Errors
/// When it is not wholly inside the message and behind `least`.
pub fn part<'a>(
    message: &'a [u8],
    offset: usize,
    len: usize,
    least: usize,
    field: &'static str,
) -> Result<&'a [u8], DecodeError> {
    if len == 0 {
        return Ok(&[]);
    }
    if offset < least {
        return Err(DecodeError::Invalid(field));
    }
    offset.checked_add(len).and_then(|end| message.get(offset..end)).ok_or(DecodeError::Invalid(field))
}

/// A part was longer than its length field can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the message is longer than its length field can say")]
pub struct Oversized;

/// A message under construction at the end of a buffer.
///
/// A length that does not fit its field is remembered, not written wrongly: who finishes the message asks
/// [`Out::check`] and sends nothing then.
#[derive(Debug)]
pub struct Out<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
    oversized: bool,
}

impl<'a> Out<'a> {
    /// A message whose header begins at the end of `buffer`.
    #[must_use]
    pub fn new(buffer: &'a mut Vec<u8>) -> Self {
        let start = buffer.len();
        Self { buffer, start, oversized: false }
    }

    /// A message whose header has been written at `start` of `buffer`.
    #[must_use]
    pub fn at(buffer: &'a mut Vec<u8>, start: usize) -> Self {
        let start = start.min(buffer.len());
        Self { buffer, start, oversized: false }
    }

    /// Bytes written since the header's first.
    #[must_use]
    pub fn position(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Appends a value.
    pub fn put(&mut self, value: &impl Wire) {
        value.put(self.buffer);
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.put(&value);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.put(&value);
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.put(&value);
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.put(&value);
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Appends a length in two bytes.
    pub fn len16(&mut self, len: usize) {
        let value = u16::try_from(len).unwrap_or_else(|_| {
            self.oversized = true;
            0
        });
        self.u16(value);
    }

    /// Appends a length in four bytes.
    pub fn len32(&mut self, len: usize) {
        let value = u32::try_from(len).unwrap_or_else(|_| {
            self.oversized = true;
            0
        });
        self.u32(value);
    }

    /// Appends zeros until the position is a multiple of `to`.
    pub fn align(&mut self, to: usize) {
        let zeros = self.position().next_multiple_of(to) - self.position();
        self.buffer.resize(self.buffer.len() + zeros, 0);
    }

    /// Appends zeros until the position is at least `to`: a structure size that is odd stands for a buffer of at least
    /// one byte, and some servers insist on it.
    pub fn pad_to(&mut self, to: usize) {
        let zeros = to.saturating_sub(self.position());
        self.buffer.resize(self.buffer.len() + zeros, 0);
    }

    /// Writes over two bytes at a position.
    pub fn set_len16(&mut self, at: usize, value: usize) {
        match u16::try_from(value) {
            Ok(value) => self.overwrite(at, &value.to_le_bytes()),
            Err(_) => self.oversized = true,
        }
    }

    /// Writes over four bytes at a position.
    pub fn set_len32(&mut self, at: usize, value: usize) {
        match u32::try_from(value) {
            Ok(value) => self.overwrite(at, &value.to_le_bytes()),
            Err(_) => self.oversized = true,
        }
    }

    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        let at = self.start + at;
        if let Some(field) = self.buffer.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    /// The buffer, to append a structure that only knows a vector.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer
    }

    /// Whether every length so far fitted its field.
    ///
    /// # Errors
    /// When one did not.
    pub fn check(&self) -> Result<(), Oversized> {
        if self.oversized { Err(Oversized) } else { Ok(()) }
    }
}
