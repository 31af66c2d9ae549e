//! `-a`: `-a0,1,2`, `-ag0,0,1,g1,0`, `-ag`.

use crate::error::{ProfileError, refuse};
use crate::limits;
use crate::model::Affinity;

/// Adds the processors that stand behind `-a`; plain `-a` and `-ag` are the default and add none.
pub(super) fn take(argument: &str, list: &mut Vec<Affinity>) -> Result<(), ProfileError> {
    if argument.is_empty() || argument == "g" {
        return Ok(());
    }
    let mut group = 0;
    let mut position = 2;
    let mut complete = false;
    for part in argument.split(',') {
        let (is_group, digits) = match part.strip_prefix('g') {
            Some(digits) => (true, digits),
            None => (false, part),
        };
        if let Some(bad) = digits.find(|c: char| !c.is_ascii_digit()) {
            return syntax(argument, position + usize::from(is_group) + bad);
        }
        if digits.is_empty() {
            return if position + part.len() < argument.len() + 2 {
                syntax(argument, position + part.len())
            } else {
                refuse("incomplete affinity specification")
            };
        }
        let what = if is_group { "group" } else { "CPU" };
        let Some(number) = digits.parse::<u16>().ok().filter(|number| is_group || *number < 4096) else {
            return refuse(format!("{what} {digits} is out of range"));
        };
        if is_group {
            group = number;
        } else if list.len() >= limits::THREADS as usize {
            return refuse(format!("-a names more than {} processors", limits::THREADS));
        } else {
            list.push(Affinity { group, cpu: number });
        }
        complete = !is_group;
        position += part.len() + 1;
    }
    if complete { Ok(()) } else { refuse("incomplete affinity specification") }
}

fn syntax(argument: &str, position: usize) -> Result<(), ProfileError> {
    refuse(format!(
        "syntax error parsing affinity at highlighted character\n-a{argument}\n{}^",
        " ".repeat(position)
    ))
}
