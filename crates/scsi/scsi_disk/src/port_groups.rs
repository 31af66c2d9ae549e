//! Target port groups: through which ports a unit is reached, and how good each way is (SPC-4 5.15, asymmetric logical unit access).

/// The asymmetric access states that a unit may be in through a group. All changes are implicit: initiators only ask.
const SUPPORTED: u8 = 0x0b; // active/optimized, active/non-optimized, unavailable
/// The same of a unit that has no worse way than others.
const OPTIMIZED_ONLY: u8 = 0x01;

/// How a unit is reached through the ports of a group. The numbers are the standard's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessState {
    /// The best way.
    Optimized = 0,
    /// It works, by a detour.
    NonOptimized = 1,
    /// Not at all now.
    Unavailable = 3,
}

/// A target port group with its one port, whose relative identifier is the group's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// The target portal group tag, from 1.
    pub tag: u16,
    /// How the unit is reached through it.
    pub access: AccessState,
}

impl PortGroup {
    /// A group that is as good as any.
    #[must_use]
    pub const fn optimized(tag: u16) -> Self {
        Self { tag, access: AccessState::Optimized }
    }
}

/// The parameter data of REPORT TARGET PORT GROUPS (SPC-4 6.37).
pub(crate) fn report(groups: &[PortGroup], extended: bool) -> Vec<u8> {
    let alike = groups.iter().all(|group| group.access == AccessState::Optimized);
    let supported = if alike { OPTIMIZED_ONLY } else { SUPPORTED };
    let mut descriptors = Vec::new();
    for PortGroup { tag, access } in groups {
        let [high, low] = tag.to_be_bytes();
        let preferred = if *access == AccessState::Optimized { 0x80 } else { 0 };
        descriptors.extend_from_slice(&[
            preferred | *access as u8,
            supported,
            high,
            low,
            0,
            0,
            0,
            1,
            0,
            0,
            high,
            low,
        ]);
    }
    let header = if extended { 4 } else { 0 };
    let mut out = ((descriptors.len() + header) as u32).to_be_bytes().to_vec();
    if extended {
        out.extend_from_slice(&[0x10, 0, 0, 0]);
    }
    out.extend_from_slice(&descriptors);
    out
}
