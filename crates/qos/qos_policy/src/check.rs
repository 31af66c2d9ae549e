//! What is wrong with a policy, in a sentence that says what to do.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{
    Assignment, MAX_ASSIGNMENTS, MAX_BANDWIDTH, MAX_IOPS, MAX_NAME_BYTES, MAX_POLICIES, MIN_BANDWIDTH, Place,
    Policy, QosSettings,
};

/// Longest path of a place, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Smallest and largest unit of normalised I/O, in bytes: 1 KiB as Windows Server has it, and 4 MiB, above which it advises
/// against.
const UNIT_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=4 << 20;
/// Fewest and most requests at a volume at once.
const VOLUME_DEPTH: std::ops::RangeInclusive<u32> = 1..=65_536;
/// Shortest and longest latency that a volume is to have, in microseconds: what no network is quicker than, and what systems take
/// for a disk that is broken.
const LATENCY_TARGET_US: std::ops::RangeInclusive<u32> = 20..=10_000_000;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The word is no type of policy.
    #[error(
        "{0:?} is not a type of policy: use dedicated (the limits are for each disk) or aggregated (its disks share them)"
    )]
    Kind(String),
    /// The name cannot be one.
    #[error(
        "{0:?} can't be the name of a policy: use 1 to {MAX_NAME_BYTES} letters, digits, '-', '_' or '.', starting with a letter or digit"
    )]
    Name(String),
    /// Two policies have the name.
    #[error("policy {0} is there twice")]
    NameTwice(String),
    /// Two policies have the identity.
    #[error("policy {1}: its GUID {0} is another policy's too; each has its own")]
    GuidTwice(Uuid, String),
    /// The identity is all zeros, which MS-SQOS takes as "no policy".
    #[error("policy {0}: a GUID of zeros means no policy; leave it out to get one, or give another")]
    GuidNil(String),
    /// A number of zero, which would be nothing at all.
    #[error("policy {policy}: {what} of 0 is no limit and no promise; use `none` to take it away")]
    Zero {
        /// The policy.
        policy: String,
        /// Which number.
        what: &'static str,
    },
    /// A number that cannot be meant.
    #[error("policy {policy}: {what} of {value} is above the highest there is, {most}")]
    TooHigh {
        /// The policy.
        policy: String,
        /// Which number.
        what: &'static str,
        /// The number.
        value: u64,
        /// The most it may be.
        most: u64,
    },
    /// A bandwidth with which nothing works.
    #[error(
        "policy {0}: a maximum bandwidth of {1} bytes per second is below {MIN_BANDWIDTH}, with which a disk answers later than any system waits"
    )]
    Crawl(String, u64),
    /// The same of IOPS.
    #[error(
        "policy {policy}: a maximum of {max} IOPS is below {least}, which is {MIN_BANDWIDTH} bytes per second in units of {unit} bytes (qos.unit_bytes), with less of which a disk answers later than any system waits; raise it"
    )]
    CrawlIops {
        /// The policy.
        policy: String,
        /// What is allowed.
        max: u64,
        /// The least that may be.
        least: u64,
        /// The unit of normalised I/O.
        unit: u32,
    },
    /// The name reads as an identity, and by it another policy might be meant.
    #[error("policy {0}: its name reads as a GUID, which names a policy by itself; give it another")]
    NameIsGuid(String),
    /// More is promised than allowed.
    #[error(
        "policy {policy}: its minimum of {min} IOPS is above its maximum of {max}; lower the minimum or raise the maximum"
    )]
    MinAboveMax {
        /// The policy.
        policy: String,
        /// What is promised.
        min: u64,
        /// What is allowed.
        max: u64,
    },
    /// The bandwidth allows less than what is promised, even of the smallest requests.
    #[error(
        "policy {policy}: its minimum of {min} IOPS can't be met with {bandwidth} bytes per second, even in blocks of 512 bytes; lower the minimum or raise the bandwidth"
    )]
    MinAboveBandwidth {
        /// The policy.
        policy: String,
        /// What is promised.
        min: u64,
        /// What is allowed.
        bandwidth: u64,
    },
    /// Too many of something.
    #[error("there are more than {0} {1}")]
    TooMany(usize, &'static str),
    /// A disk has two policies.
    #[error("LUN {0} is assigned to two policies; a disk has one")]
    TwoPolicies(String),
    /// A place has two policies.
    #[error("{0} is assigned to two policies; it has one")]
    PlaceTwice(String),
    /// A path that cannot be that of a file or folder.
    #[error("{0:?} is not a path in a volume: begin with '/', and leave out empty names, '.' and '..'")]
    Path(String),
    /// The unit of normalised I/O cannot be that.
    #[error("qos.unit_bytes of {0} is not between 1024 (1 KiB) and 4194304 (4 MiB)")]
    Unit(u32),
    /// The depth cannot be that.
    #[error("qos.volume_depth of {0} is not between 1 and 65536")]
    Depth(u32),
    /// The latency cannot be that.
    #[error("qos.latency_target_us of {0} is neither 0 (as learnt) nor between 20 and 10000000 (10 s)")]
    LatencyTarget(u32),
}

impl Policy {
    /// Checks it by itself.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PolicyError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name = &self.name;
        if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || !name.chars().all(plain)
            || name.starts_with(['.', '-'])
        {
            return Err(PolicyError::Name(name.chars().take(MAX_NAME_BYTES).collect()));
        }
        if self.guid.is_nil() {
            return Err(PolicyError::GuidNil(name.clone()));
        }
        for (what, value, most) in [
            ("a minimum", self.min_iops, MAX_IOPS),
            ("a maximum", self.max_iops, MAX_IOPS),
            ("a maximum bandwidth", self.max_bandwidth, MAX_BANDWIDTH),
        ] {
            match value {
                Some(0) => return Err(PolicyError::Zero { policy: name.clone(), what }),
                Some(value) if value > most => {
                    return Err(PolicyError::TooHigh { policy: name.clone(), what, value, most });
                }
                _ => {}
            }
        }
        if let Some(bandwidth) = self.max_bandwidth.filter(|bandwidth| *bandwidth < MIN_BANDWIDTH) {
            return Err(PolicyError::Crawl(name.clone(), bandwidth));
        }
        if let (Some(min), Some(max)) = (self.min_iops, self.max_iops)
            && min > max
        {
            return Err(PolicyError::MinAboveMax { policy: name.clone(), min, max });
        }
        if let (Some(min), Some(bandwidth)) = (self.min_iops, self.max_bandwidth)
            && min.saturating_mul(512) > bandwidth
        {
            return Err(PolicyError::MinAboveBandwidth { policy: name.clone(), min, bandwidth });
        }
        Ok(())
    }
}

/// The least maximum of IOPS.
fn least_iops(settings: &QosSettings) -> u64 {
    MIN_BANDWIDTH / u64::from(settings.unit_bytes.max(1))
}

/// Checks what a change brings or alters by rules that came later than policies: those that are there and break one stay in effect,
/// as they were meant by whoever made them, and nothing else is refused because of them.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_changed(
    (before, had): (&[Policy], &QosSettings),
    (policies, settings): (&[Policy], &QosSettings),
) -> Result<(), PolicyError> {
    let known: BTreeMap<Uuid, &Policy> = before.iter().map(|policy| (policy.guid, policy)).collect();
    for policy in policies {
        let old = known.get(&policy.guid);
        if policy.name.parse::<Uuid>().is_ok() && old.is_none_or(|old| old.name != policy.name) {
            return Err(PolicyError::NameIsGuid(policy.name.clone()));
        }
        let least = least_iops(settings);
        let Some(max) = policy.max_iops.filter(|max| *max < least) else { continue };
        // Of an old one that crawls already, neither its maximum nor the unit has become worse.
        let crawled = old.is_some_and(|old| old.max_iops == Some(max)) && max < least_iops(had);
        if !crawled {
            let (policy, unit) = (policy.name.clone(), settings.unit_bytes);
            return Err(PolicyError::CrawlIops { policy, max, least, unit });
        }
    }
    Ok(())
}

/// Checks all policies of a node.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_policies(policies: &[Policy]) -> Result<(), PolicyError> {
    if policies.len() > MAX_POLICIES {
        return Err(PolicyError::TooMany(MAX_POLICIES, "policies"));
    }
    let (mut names, mut guids) = (BTreeSet::new(), BTreeSet::new());
    for policy in policies {
        policy.check()?;
        if !names.insert(policy.name.to_ascii_lowercase()) {
            return Err(PolicyError::NameTwice(policy.name.clone()));
        }
        if !guids.insert(policy.guid) {
            return Err(PolicyError::GuidTwice(policy.guid, policy.name.clone()));
        }
    }
    Ok(())
}

/// Checks all assignments of a node: a disk has one policy, which need not be there.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_assignments(assignments: &[Assignment]) -> Result<(), PolicyError> {
    if assignments.len() > MAX_ASSIGNMENTS {
        return Err(PolicyError::TooMany(MAX_ASSIGNMENTS, "assignments of policies"));
    }
    let mut luns = BTreeSet::new();
    match assignments.iter().find(|assignment| !luns.insert(&assignment.lun)) {
        Some(twice) => Err(PolicyError::TwoPolicies(twice.lun.clone())),
        None => Ok(()),
    }
}

/// Checks all places of a node: each has one policy, which need not be there.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_places(places: &[Place]) -> Result<(), PolicyError> {
    if places.len() > MAX_ASSIGNMENTS {
        return Err(PolicyError::TooMany(MAX_ASSIGNMENTS, "files, folders and volumes with policies"));
    }
    let mut seen = BTreeSet::new();
    for place in places {
        let path = &place.path;
        let odd = |name: &str| name.is_empty() || name == "." || name == ".." || name.contains('\\');
        let below = path.strip_prefix('/').filter(|_| path.len() <= MAX_PATH_BYTES);
        let good =
            below.is_some_and(|below| below.is_empty() && place.is_folder() || !below.split('/').any(odd));
        if !good {
            return Err(PolicyError::Path(path.chars().take(MAX_PATH_BYTES).collect()));
        }
        if !seen.insert((place.volume_guid, &place.volume, place.kind, upcase::upper(path))) {
            return Err(PolicyError::PlaceTwice(place.to_string()));
        }
    }
    Ok(())
}

/// Checks what holds for all disks of a node.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_settings(settings: &QosSettings) -> Result<(), PolicyError> {
    if !UNIT_BYTES.contains(&settings.unit_bytes) {
        return Err(PolicyError::Unit(settings.unit_bytes));
    }
    if !VOLUME_DEPTH.contains(&settings.volume_depth) {
        return Err(PolicyError::Depth(settings.volume_depth));
    }
    let target = settings.latency_target_us;
    if target != 0 && !LATENCY_TARGET_US.contains(&target) {
        return Err(PolicyError::LatencyTarget(target));
    }
    Ok(())
}
