//! Whom a unit could not tell any more that writes they had cached may be lost: the unit that is opened with its data next, on this
//! node or another one, tells them.
//!
//! ```text
//!   first cached write of a port ──► row `l` in the volume names it, before that is answered: the node may end at any moment
//!   rest, closing: all is flushed ──► the row names only those who are to be told; where it cannot be kept, who closes does
//!   opening: those in the row are remembered ──► their next flush fails, once ──► their names go from the row, with the last the row
//! ```
//! The row is changed after its initiator was told: whoever is told twice has lost nothing by it.

use std::collections::BTreeSet;

use crate::reservations::take_name;

const MAGIC: &[u8] = b"HFLW\x01";

/// Initiator ports, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses(pub(crate) BTreeSet<String>);

impl Losses {
    /// The row; none when there is nobody to be told.
    pub(crate) fn row(&self) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let mut row = MAGIC.to_vec();
        // Who has a unit at a time and who is remembered are bounded; the count of both fits.
        row.extend_from_slice(&(self.0.len().min(usize::from(u16::MAX)) as u16).to_be_bytes());
        for port in self.0.iter().take(usize::from(u16::MAX)) {
            row.extend_from_slice(&(port.len() as u16).to_be_bytes());
            row.extend_from_slice(port.as_bytes());
        }
        Some(row)
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let (count, mut rest) = row.strip_prefix(MAGIC)?.split_first_chunk()?;
        let mut ports = BTreeSet::new();
        for _ in 0..u16::from_be_bytes(*count) {
            ports.insert(take_name(&mut rest)?);
        }
        rest.is_empty().then_some(Self(ports))
    }
}

#[cfg(test)]
mod tests {
    use format_images::kept;

    use super::*;

    fn losses() -> Losses {
        Losses(["iqn.1991-05.com.microsoft:host-a,i,0x400001370000", "iqn.ü,i,0x80"].map(Into::into).into())
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let row = losses().row().unwrap();
        let image = kept("scsi_lost_writes", 1, &[("lost", row.clone())]).unwrap();
        assert_eq!(image.bytes("lost"), row);
        assert_eq!(Losses::decode(image.bytes("lost")), Some(losses()));
        assert_eq!(Losses::default().row(), None);
        for cut in 0..row.len() {
            assert_eq!(Losses::decode(&row[..cut]), None, "{cut}");
        }
        assert_eq!(Losses::decode(&[&row[..], &[0]].concat()), None);
        let newer = [b"HFLW\x02", &row[5..]].concat();
        assert_eq!(Losses::decode(&newer), None);
    }
}
