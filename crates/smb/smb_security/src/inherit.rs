//! The descriptor of a new file (MS-DTYP 2.5.3.4).

use smb_protocol::access::AccessMask;
use smb_protocol::security::ace::{AceData, AceFlags, AceType};
use smb_protocol::security::{Ace, Acl, Control, SecurityDescriptor, Sid};

use crate::token::Token;

/// What a new file's descriptor is made from.
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// The directory's descriptor.
    pub parent: Option<&'a SecurityDescriptor>,
    /// The descriptor that the creator gave.
    pub creator: Option<&'a SecurityDescriptor>,
    /// Whether it is a directory.
    pub container: bool,
    /// The creator.
    pub token: &'a Token,
}

/// The descriptor of a new file (MS-DTYP 2.5.3.4.1): owner and group from the creator's descriptor or token; lists from the
/// creator's descriptor with what is inheritable behind, or inherited, or default.
#[must_use]
pub fn new_object(new: &NewObject<'_>) -> SecurityDescriptor {
    let owner = new.creator.and_then(|sd| sd.owner).unwrap_or(new.token.user);
    let group = new.creator.and_then(|sd| sd.group).unwrap_or(new.token.primary_group);
    let mut control = Control::SELF_RELATIVE;
    let dacl = match new.creator.filter(|sd| sd.control.contains(Control::DACL_PRESENT) || sd.dacl.is_some())
    {
        Some(sd) => {
            let (dacl, bits) = from_creator(new, sd, (owner, group), false);
            control |= bits;
            dacl
        }
        None => {
            let inherited = inherited(new, false, (owner, group));
            if inherited.is_empty() {
                Some(default_dacl(owner))
            } else {
                control |= auto_inherits(new, false);
                Some(Acl { aces: inherited })
            }
        }
    };
    let sacl = match new.creator.filter(|sd| sd.sacl.is_some()) {
        Some(sd) => {
            let (sacl, bits) = from_creator(new, sd, (owner, group), true);
            control |= bits;
            sacl
        }
        None => {
            let inherited = inherited(new, true, (owner, group));
            if !inherited.is_empty() {
                control |= auto_inherits(new, true);
            }
            Some(Acl { aces: inherited }).filter(|acl| !acl.aces.is_empty())
        }
    };
    control |= Control::DACL_PRESENT;
    if sacl.is_some() {
        control |= Control::SACL_PRESENT;
    }
    SecurityDescriptor { control, owner: Some(owner), group: Some(group), sacl, dacl }
}

/// The creator's list. Where it is not protected and asks for inheritance (AUTO_INHERIT_REQ), what the parent gives comes
/// behind it, in place of what it says was inherited.
fn from_creator(
    new: &NewObject<'_>,
    sd: &SecurityDescriptor,
    ids: (Sid, Sid),
    sacl: bool,
) -> (Option<Acl>, Control) {
    let (list, protected, requested, inherited_bit) = if sacl {
        (&sd.sacl, Control::SACL_PROTECTED, Control::SACL_AUTO_INHERIT_REQ, Control::SACL_AUTO_INHERITED)
    } else {
        (&sd.dacl, Control::DACL_PROTECTED, Control::DACL_AUTO_INHERIT_REQ, Control::DACL_AUTO_INHERITED)
    };
    let mut bits = sd.control & protected;
    let Some(list) = list else { return (None, bits) };
    if bits.is_empty() && sd.control.contains(requested) {
        let own = list.aces.iter().filter(|ace| !ace.flags.contains(AceFlags::INHERITED));
        let own = own.flat_map(|ace| substituted(ace, new.container, ids));
        let mut aces = generic_mapped(&Acl { aces: own.collect() });
        aces.aces.extend(inherited(new, sacl, ids));
        return (Some(aces), bits | inherited_bit);
    }
    bits |= sd.control & inherited_bit;
    (Some(generic_mapped(list)), bits)
}

/// Whether the parent's list came by automatic inheritance, which then goes on: the control bit of the new list. Without
/// it entries are handed down as well, but are not marked as inherited (MS-FSA 2.1.5.1.1 passes DACL_AUTO_INHERIT to
/// MS-DTYP 2.5.3.4.1 only with the parent's bit).
fn auto_inherits(new: &NewObject<'_>, sacl: bool) -> Control {
    let bit = if sacl { Control::SACL_AUTO_INHERITED } else { Control::DACL_AUTO_INHERITED };
    new.parent.map_or(Control::NONE, |parent| parent.control & bit)
}

/// What the directory's list gives to a new file (MS-DTYP 2.5.3.4.3, .4).
fn inherited(new: &NewObject<'_>, sacl: bool, ids: (Sid, Sid)) -> Vec<Ace> {
    let parent = new.parent.and_then(|sd| if sacl { sd.sacl.as_ref() } else { sd.dacl.as_ref() });
    let Some(parent) = parent else { return Vec::new() };
    let marked = !auto_inherits(new, sacl).is_empty();
    let marks = if marked { AceFlags::INHERITED } else { AceFlags::NONE };
    parent.aces.iter().flat_map(|ace| inherit_entry(ace, new.container, ids, marks)).collect()
}

/// A list as it is stored: generic rights of entries that apply to the file itself are mapped to the rights that they
/// stand for; those that are only handed down stay as they are.
pub(crate) fn generic_mapped(list: &Acl) -> Acl {
    let mapped = |ace: &Ace| {
        let mut ace = ace.clone();
        if !ace.flags.contains(AceFlags::INHERIT_ONLY) {
            map_generic(&mut ace);
        }
        ace
    };
    Acl { aces: list.aces.iter().map(mapped).collect() }
}

fn map_generic(ace: &mut Ace) {
    // The mask of a label says what lower levels may do, in bits of its own.
    if ace.kind == AceType::SYSTEM_MANDATORY_LABEL {
        return;
    }
    if let AceData::Plain { mask, .. } | AceData::Object { mask, .. } = &mut ace.data {
        *mask = mask.map_generic();
    }
}

fn inherit_entry(ace: &Ace, container: bool, ids: (Sid, Sid), marks: AceFlags) -> Vec<Ace> {
    let flags = ace.flags;
    let (for_objects, for_containers) =
        (flags.contains(AceFlags::OBJECT_INHERIT), flags.contains(AceFlags::CONTAINER_INHERIT));
    let last = flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
    let audit = flags & (AceFlags::SUCCESSFUL_ACCESS | AceFlags::FAILED_ACCESS) | marks;
    if !container {
        return if for_objects { vec![effective(ace, audit, ids)] } else { Vec::new() };
    }
    let on = flags & (AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT);
    match (for_containers, for_objects) {
        // Applies here, and goes on unless it is told to stop.
        (true, _) if last => vec![effective(ace, audit, ids)],
        (true, _) => {
            let here = effective(ace, audit, ids);
            if is_creator(ace) || has_generic(ace) {
                // What applies here differs from what goes on: two entries (MS-DTYP 2.5.3.4.4).
                let onward = with_flags(ace, audit | on | AceFlags::INHERIT_ONLY);
                vec![here, onward]
            } else {
                vec![with_flags(&here, audit | on)]
            }
        }
        // Only for files further down.
        (false, true) if !last => vec![with_flags(ace, audit | on | AceFlags::INHERIT_ONLY)],
        _ => Vec::new(),
    }
}

/// An entry of the creator's own, which is not inherited but may name the creator.
fn substituted(ace: &Ace, container: bool, ids: (Sid, Sid)) -> Vec<Ace> {
    if ace.flags.contains(AceFlags::INHERIT_ONLY) || !is_creator(ace) {
        return vec![ace.clone()];
    }
    let here = effective(ace, AceFlags::NONE, ids);
    if container && ace.flags.intersects(AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT) {
        vec![here, with_flags(ace, ace.flags | AceFlags::INHERIT_ONLY)]
    } else {
        vec![here]
    }
}

fn is_creator(ace: &Ace) -> bool {
    matches!(ace.sid(), Some(sid) if *sid == Sid::CREATOR_OWNER || *sid == Sid::CREATOR_GROUP)
}

fn has_generic(ace: &Ace) -> bool {
    ace.mask().is_some_and(|mask| mask.0 >> 28 != 0)
}

fn with_flags(ace: &Ace, flags: AceFlags) -> Ace {
    Ace { flags, ..ace.clone() }
}

/// The entry as it applies to the new file: generic rights mapped, creator's SIDs replaced.
fn effective(ace: &Ace, flags: AceFlags, (owner, group): (Sid, Sid)) -> Ace {
    let mut ace = with_flags(ace, flags);
    map_generic(&mut ace);
    if let AceData::Plain { sid, .. } | AceData::Object { sid, .. } = &mut ace.data {
        if *sid == Sid::CREATOR_OWNER {
            *sid = owner;
        } else if *sid == Sid::CREATOR_GROUP {
            *sid = group;
        }
    }
    ace
}

/// What a file gets where nothing can be inherited: everything for owner, SYSTEM and Administrators.
fn default_dacl(owner: Sid) -> Acl {
    let all = |sid| Ace::allow(sid, AccessMask::FILE_ALL, AceFlags::NONE);
    let mut aces = vec![all(owner), all(Sid::SYSTEM)];
    if owner != Sid::ADMINISTRATORS {
        aces.push(all(Sid::ADMINISTRATORS));
    }
    Acl { aces }
}

/// The descriptor that a file without one is treated as having: it belongs to Administrators, and they, SYSTEM and
/// nobody else may do everything; inheritable, as it stands for a volume's root.
#[must_use]
pub fn default_descriptor() -> SecurityDescriptor {
    let flags = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let all = |sid| Ace::allow(sid, AccessMask::FILE_ALL, flags);
    SecurityDescriptor {
        control: Control::SELF_RELATIVE | Control::DACL_PRESENT | Control::DACL_AUTO_INHERITED,
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::SYSTEM),
        sacl: None,
        dacl: Some(Acl { aces: vec![all(Sid::ADMINISTRATORS), all(Sid::SYSTEM)] }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OI: AceFlags = AceFlags::OBJECT_INHERIT;
    const CI: AceFlags = AceFlags::CONTAINER_INHERIT;
    const NP: AceFlags = AceFlags::NO_PROPAGATE_INHERIT;
    const IO: AceFlags = AceFlags::INHERIT_ONLY;
    const ID: AceFlags = AceFlags::INHERITED;

    fn user() -> Sid {
        "S-1-5-21-1-2-3-1001".parse().unwrap()
    }

    fn with_list(aces: Vec<Ace>) -> SecurityDescriptor {
        SecurityDescriptor { dacl: Some(Acl { aces }), ..SecurityDescriptor::default() }
    }

    fn child(parent: Vec<Ace>, creator: Option<&SecurityDescriptor>, container: bool) -> SecurityDescriptor {
        let token = Token::new(user(), Sid::USERS, &[], false);
        let parent = SecurityDescriptor { control: Control::DACL_AUTO_INHERITED, ..with_list(parent) };
        new_object(&NewObject { parent: Some(&parent), creator, container, token: &token })
    }

    fn flags_of(sd: &SecurityDescriptor) -> Vec<AceFlags> {
        sd.dacl.as_ref().unwrap().aces.iter().map(|ace| ace.flags).collect()
    }

    #[test]
    fn what_each_combination_of_flags_gives() {
        // As the table of smb2.acls INHERITANCE: parent's flags, a file's, a directory's.
        for (parent, file, directory) in [
            (OI, vec![ID], vec![OI | IO | ID]),
            (CI, vec![], vec![CI | ID]),
            (OI | CI, vec![ID], vec![OI | CI | ID]),
            (OI | NP, vec![ID], vec![]),
            (CI | NP, vec![], vec![ID]),
            (OI | CI | NP, vec![ID], vec![ID]),
            (OI | IO, vec![ID], vec![OI | IO | ID]),
            (CI | IO, vec![], vec![CI | ID]),
            (OI | CI | IO, vec![ID], vec![OI | CI | ID]),
            (OI | CI | NP | IO, vec![ID], vec![ID]),
        ] {
            let aces = vec![Ace::allow(user(), AccessMask::FILE_READ, parent)];
            for (container, expected) in [(false, &file), (true, &directory)] {
                let made = child(aces.clone(), None, container);
                if expected.is_empty() {
                    assert_eq!(made.dacl, Some(default_dacl(user())), "{parent:?}");
                } else {
                    assert_eq!(flags_of(&made), *expected, "{parent:?}, container: {container}");
                    assert!(made.control.contains(Control::DACL_AUTO_INHERITED));
                }
            }
        }
    }

    #[test]
    fn inheritance_is_marked_where_the_directory_is_marked() {
        let token = Token::new(user(), Sid::USERS, &[], false);
        let plain = with_list(vec![Ace::allow(user(), AccessMask::FILE_READ, OI | CI)]);
        for (container, flags) in [(false, AceFlags::NONE), (true, OI | CI)] {
            let new = NewObject { parent: Some(&plain), creator: None, container, token: &token };
            let made = new_object(&new);
            assert_eq!(flags_of(&made), [flags]);
            assert!(!made.control.contains(Control::DACL_AUTO_INHERITED));
        }
    }

    #[test]
    fn a_creators_generic_rights_are_mapped_where_they_apply() {
        let aces = vec![
            Ace::allow(user(), AccessMask::GENERIC_READ, OI),
            Ace::allow(user(), AccessMask::GENERIC_READ, OI | IO),
        ];
        let made = child(Vec::new(), Some(&with_list(aces)), true).dacl.unwrap().aces;
        let masks: Vec<_> = made.iter().filter_map(Ace::mask).collect();
        assert_eq!(masks, [AccessMask::FILE_READ, AccessMask::GENERIC_READ]);
    }

    #[test]
    fn the_creator_takes_its_place_and_stays_inheritable() {
        let aces = vec![Ace::allow(Sid::CREATOR_OWNER, AccessMask::GENERIC_ALL, OI | CI)];
        let directory = child(aces.clone(), None, true).dacl.unwrap().aces;
        assert_eq!(directory[0], Ace::allow(user(), AccessMask::FILE_ALL, ID));
        assert_eq!(directory[1], Ace::allow(Sid::CREATOR_OWNER, AccessMask::GENERIC_ALL, OI | CI | IO | ID));
        let file = child(aces, None, false).dacl.unwrap().aces;
        assert_eq!(file, [Ace::allow(user(), AccessMask::FILE_ALL, ID)]);
    }

    #[test]
    fn a_creators_list_replaces_inheritance_unless_it_asks_for_both() {
        let parent = vec![Ace::allow(Sid::EVERYONE, AccessMask::FILE_READ, OI | CI)];
        let own = Ace::allow(user(), AccessMask::FILE_ALL, AceFlags::NONE);
        let given = with_list(vec![own.clone()]);
        let made = child(parent.clone(), Some(&given), false);
        assert_eq!(made.dacl.unwrap().aces, std::slice::from_ref(&own));
        let asks = SecurityDescriptor { control: Control::DACL_AUTO_INHERIT_REQ, ..given.clone() };
        let made = child(parent.clone(), Some(&asks), false);
        assert_eq!(made.dacl.unwrap().aces.len(), 2);
        assert!(made.control.contains(Control::DACL_AUTO_INHERITED));
        let control = Control::DACL_AUTO_INHERIT_REQ | Control::DACL_PROTECTED;
        let protected = SecurityDescriptor { control, ..given };
        let made = child(parent, Some(&protected), false);
        assert_eq!(
            (made.dacl.unwrap().aces, made.control.contains(Control::DACL_PROTECTED)),
            (vec![own], true)
        );
    }

    proptest! {
        /// Whatever the parent has: a file's entries all apply and go nowhere, and what a directory passes on to a file
        /// through a directory between is what it gives directly.
        #[test]
        fn inheritance_reaches_through_directories(
            entries in prop::collection::vec((any::<bool>(), 0_u8..16, any::<u32>()), 0..6)
        ) {
            let aces: Vec<Ace> = entries.iter().map(|(creator, flags, mask)| {
                let sid = if *creator { Sid::CREATOR_OWNER } else { user() };
                Ace::allow(sid, AccessMask(*mask) & AccessMask::FILE_ALL, AceFlags(*flags))
            }).collect();
            let file = child(aces.clone(), None, false).dacl.unwrap().aces;
            let inherits = aces.iter().any(|ace| ace.flags.contains(OI));
            if inherits {
                prop_assert!(file.iter().all(|ace| ace.flags == ID && ace.sid() == Some(&user())));
            }
            let goes_on: Vec<Ace> = aces.iter().filter(|ace| !ace.flags.contains(NP)).cloned().collect();
            let between = child(goes_on.clone(), None, true).dacl.unwrap().aces;
            if goes_on.iter().any(|ace| ace.flags.contains(OI)) {
                let below = child(between, None, false).dacl.unwrap().aces;
                let direct = child(goes_on, None, false).dacl.unwrap().aces;
                prop_assert_eq!(below, direct);
            }
        }
    }
}
