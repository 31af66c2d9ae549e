//! Accounts: the seam to whoever knows users.

use std::fmt;

use md4::{Digest as _, Md4};
use smb_protocol::security::sid::Sid;
use smb_protocol::utf16::utf16;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroize as _;

/// Bytes of an NT hash.
pub const NT_HASH_BYTES: usize = 16;

/// MD4 of a password in UTF-16: as good as the password itself, so treat it like one.
#[derive(Clone)]
pub struct NtHash([u8; NT_HASH_BYTES]);

impl NtHash {
    /// A hash that was stored.
    #[must_use]
    pub fn new(bytes: [u8; NT_HASH_BYTES]) -> Self {
        Self(bytes)
    }

    /// The hash of a password (MS-NLMP 3.3.1, NTOWFv1).
    #[must_use]
    pub fn of_password(password: &str) -> Self {
        let mut units = utf16(password);
        let hash = Self(Md4::digest(&units).into());
        units.zeroize();
        hash
    }

    /// The bytes, to store or use them.
    #[must_use]
    pub fn expose(&self) -> &[u8; NT_HASH_BYTES] {
        &self.0
    }
}

impl PartialEq for NtHash {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&other.0))
    }
}

impl Eq for NtHash {}

impl Drop for NtHash {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(redacted)")
    }
}

/// Whether an account may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccountState {
    /// Yes.
    #[default]
    Active,
    /// The account is disabled until an administrator enables it.
    Disabled,
    /// The account is locked for a while after too many wrong passwords. The password is not even looked at, so guessing does not go on.
    LockedOut,
    /// The account has expired.
    Expired,
    /// The password has expired: another one has to be set.
    PasswordExpired,
}

impl fmt::Display for AccountState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::LockedOut => "locked out",
            Self::Expired => "expired",
            Self::PasswordExpired => "in need of a new password",
        })
    }
}

/// What is known of a user.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name as it is written in the database, whichever way the client wrote it.
    pub name: String,
    /// Who that is, in security descriptors and tokens.
    pub sid: Sid,
    /// The password's hash.
    pub nt_hash: NtHash,
    /// Whether it may be used.
    pub state: AccountState,
}

/// Who knows users. Asked on the thread of the connection, so it answers from memory. A server that has no database
/// asks with `&dyn Accounts` all the same: [`NoAccounts`].
pub trait Accounts {
    /// The account of this name, compared without regard to case. The domain is what the client wrote: the server's
    /// name, a workgroup, nothing, or something that means another kind of user.
    fn account(&self, domain: &str, user: &str) -> Option<Account>;

    /// A client has answered for this account, and `right` says whether with the right password. Called within the same
    /// step as the question, once for each answer that was looked at: whoever counts wrong ones does so here, so that
    /// no more guesses are under way at a time than there are threads.
    fn judged(&self, account: &Account, right: bool) {
        let _ = (account, right);
    }
}

/// Nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAccounts;

impl Accounts for NoAccounts {
    fn account(&self, _: &str, _: &str) -> Option<Account> {
        None
    }
}

/// Upper case as Windows has it for names of users, by which it compares them and which goes into the hash of NTLMv2
/// (MS-NLMP 3.3.2): letter by letter, within 16 bits. A letter stays that would become several, that would come back
/// as another one, or that Windows' table, made when Unicode was younger, leaves alone.
#[must_use]
pub fn upper(text: &str) -> String {
    text.chars().map(upper_char).collect()
}

fn upper_char(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (c, upper.next(), upper.next()) {
        // Micro sign, dotless i, long s, combining and lone iota: their capitals have other small letters.
        ('\u{b5}' | '\u{131}' | '\u{17f}' | '\u{345}' | '\u{1fbe}', ..) => c,
        (_, Some(one), None) if c <= '\u{ffff}' && one <= '\u{ffff}' => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_case_is_letter_by_letter() {
        assert_eq!(upper("straße ǆ é ÿ я"), "STRAßE Ǆ É Ÿ Я");
        assert_eq!(upper("\u{b5}\u{131}\u{17f}\u{10428}"), "\u{b5}\u{131}\u{17f}\u{10428}");
    }

    #[test]
    fn hash_of_ms_nlmp_4_2_2_1_2() {
        let hash = NtHash::of_password("Password");
        let expected = crate::hex::hex("a4f49c406510bdcab6824ee7c30fd852");
        assert_eq!(hash.expose().to_vec(), expected);
        assert_eq!(format!("{hash:?}"), "NtHash(redacted)");
    }
}
