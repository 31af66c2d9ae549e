//! Disks as text: small, the same on every machine, and fit to be looked at.
//!
//! ```text
//!   # lines like this one are for people
//!   disk NAME SIZE                      what follows is of this disk, SIZE bytes of zeros but for
//!   OFFSET BYTES                        32 bytes from OFFSET on, both in hexadecimal, zeros at the end left out
//!   OFFSET BYTES xCOUNT                 COUNT times the same 32 bytes, one after another
//! ```

use std::fmt::Write;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Device, Durability, MemoryDisk};

use crate::Fallible;
use crate::check::read;

/// Bytes of a line.
const LINE: usize = 32;
/// The largest disk that an image may have, in bytes: it is held in memory.
const DISK_MAX: usize = 256 << 20;

/// What lay on one or more disks, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Name and content of each.
    pub disks: Vec<(String, Vec<u8>)>,
}

impl Image {
    /// What devices hold now.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn take(devices: &[(&str, &Device)]) -> Fallible<Self> {
        let mut disks = Vec::new();
        for (name, device) in devices {
            disks.push(((*name).to_owned(), read(device.as_ref(), device.size()).await?));
        }
        Ok(Self { disks })
    }

    /// What is in it under a name; nothing where there is no such name.
    #[must_use]
    pub fn bytes(&self, name: &str) -> &[u8] {
        self.disks.iter().find(|(found, _)| found == name).map_or(&[], |(_, bytes)| bytes)
    }

    /// Disks in memory that hold this, in the same order.
    ///
    /// # Errors
    /// When a disk has no whole blocks.
    pub async fn devices(&self) -> Fallible<Vec<Device>> {
        let mut devices: Vec<Device> = Vec::new();
        for (_, bytes) in &self.disks {
            let disk = MemoryDisk::new(bytes.len(), 4096);
            disk.write(0, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await?;
            devices.push(Arc::new(disk));
        }
        Ok(devices)
    }

    /// The text, under a line that says what it is.
    #[must_use]
    pub fn to_text(&self, title: &str) -> String {
        let mut text = format!("# {title}\n");
        for (name, bytes) in &self.disks {
            let _ = writeln!(text, "disk {name} {}", bytes.len());
            let mut lines = bytes.chunks(LINE).enumerate().peekable();
            while let Some((number, line)) = lines.next() {
                let mut count = 1;
                while lines.next_if(|(_, next)| *next == line).is_some() {
                    count += 1;
                }
                let used = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if used == 0 {
                    continue;
                }
                let _ = write!(text, "{:x} ", number * LINE);
                line[..used].iter().for_each(|byte| {
                    let _ = write!(text, "{byte:02x}");
                });
                text.push_str(&if count > 1 { format!(" x{count}\n") } else { "\n".into() });
            }
        }
        text
    }

    /// The image that a text is.
    ///
    /// # Errors
    /// Which line is not of one, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut disks: Vec<(String, Vec<u8>)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: &str| format!("line {}: {why}", number + 1);
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["#", ..] | [""] => {}
                ["disk", name, size] => {
                    let size: usize = size.parse().map_err(|_| wrong("the size is not a number"))?;
                    if size > DISK_MAX {
                        return Err(wrong("the disk is too large"));
                    }
                    disks.push((name.to_owned(), vec![0; size]));
                }
                [offset, bytes] | [offset, bytes, _] => {
                    let count = match words.get(2) {
                        None => 1,
                        Some(count) => {
                            count.strip_prefix('x').and_then(|count| count.parse().ok()).unwrap_or(0)
                        }
                    };
                    let offset = usize::from_str_radix(offset, 16).map_err(|_| wrong("no offset"))?;
                    let line = hexadecimal(bytes).ok_or_else(|| wrong("bytes in hexadecimal expected"))?;
                    let disk = disks.last_mut().ok_or_else(|| wrong("of which disk?"))?;
                    let room = disk.1.get_mut(offset..).ok_or_else(|| wrong("behind the end of its disk"))?;
                    if count == 0 || count > room.len().div_ceil(LINE) || line.len() > room.len() {
                        return Err(wrong("so many do not fit"));
                    }
                    for place in room.chunks_mut(LINE).take(count) {
                        place.fill(0);
                        let len = line.len().min(place.len());
                        place[..len].copy_from_slice(&line[..len]);
                    }
                }
                _ => return Err(wrong("not a line of an image")),
            }
        }
        if disks.is_empty() { Err("no disk is in it".into()) } else { Ok(Self { disks }) }
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 2 * LINE {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_disks_again() {
        let mut one = vec![0; 1000];
        one[32..640].fill(7);
        one[999] = 1;
        let image = Image { disks: vec![("one".into(), one), ("empty".into(), vec![0; 64])] };
        let text = image.to_text("what it is");
        assert_eq!(Image::parse(&text), Ok(image));
        assert!(text.lines().count() == 5, "{text}");
    }

    #[test]
    fn what_is_no_image_is_refused() {
        for wrong in [
            "",
            "0 00",
            "disk a 64\n40 01",
            "disk a 64\n0 1",
            "disk a 64\n0 01 x3",
            "disk a x",
            "disk a 64\n0 ää",
        ] {
            assert!(Image::parse(wrong).is_err(), "{wrong}");
        }
    }
}
