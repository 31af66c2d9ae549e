//! Results.

use std::collections::VecDeque;

use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;

use crate::error::Win32;

/// The first number of a pointer that points to something, and the step to the next, as Windows has them.
const FIRST_REFERENT: u32 = 0x0002_0000;
const REFERENT_STEP: u32 = 4;

/// What a pointer inside a structure points to.
#[derive(Debug)]
enum Deferred {
    /// A string with a terminator.
    Wide(String),
    /// The text of an RPC_UNICODE_STRING, without.
    Units(Vec<u16>),
    Sid(Sid),
    Bytes(Vec<u8>),
    Words(Vec<u32>),
    /// Part of a conformant varying array of bytes, whose full length comes first.
    VaryingBytes(u32, Vec<u8>),
}

/// Writes values one after another, little-endian.
#[derive(Debug, Default)]
pub struct NdrOut {
    bytes: Vec<u8>,
    referents: u32,
    deferred: VecDeque<Deferred>,
}

impl NdrOut {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The stub: what was written, and what was still deferred.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.bytes
    }

    /// Bytes so far, without what is deferred.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends zeros up to a multiple of `to`.
    pub fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.align(2);
        self.raw(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.align(4);
        self.raw(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.align(8);
        self.raw(&value.to_le_bytes());
    }

    /// Appends an OLD_LARGE_INTEGER (MS-SAMR 2.2.2.2): eight bytes that are aligned as four.
    pub fn old_large(&mut self, value: u64) {
        self.align(4);
        self.raw(&value.to_le_bytes());
    }

    /// Appends a number of elements. Results are far smaller than four bytes can count.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Appends a pointer.
    pub fn pointer(&mut self, present: bool) {
        if present {
            let referent = FIRST_REFERENT.wrapping_add(self.referents.wrapping_mul(REFERENT_STEP)).max(1);
            self.referents = self.referents.wrapping_add(1);
            self.u32(referent);
        } else {
            self.u32(0);
        }
    }

    /// Appends a pointer to a string; the string is deferred.
    pub fn wide(&mut self, text: &str) {
        self.pointer(true);
        self.deferred.push_back(Deferred::Wide(text.to_owned()));
    }

    /// Appends an RPC_UNICODE_STRING; its text is deferred. What does not fit is cut: no name is so long.
    pub fn unicode(&mut self, text: &str) {
        let units: Vec<u16> = text.encode_utf16().take(super::MAX_STRING_UNITS).collect();
        let bytes = u16::try_from(units.len() * 2).unwrap_or(u16::MAX - 1);
        self.align(4);
        self.u16(bytes);
        self.u16(bytes);
        self.pointer(true);
        self.deferred.push_back(Deferred::Units(units));
    }

    /// Appends an RPC_UNICODE_STRING without a text, which is not the same as one with an empty one.
    pub fn no_unicode(&mut self) {
        self.align(4);
        self.u32(0);
        self.pointer(false);
    }

    /// Appends a pointer to a SID; the SID is deferred.
    pub fn sid(&mut self, sid: Option<Sid>) {
        self.pointer(sid.is_some());
        self.deferred.extend(sid.map(Deferred::Sid));
    }

    /// Appends a pointer to a conformant array of bytes, which is deferred.
    pub fn bytes(&mut self, bytes: Option<&[u8]>) {
        self.pointer(bytes.is_some());
        self.deferred.extend(bytes.map(|bytes| Deferred::Bytes(bytes.to_vec())));
    }

    /// Appends a pointer to a conformant array of numbers, which is deferred.
    pub fn words(&mut self, words: &[u32]) {
        self.pointer(true);
        self.deferred.push_back(Deferred::Words(words.to_vec()));
    }

    /// Appends a pointer to a conformant varying array of bytes of which the first are there; it is deferred.
    pub fn varying_bytes(&mut self, most: u32, bytes: &[u8]) {
        self.pointer(true);
        self.deferred.push_back(Deferred::VaryingBytes(most, bytes.to_vec()));
    }

    /// Appends a conformant array of structures, and what their pointers point to. To be called where the array itself
    /// has its place.
    pub fn array<T>(&mut self, elements: &[T], mut put: impl FnMut(&mut Self, &T)) {
        let outer = std::mem::take(&mut self.deferred);
        self.count(elements.len());
        elements.iter().for_each(|element| put(self, element));
        self.flush();
        self.deferred = outer;
    }

    /// Appends what was deferred: the outermost structure ends here.
    pub fn flush(&mut self) {
        while let Some(deferred) = self.deferred.pop_front() {
            match deferred {
                Deferred::Wide(text) => self.wide_body(&text),
                Deferred::Units(units) => {
                    self.varying(units.len(), units.len());
                    units.iter().for_each(|unit| self.u16(*unit));
                }
                Deferred::Sid(sid) => self.sid_body(&sid),
                Deferred::Bytes(bytes) => {
                    self.count(bytes.len());
                    self.raw(&bytes);
                }
                Deferred::Words(words) => {
                    self.count(words.len());
                    words.iter().for_each(|word| self.u32(*word));
                }
                Deferred::VaryingBytes(most, bytes) => {
                    self.varying(most as usize, bytes.len());
                    self.raw(&bytes);
                }
            }
        }
    }

    fn varying(&mut self, most: usize, count: usize) {
        self.count(most);
        self.u32(0);
        self.count(count);
    }

    fn wide_body(&mut self, text: &str) {
        let count = text.encode_utf16().count() + 1;
        self.varying(count, count);
        text.encode_utf16().chain([0]).for_each(|unit| self.u16(unit));
    }

    /// Appends a SID where it has its place.
    pub fn sid_body(&mut self, sid: &Sid) {
        let subs = sid.sub_authorities();
        self.count(subs.len());
        self.u8(1);
        self.u8(u8::try_from(subs.len()).unwrap_or(u8::MAX));
        let [_, _, authority @ ..] = sid.authority().to_be_bytes();
        self.raw(&authority);
        subs.iter().for_each(|sub| self.u32(*sub));
    }

    /// Appends a context handle: attributes, which are zero, and a UUID.
    pub fn context_handle(&mut self, handle: &[u8; 20]) {
        self.align(4);
        self.raw(handle);
    }

    /// Appends what the function returns.
    pub fn win32(&mut self, value: Win32) {
        self.flush();
        self.u32(value.0);
    }

    /// Appends what the function returns.
    pub fn status(&mut self, value: NtStatus) {
        self.flush();
        self.u32(value.0);
    }
}
