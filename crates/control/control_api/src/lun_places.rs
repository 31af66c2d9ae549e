//! Whether each number that LUNs are mapped to is one LUN's.

use std::collections::BTreeMap;

use crate::{Code, LunConfig, Problem};

/// Checks that no number of a target is two LUNs for one initiator group, and that no LUN is it twice.
///
/// # Errors
/// Names the LUNs and the number.
pub(crate) fn check_once(luns: &[LunConfig]) -> Result<(), Problem> {
    let mut numbers: BTreeMap<_, &str> = BTreeMap::new();
    for lun in luns {
        for map in &lun.map {
            let Some(other) = numbers.insert((&map.target, map.number, &map.group), &lun.name) else {
                continue;
            };
            let place =
                format!("number {} of target {} for initiator group {}", map.number, map.target, map.group);
            let (detail, todo) = if other == lun.name {
                (format!("lun {other}: it is {place} twice."), "Say it once.")
            } else {
                (
                    format!("luns {other} and {}: both are {place}.", lun.name),
                    "Give one of them another number.",
                )
            };
            return Err(Problem::new(Code::InvalidRequest, detail).todo(todo));
        }
    }
    Ok(())
}
