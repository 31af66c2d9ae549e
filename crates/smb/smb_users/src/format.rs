//! The files as bytes: `docs/formats/users.md`.

use aws_lc_rs::aead;
use byte_codec::{DecodeError, Reader, Writer, crc32c};
use smb_auth::NtHash;
use smb_protocol::security::sid::Sid;
use zeroize::{Zeroize as _, Zeroizing};

use crate::directory::{Directory, Group, User};
use crate::names::TEXT_MAX;

/// The version that is written.
const VERSION: u32 = 1;
const DATABASE_MAGIC: &[u8; 4] = b"HFUS";
const KEY_MAGIC: &[u8; 4] = b"HFUK";
/// Bytes of the database before what is sealed.
const HEAD_BYTES: usize = 32;
const NONCE_BYTES: usize = aead::NONCE_LEN;
const TAG_BYTES: usize = 16;
/// Bytes of the key file.
pub const KEY_FILE_BYTES: usize = 52;
/// Flags of a user.
const DISABLED: u16 = 1;

/// What seals the database; never printed, wiped when dropped.
#[derive(Clone)]
pub struct SealingKey {
    id: [u8; 8],
    key: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey(redacted)")
    }
}

impl SealingKey {
    /// Makes a key from random bytes.
    #[must_use]
    pub fn new(id: [u8; 8], key: [u8; 32]) -> Self {
        Self { id, key: Zeroizing::new(key) }
    }

    /// The content of the key file.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut w = Writer::default();
        w.raw(KEY_MAGIC);
        w.u32(VERSION);
        w.raw(&self.id);
        w.raw(self.key.as_slice());
        let mut bytes = w.finish();
        let sum = crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Zeroizing::new(bytes)
    }

    /// Decodes it from a key file.
    ///
    /// # Errors
    /// When it is none, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        head(&mut r, KEY_MAGIC)?;
        let id = array(&mut r)?;
        let key = array(&mut r)?;
        let sum = r.u32()?;
        let covered = bytes.get(..KEY_FILE_BYTES - 4).ok_or(DecodeError::Truncated)?;
        if r.remaining() != 0 || sum != crc32c(covered) {
            return Err(DecodeError::WrongChecksum);
        }
        Ok(Self::new(id, key))
    }

    fn cipher(&self) -> Option<aead::LessSafeKey> {
        aead::UnboundKey::new(&aead::AES_256_GCM, self.key.as_slice()).ok().map(aead::LessSafeKey::new)
    }
}

/// Magic and version.
fn head(r: &mut Reader<'_>, magic: &[u8; 4]) -> Result<(), DecodeError> {
    if r.raw(4)? != magic {
        return Err(DecodeError::WrongMagic);
    }
    match r.u32()? {
        VERSION => Ok(()),
        other => Err(DecodeError::Unsupported(other)),
    }
}

fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], DecodeError> {
    r.raw(N)?.first_chunk().copied().ok_or(DecodeError::Truncated)
}

/// The database's content, sealed. `nonce` is random: with one key a million writes come to no chance of a repetition
/// that matters (SP 800-38D 8.3 allows 2³²). `None` only if the cipher fails, which it does not.
#[must_use]
pub fn seal(directory: &Directory, key: &SealingKey, nonce: [u8; NONCE_BYTES]) -> Option<Vec<u8>> {
    let body = Zeroizing::new(encode(directory));
    let len = u32::try_from(body.len()).ok()?;
    let mut out = Vec::with_capacity(HEAD_BYTES + body.len() + TAG_BYTES);
    out.extend_from_slice(DATABASE_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&key.id);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&len.to_le_bytes());
    let aad = out.clone();
    out.extend_from_slice(&body);
    let sealed = key.cipher()?.seal_in_place_separate_tag(
        aead::Nonce::assume_unique_for_key(nonce),
        aead::Aad::from(aad),
        out.get_mut(HEAD_BYTES..)?,
    );
    if let Ok(tag) = sealed {
        out.extend_from_slice(tag.as_ref());
        Some(out)
    } else {
        // It may hold the plain text.
        out.zeroize();
        None
    }
}

/// Opens the database's content.
///
/// # Errors
/// [`DecodeError::Invalid`] when the key is another database's; [`DecodeError::WrongChecksum`] when something was
/// changed; others when it is no database.
pub fn open(bytes: &[u8], key: &SealingKey) -> Result<Directory, DecodeError> {
    let mut r = Reader::new(bytes);
    head(&mut r, DATABASE_MAGIC)?;
    let id: [u8; 8] = array(&mut r)?;
    let nonce = array(&mut r)?;
    let len = r.u32()? as usize;
    if id != key.id {
        return Err(DecodeError::Invalid("key: the key file is another database's"));
    }
    if r.remaining().checked_sub(TAG_BYTES) != Some(len) {
        return Err(DecodeError::Truncated);
    }
    let mut sealed = Zeroizing::new(r.raw(len + TAG_BYTES)?.to_vec());
    let aad = bytes.get(..HEAD_BYTES).ok_or(DecodeError::Truncated)?;
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let cipher = key.cipher().ok_or(DecodeError::Invalid("key"))?;
    let body = cipher
        .open_in_place(nonce, aead::Aad::from(aad), sealed.as_mut_slice())
        .map_err(|_| DecodeError::WrongChecksum)?;
    decode(body)
}

/// The content before it is sealed.
#[must_use]
pub fn encode(directory: &Directory) -> Vec<u8> {
    let mut w = Writer::default();
    directory.machine().sub_authorities().iter().skip(1).for_each(|part| w.u32(*part));
    w.u32(directory.next_rid());
    w.u32(directory.users().count() as u32);
    for user in directory.users() {
        w.u32(user.sid.rid().unwrap_or_default());
        w.u16(if user.disabled { DISABLED } else { 0 });
        w.u64(user.password_set);
        w.raw(user.nt_hash.expose());
        w.text(&user.name);
        w.text(&user.full_name);
        w.text(&user.comment);
    }
    w.u32(directory.groups().count() as u32);
    for group in directory.groups() {
        w.u32(group.sid.rid().unwrap_or_default());
        w.text(&group.name);
        w.text(&group.comment);
        w.u32(group.members.len() as u32);
        let mut members = Vec::new();
        group.members.iter().for_each(|member| member.put(&mut members));
        w.raw(&members);
    }
    w.finish()
}

/// A directory from its content. Memory is taken as bytes are found, never by a count alone.
///
/// # Errors
/// When it is not what the format says, or no directory could be so.
pub fn decode(bytes: &[u8]) -> Result<Directory, DecodeError> {
    let mut r = Reader::new(bytes);
    let machine = [r.u32()?, r.u32()?, r.u32()?];
    let next_rid = r.u32()?;
    let mut users = Vec::new();
    for _ in 0..r.u32()? {
        let rid = r.u32()?;
        let flags = r.u16()?;
        if flags & !DISABLED != 0 {
            return Err(DecodeError::Unsupported(u32::from(flags)));
        }
        let password_set = r.u64()?;
        let nt_hash = NtHash::new(r.guid()?);
        let (name, full_name, comment) = (r.text()?, text(&mut r)?, text(&mut r)?);
        let disabled = flags & DISABLED != 0;
        let sid = Sid::ANONYMOUS;
        users.push((rid, User { sid, name, full_name, comment, disabled, password_set, nt_hash }));
    }
    let mut groups = Vec::new();
    for _ in 0..r.u32()? {
        let rid = r.u32()?;
        let (name, comment) = (r.text()?, text(&mut r)?);
        let mut members = Vec::new();
        for _ in 0..r.u32()? {
            members.push(Sid::take(&mut r)?);
        }
        groups.push((rid, Group { sid: Sid::ANONYMOUS, name, comment, members }));
    }
    if r.remaining() != 0 {
        return Err(DecodeError::Invalid("length"));
    }
    Directory::restore(machine, next_rid, users, groups).ok_or(DecodeError::Invalid("directory"))
}

fn text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    r.text().and_then(|text| if text.len() > TEXT_MAX { Err(DecodeError::Invalid("text")) } else { Ok(text) })
}

#[cfg(test)]
mod tests;
