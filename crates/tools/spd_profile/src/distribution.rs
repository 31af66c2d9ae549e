//! The argument of `-rd`: `pct90/10:5/20`, `abs90/10G:0/10G`.

use crate::error::{ProfileError, refuse};
use crate::limits;
use crate::model::{Distribution, DistributionUnit, Range};
use crate::size::{number_prefix, size_prefix};

/// Reads the argument behind `-rd`. Whether its sums make sense is checked by `validate`.
pub(crate) fn parse(text: &str, block: u32) -> Result<Distribution, ProfileError> {
    let (unit, mut rest) = if let Some(rest) = text.strip_prefix("pct") {
        (DistributionUnit::Percent, rest)
    } else if let Some(rest) = text.strip_prefix("abs") {
        (DistributionUnit::Absolute, rest)
    } else {
        return refuse("Unrecognized random distribution type");
    };
    let mut ranges = Vec::new();
    let (mut io_left, mut target_left) = (100u64, 100u64);
    loop {
        let (io, after) = number_prefix(rest)
            .map_err(|_| ProfileError(format!("Invalid integer IO%: must be > 0 and <= {io_left}")))?;
        if io > 100 {
            return refuse(format!("Invalid IO% {io}: must be >= 0 and <= {io_left}"));
        }
        let Some(after) = after.strip_prefix('/') else {
            return refuse(format!("Expected / separator after {io}"));
        };
        let (span, after) = match unit {
            DistributionUnit::Percent => {
                let (span, after) = number_prefix(after).map_err(|_| {
                    ProfileError(format!("Invalid integer Target%: must be > 0 and <= {target_left}"))
                })?;
                if span == 0 || span > 100 {
                    return refuse(format!("Invalid Target% {span}: must be > 0 and <= {target_left}"));
                }
                (span, after)
            }
            DistributionUnit::Absolute => {
                let (span, after) = size_prefix(after, block)?;
                if span == 0 {
                    return refuse("Invalid zero length target range");
                }
                (span, after)
            }
        };
        ranges.push(Range { io_percent: io as u32, span });
        if ranges.len() > limits::RANGES {
            return refuse(format!("a distribution (-rd) has at most {} ranges", limits::RANGES));
        }
        io_left = io_left.saturating_sub(io);
        target_left = target_left.saturating_sub(span);
        match after.strip_prefix(':') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(complete(unit, ranges)),
            None => return refuse(format!("Unexpected characters in specification '{after}'")),
        }
    }
}

/// Adds the rest: I/O that no part names goes to what is left of the target.
pub(crate) fn complete(unit: DistributionUnit, mut ranges: Vec<Range>) -> Distribution {
    let io: u32 = ranges.iter().fold(0, |sum, range| sum.saturating_add(range.io_percent));
    let covered = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.span));
    let open = ranges.last().is_some_and(|range| range.span == 0);
    if io < 100 && !open {
        match unit {
            DistributionUnit::Percent if covered < 100 => {
                ranges.push(Range { io_percent: 100 - io, span: 100 - covered });
            }
            // Nothing is left: validation says so.
            DistributionUnit::Percent => {}
            DistributionUnit::Absolute => ranges.push(Range { io_percent: 100 - io, span: 0 }),
        }
    }
    Distribution { unit, ranges }
}
