//! Mode pages: caching and control can be changed and saved; the rest only tells (SPC-4 7.5, SBC-3 6.5).

/// What can be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) write_cache: bool,
    pub(crate) d_sense: bool,
    pub(crate) tas: bool,
    pub(crate) swp: bool,
}

impl Mode {
    pub(crate) fn encode(self) -> Vec<u8> {
        let bits = [self.write_cache, self.d_sense, self.tas, self.swp];
        let bits = bits.iter().enumerate().fold(0, |out, (i, bit)| out | u8::from(*bit) << i);
        [&b"HFMP\x01"[..], &[bits]].concat()
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let [bits @ 0..16] = *row.strip_prefix(b"HFMP\x01")? else { return None };
        let bit = |n: u8| bits >> n & 1 == 1;
        Some(Self { write_cache: bit(0), d_sense: bit(1), tas: bit(2), swp: bit(3) })
    }

    /// A page with its header; `None` if there is none of this code.
    pub(crate) fn page(self, code: u8) -> Option<Vec<u8>> {
        let mut page = match code {
            0x01 => vec![0x81, 10, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            0x08 => {
                let mut page = vec![0; 20];
                page[2] = u8::from(self.write_cache) << 2;
                page
            }
            0x0a => vec![
                0,
                0,
                u8::from(self.d_sense) << 2,
                0x10,
                u8::from(self.swp) << 3,
                u8::from(self.tas) << 6,
                0,
                0,
                0,
                0,
                0,
                0,
            ],
            0x1c => vec![0; 12],
            _ => return None,
        };
        page[0] = 0x80 | code;
        page[1] = (page.len() - 2) as u8;
        Some(page)
    }
}

/// Codes of all pages.
pub(crate) const PAGES: [u8; 4] = [0x01, 0x08, 0x0a, 0x1c];

/// Whose the write cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteCache {
    /// What the administrator said last.
    pub(crate) on: bool,
    /// Whether initiators may say otherwise.
    pub(crate) by_initiators: bool,
}
