//! Controls of named pipes and of DFS (MS-FSCC 2.3.45 to 2.3.50, MS-DFSC 2.2.2).

use crate::utf16::{Utf16, take_name};
use crate::wire::{DecodeError, Reader, Reserved, Wire};

wire_struct! {
    /// What PIPE_PEEK returns before the data (MS-FSCC 2.3.46).
    pub struct PipePeek [16] {
        /// 3: connected.
        state: u32,
        /// Bytes that can be read.
        data_available: u32,
        /// Messages that can be read.
        messages: u32,
        /// Bytes of the first of them.
        message_length: u32,
    }
}

/// PIPE_WAIT: tell when a pipe can be opened (MS-FSCC 2.3.49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeWait<'a> {
    /// How long to wait, in steps of 100 ns; `None` leaves it to the server.
    pub timeout: Option<u64>,
    /// Which pipe.
    pub name: Utf16<'a>,
}

impl<'a> PipeWait<'a> {
    /// Decodes it from the input of the control.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let timeout = r.u64()?;
        let len = r.u32()? as usize;
        let specified = bool::take(&mut r)?;
        let _: Reserved<1> = Reserved::take(&mut r)?;
        Ok(Self { timeout: specified.then_some(timeout), name: take_name(&mut r, len)? })
    }
}

/// DFS_GET_REFERRALS, also inside DFS_GET_REFERRALS_EX (MS-DFSC 2.2.2, 2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetReferrals<'a> {
    /// The highest version of referrals that the client knows.
    pub max_level: u16,
    /// The path.
    pub path: Utf16<'a>,
}

impl<'a> GetReferrals<'a> {
    /// Decodes it from the input of DFS_GET_REFERRALS.
    ///
    /// # Errors
    /// When the path does not end.
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let max_level = r.u16()?;
        let rest = r.raw(r.remaining())?;
        let (units, _) = rest.as_chunks::<2>();
        let end = units.iter().position(|unit| *unit == [0, 0]).ok_or(DecodeError::Truncated)?;
        Ok(Self { max_level, path: Utf16::new(rest.get(..end * 2).unwrap_or_default())? })
    }

    /// Decodes it from the input of DFS_GET_REFERRALS_EX.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode_ex(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let max_level = r.u16()?;
        let _flags = r.u16()?;
        let len = r.u32()? as usize;
        let mut data = Reader::new(r.raw(len)?);
        let name_len = usize::from(data.u16()?);
        Ok(Self { max_level, path: take_name(&mut data, name_len)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utf16::utf16;

    #[test]
    fn waits_and_referrals() {
        let mut wait = [&7_u64.to_le_bytes()[..], &12_u32.to_le_bytes(), &[1, 0]].concat();
        wait.extend(utf16("srvsvc"));
        let found = PipeWait::decode(&wait).unwrap();
        assert_eq!((found.timeout, found.name.to_string().unwrap().as_str()), (Some(7), "srvsvc"));
        assert!(PipeWait::decode(&wait[..wait.len() - 1]).is_err());

        let mut plain = vec![4, 0];
        plain.extend(utf16("\\s\\dfs\0"));
        let found = GetReferrals::decode(&plain).unwrap();
        assert_eq!((found.max_level, found.path.to_string().unwrap().as_str()), (4, "\\s\\dfs"));
        assert!(GetReferrals::decode(&plain[..plain.len() - 1]).is_err());

        let mut ex = vec![4, 0, 0, 0, 14, 0, 0, 0, 12, 0];
        ex.extend(utf16("\\s\\dfs"));
        assert_eq!(GetReferrals::decode_ex(&ex).unwrap().path, found.path);
        assert!(GetReferrals::decode_ex(&ex[..ex.len() - 1]).is_err());
    }
}
