//! The argument of `--mix`: `8K:70,64K:30`, or with percents of writes `8K:70:40,64K:30:0`.

use crate::error::{ProfileError, refuse};
use crate::limits;
use crate::model::{MixPart, Target};
use crate::size::{display_size, parse_size};

/// One part as it was given: without a percent of writes it has the target's.
pub(crate) type Given = (u32, u32, Option<u32>);

/// Reads the argument. Whether its sums make sense is checked by `validate`.
pub(crate) fn parse(text: &str) -> Result<Vec<Given>, ProfileError> {
    let mut parts = Vec::new();
    for part in text.split(',') {
        let fields: Vec<&str> = part.split(':').collect();
        let percent = |text: &str| text.parse::<u32>().ok().filter(|percent| *percent <= 100);
        let block = |text: &str| parse_size(text, 1).ok().and_then(|size| u32::try_from(size).ok());
        let read = match fields.as_slice() {
            [size, share] => block(size).zip(percent(share)).map(|(block, share)| (block, share, None)),
            [size, share, writes] => match (block(size), percent(share), percent(writes)) {
                (Some(block), Some(share), Some(writes)) => Some((block, share, Some(writes))),
                _ => None,
            },
            _ => None,
        };
        match read {
            Some(read) => parts.push(read),
            None => {
                return refuse(format!(
                    "--mix is a list of block:percent or block:percent:percent of writes, as in 8K:70:30,64K:30:0; '{part}' is neither"
                ));
            }
        }
        if parts.len() > limits::MIX {
            return refuse(format!("--mix has at most {} block sizes", limits::MIX));
        }
    }
    Ok(parts)
}

/// Gives a target its mix.
pub(crate) fn apply(parts: &[Given], target: &mut Target) {
    let writes = target.write_percent;
    let mix = parts.iter().map(|(block, percent, own)| MixPart {
        block: *block,
        percent: *percent,
        write_percent: own.unwrap_or(writes),
    });
    target.set_mix(mix.collect());
}

/// What no mix may be.
pub(crate) fn check(target: &Target) -> Result<(), ProfileError> {
    let mix = &target.mix;
    if mix.is_empty() {
        return Ok(());
    }
    if mix.len() > limits::MIX {
        return refuse(format!("--mix has at most {} block sizes", limits::MIX));
    }
    let sum: u64 = mix.iter().map(|part| u64::from(part.percent)).sum();
    if sum != 100 {
        return refuse(format!("--mix: the percents of the block sizes make {sum}, and must make 100"));
    }
    let wrong =
        mix.iter().find(|part| part.block == 0 || part.block > target.block || part.write_percent > 100);
    if let Some(part) = wrong {
        return refuse(format!(
            "--mix: {} with {}% of writes makes no sense",
            display_size(part.block.into()),
            part.write_percent
        ));
    }
    if !mix.iter().any(|part| part.block == target.block) {
        return refuse(format!("--mix: no part has the block size of {}", display_size(target.block.into())));
    }
    for (is_used, option) in [
        (target.interlocked, "-si"),
        (target.parallel, "-p"),
        (matches!(target.throughput, Some(crate::Throughput::BytesPerMillisecond(_))), "-g (use -g<n>i)"),
    ] {
        if is_used {
            return refuse(format!("--mix conflicts with {option}: its operations have different lengths"));
        }
    }
    Ok(())
}
