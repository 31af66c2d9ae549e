//! `-S` and `-h`: flags gather over the whole command line, and conflicts are refused.

use crate::error::{ProfileError, refuse};
use crate::model::{CacheMode, Target};

/// What has been said of caching so far.
#[derive(Debug, Default)]
pub(super) struct Cache {
    mode: Option<CacheMode>,
    write_through: bool,
    memory_mapped: bool,
}

impl Cache {
    /// Takes the letters behind `-S`.
    pub(super) fn take(&mut self, letters: &str) -> Result<(), ProfileError> {
        if letters.is_empty() {
            if self.mode.is_some() || self.memory_mapped {
                return refuse("-S conflicts with earlier specification of cache mode");
            }
            self.mode = Some(CacheMode::DisableOsCache);
        }
        for letter in letters.chars() {
            match letter {
                'b' if self.mode.is_none() => self.mode = Some(CacheMode::Cached),
                'b' => return refuse("-Sb conflicts with earlier specification of cache mode"),
                'h' if self.mode.is_none() && !self.write_through && !self.memory_mapped => {
                    self.mode = Some(CacheMode::DisableOsCache);
                    self.write_through = true;
                }
                'h' => {
                    return refuse(
                        "-Sh conflicts with earlier specification of cache/writethrough/memory mapped",
                    );
                }
                'm' if !self.memory_mapped && self.mode != Some(CacheMode::DisableOsCache) => {
                    self.memory_mapped = true;
                }
                'm' => {
                    return refuse(
                        "-Sm conflicts with earlier specification of memory mapped IO/unbuffered IO",
                    );
                }
                'r' if self.mode.is_none() => self.mode = Some(CacheMode::DisableLocalCache),
                'r' => return refuse("-Sr conflicts with earlier specification of cache mode"),
                'u' if self.mode.is_none() && !self.memory_mapped => {
                    self.mode = Some(CacheMode::DisableOsCache);
                }
                'u' => {
                    return refuse("-Su conflicts with earlier specification of cache mode/memory mapped IO");
                }
                'w' if !self.write_through => self.write_through = true,
                'w' => return refuse("-Sw conflicts with earlier specification of write through"),
                _ => return refuse("unrecognized option provided to -S"),
            }
        }
        Ok(())
    }

    /// `-h`: the same as `-Sh`.
    pub(super) fn compatible(&mut self) -> Result<(), ProfileError> {
        if self.mode.is_some() || self.write_through {
            return refuse("-h conflicts with earlier specification of cache/writethrough");
        }
        self.mode = Some(CacheMode::DisableOsCache);
        self.write_through = true;
        Ok(())
    }

    pub(super) fn apply(self, target: &mut Target) {
        target.cache = self.mode.unwrap_or_default();
        target.write_through = self.write_through;
        target.memory_mapped = self.memory_mapped;
    }
}
