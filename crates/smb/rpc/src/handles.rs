//! Context handles: what a client has opened, under names that nobody can guess (C706 6.1.6, MS-RPCE 3.3.1.4.1).
//!
//! Handles belong to an association group: all connections of a client that said they belong together. Whoever opened
//! one is remembered, and nobody else may use it.

use std::collections::BTreeMap;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::Fault;

/// Most handles of a group. Clients have a few at a time.
pub(crate) const HANDLES_MAX: usize = 512;

/// A handle on the wire: four bytes of attributes, which are zero, and sixteen random ones.
pub(crate) type Name = [u8; 20];

/// What a handle stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The policy of lsarpc.
    Policy,
    /// The server of samr.
    SamServer,
    /// The machine's domain, or `BUILTIN`.
    SamDomain(Sid),
    /// A user.
    SamUser(Sid),
    /// A group of the machine's domain.
    SamGroup(Sid),
    /// A local group.
    SamAlias(Sid),
    /// A share that is about to be removed.
    ShareRemoval(String),
}

/// All of a group.
#[derive(Debug, Default)]
pub(crate) struct Handles(BTreeMap<Name, (Sid, Object)>);

impl Handles {
    /// A handle for an object. `random` is from the operating system's entropy.
    pub(crate) fn open(&mut self, owner: Sid, object: Object, random: [u8; 16]) -> Result<Name, NtStatus> {
        if self.0.len() >= HANDLES_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let mut name = [0; 20];
        name.iter_mut().skip(4).zip(random).for_each(|(to, from)| *to = from);
        // An entropy that repeats itself, or zeros, which mean no handle, must not hand out somebody's.
        if random == [0; 16] || self.0.contains_key(&name) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        self.0.insert(name, (owner, object));
        Ok(name)
    }

    /// What a handle stands for.
    pub(crate) fn get(&self, owner: Sid, name: &Name) -> Result<Object, Fault> {
        match self.0.get(name) {
            Some((opener, object)) if *opener == owner => Ok(object.clone()),
            _ => Err(Fault::CONTEXT_MISMATCH),
        }
    }

    /// Forgets a handle.
    pub(crate) fn close(&mut self, owner: Sid, name: &Name) -> Result<Object, Fault> {
        let object = self.get(owner, name)?;
        self.0.remove(name);
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_opener_uses_and_closes_and_there_is_an_end() {
        let mut handles = Handles::default();
        let name = handles.open(Sid::USERS, Object::Policy, [7; 16]).unwrap();
        assert_eq!(handles.get(Sid::USERS, &name), Ok(Object::Policy));
        assert_eq!(handles.get(Sid::GUESTS, &name), Err(Fault::CONTEXT_MISMATCH));
        assert_eq!(handles.close(Sid::GUESTS, &name), Err(Fault::CONTEXT_MISMATCH));
        assert!(handles.open(Sid::USERS, Object::Policy, [7; 16]).is_err(), "entropy that repeats itself");
        assert!(handles.open(Sid::USERS, Object::Policy, [0; 16]).is_err(), "no handle is all zeros");
        assert_eq!(handles.close(Sid::USERS, &name), Ok(Object::Policy));
        assert_eq!(handles.get(Sid::USERS, &name), Err(Fault::CONTEXT_MISMATCH));
        for n in 0..HANDLES_MAX {
            let random = (n as u128 + 1).to_le_bytes();
            handles.open(Sid::USERS, Object::Policy, random).unwrap();
        }
        assert_eq!(handles.open(Sid::USERS, Object::Policy, [9; 16]), Err(NtStatus::INSUFFICIENT_RESOURCES));
    }
}
