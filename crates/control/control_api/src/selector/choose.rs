//! The choice itself: disks in, disks or a refusal out.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::{Clause, Property, Selector, Take};
use crate::{Code, Disk, DiskState, MediaType, Problem};

/// The disks that `selectors` choose of `disks`, one selector after the other; a disk is chosen once, and those whose
/// ids are in `taken` never. Within a selector the order is by enclosure, slot and id, numbers in them by value, and
/// disks that do not say come last: the order of `disks` does not matter.
///
/// # Errors
/// [`Code::NotEnoughDisks`] when a selector finds no disk, fewer than it wants, or not one that it names by serial
/// number or id.
pub fn choose(selectors: &[Selector], disks: &[Disk], taken: &[String]) -> Result<Vec<Disk>, Problem> {
    let mut left: Vec<&Disk> = disks.iter().filter(|disk| !taken.contains(&disk.id)).collect();
    left.sort_by(|a, b| order(a, b));
    let mut chosen: Vec<Disk> = Vec::new();
    for selector in selectors {
        let found = selector.pick(&left, disks)?;
        left.retain(|disk| !found.iter().any(|other| other.id == disk.id));
        chosen.extend(found.into_iter().cloned());
    }
    Ok(chosen)
}

fn order(a: &Disk, b: &Disk) -> Ordering {
    let place = |a: &Option<String>, b: &Option<String>| match (a, b) {
        (Some(a), Some(b)) => natural_order(a, b),
        // Those without come last.
        _ => b.is_some().cmp(&a.is_some()),
    };
    place(&a.enclosure, &b.enclosure)
        .then_with(|| place(&a.slot, &b.slot))
        .then_with(|| natural_order(&a.id, &b.id))
}

/// Compares texts as people do: runs of digits by their value, so that slot 2 comes before slot 10.
#[must_use]
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        let here = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (one, two) = (number(&mut left), number(&mut right));
            one.len().cmp(&two.len()).then_with(|| one.cmp(two))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            x.cmp(y)
        };
        if here.is_ne() {
            return here;
        }
    }
    // Equal but for leading zeros: the bytes decide, so that only equal texts are equal.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Takes the digits at the front off, and returns them without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    *text = rest;
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    &digits[zeros..]
}

impl Selector {
    /// What this selector chooses of `left`; `all` is what there is on the machine.
    fn pick<'a>(&self, left: &[&'a Disk], all: &'a [Disk]) -> Result<Vec<&'a Disk>, Problem> {
        let found: Vec<&Disk> = left.iter().copied().filter(|disk| self.matches(disk)).collect();
        self.all_named_are_there(&found, left, all)?;
        let refused = |detail: String| {
            Err(Problem::new(Code::NotEnoughDisks, detail).todo(
                "`holdfast disk list` shows all disks with their states: free some, or change the selector.",
            ))
        };
        let free = if self.names_state() { "" } else { "free " };
        match self.take {
            Take::All if found.is_empty() => refused(format!("No {free}disk matches `{self}`.")),
            Take::All => Ok(found),
            Take::Count(wanted) if found.len() < wanted as usize => refused(format!(
                "`{self}` wants {}, and there {}.",
                disks(wanted as usize, free),
                are(found.len())
            )),
            Take::Count(wanted) => Ok(found.into_iter().take(wanted as usize).collect()),
            Take::PerEnclosure(wanted) => {
                let enclosures = self.enclosures(all);
                if enclosures.is_empty() {
                    return Err(Problem::new(
                        Code::NotEnoughDisks,
                        format!(
                            "`{self}` chooses by enclosure, and no enclosure that it could mean is known."
                        ),
                    )
                    .todo("Say where disks are with `holdfast disk set DISK --enclosure NAME --slot N`."));
                }
                let mut chosen = Vec::new();
                let mut short = Vec::new();
                for enclosure in enclosures {
                    let inside = found.iter().filter(|disk| disk.enclosure.as_deref() == Some(enclosure));
                    let inside: Vec<&Disk> = inside.copied().collect();
                    if inside.len() < wanted as usize {
                        short.push(format!("enclosure {enclosure} has {}", inside.len()));
                    }
                    chosen.extend(inside.into_iter().take(wanted as usize));
                }
                if short.is_empty() {
                    return Ok(chosen);
                }
                refused(format!(
                    "`{self}` wants {} of each enclosure: {}.",
                    disks(wanted as usize, free),
                    short.join(", ")
                ))
            }
        }
    }

    /// All enclosures of the machine that the selector does not leave out, those without a disk to choose too.
    fn enclosures<'a>(&self, all: &'a [Disk]) -> Vec<&'a str> {
        let meant = |disk: &&Disk| {
            self.clauses.iter().all(|clause| match clause {
                Clause::Is { property: Property::Enclosure, .. } => clause.holds(disk),
                _ => true,
            })
        };
        let names: BTreeSet<&str> =
            all.iter().filter(meant).filter_map(|disk| disk.enclosure.as_deref()).collect();
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_by(|a, b| natural_order(a, b));
        names
    }

    fn matches(&self, disk: &Disk) -> bool {
        (self.names_state() || disk.state == DiskState::Free)
            && self.clauses.iter().all(|clause| clause.holds(disk))
    }

    /// Who lists serial numbers or ids wants each of them.
    fn all_named_are_there(&self, found: &[&Disk], left: &[&Disk], all: &[Disk]) -> Result<(), Problem> {
        for clause in &self.clauses {
            let Clause::Is { property, not: false, patterns } = clause else { continue };
            let what = match property {
                Property::Serial => "serial number",
                Property::Disk => "id or path",
                _ => continue,
            };
            for name in patterns.iter().filter(|pattern| !pattern.contains(['*', '?'])) {
                let is = |disk: &Disk| property.is_one_of(disk, std::slice::from_ref(name));
                if found.iter().any(|disk| is(disk)) {
                    continue;
                }
                let why = match all.iter().find(|disk| is(disk)) {
                    None => "there is none on this machine".to_owned(),
                    Some(disk) if !left.iter().any(|other| other.id == disk.id) => {
                        format!("disk {} has been chosen already", disk.id)
                    }
                    Some(disk) if !self.names_state() && disk.state != DiskState::Free => {
                        let why = disk.reason.as_ref().or(disk.pool.as_ref());
                        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                        format!("disk {} is {}{why}", disk.id, state(disk.state))
                    }
                    Some(disk) => format!("disk {} does not meet the rest of `{self}`", disk.id),
                };
                return Err(Problem::new(
                    Code::NotEnoughDisks,
                    format!("No disk with {what} {name} can be chosen: {why}."),
                )
                .todo("`holdfast disk list` shows all disks: correct the selector, or leave this one out."));
            }
        }
        Ok(())
    }
}

impl Clause {
    fn holds(&self, disk: &Disk) -> bool {
        match self {
            Self::Size { comparison, size } => size.holds(*comparison, disk.size_bytes),
            Self::Is { property, not, patterns } => property.is_one_of(disk, patterns) != *not,
        }
    }
}

impl Property {
    /// Whether one of the patterns fits; none does where the disk does not say.
    fn is_one_of(self, disk: &Disk, patterns: &[String]) -> bool {
        let fits =
            |text: Option<&str>| text.is_some_and(|text| patterns.iter().any(|pattern| fits(pattern, text)));
        match self {
            Self::Media => {
                let media = match disk.media {
                    MediaType::Hdd => "hdd",
                    MediaType::Ssd => "ssd",
                    MediaType::Unspecified => "unspecified",
                };
                fits(Some(media)) || (disk.bus.as_deref() == Some("nvme") && fits(Some("nvme")))
            }
            Self::Model => fits(disk.model.as_deref()),
            Self::Serial => fits(disk.serial.as_deref()),
            Self::Vendor => fits(disk.vendor.as_deref()),
            Self::Bus => fits(disk.bus.as_deref()),
            Self::Enclosure => fits(disk.enclosure.as_deref()),
            Self::Slot => fits(disk.slot.as_deref()),
            Self::Disk => fits(Some(&disk.id)) || fits(disk.path.as_deref()),
            Self::State => fits(Some(state(disk.state))),
        }
    }
}

/// As it is written in requests.
fn state(state: DiskState) -> &'static str {
    match state {
        DiskState::Missing => "missing",
        DiskState::Failed => "failed",
        DiskState::Retiring => "retiring",
        DiskState::Online => "online",
        DiskState::Spare => "spare",
        DiskState::OtherPool => "other-pool",
        DiskState::Foreign => "foreign",
        DiskState::InUse => "in-use",
        DiskState::Free => "free",
    }
}

/// Whether a text fits a pattern whole: `*` is anything, `?` one character, case does not matter.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not fit: one character further. Only the last star
    // matters, so that the work is at most the product of the lengths.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || c.to_lowercase().eq(text[t].to_lowercase()) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

fn disks(count: usize, free: &str) -> String {
    if count == 1 { format!("1 {free}disk") } else { format!("{count} {free}disks") }
}

fn are(count: usize) -> String {
    match count {
        0 => "is none".into(),
        1 => "is 1".into(),
        _ => format!("are {count}"),
    }
}
