//! Random bytes and secrets.

use control_api::{Code, Problem};

/// Bytes from the operating system's entropy.
///
/// # Errors
/// When there is none, which on Linux does not happen after boot.
pub fn entropy<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(Code::Io, format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

/// A secret for CHAP: 32 characters, 128 bits.
///
/// # Errors
/// As [`entropy`].
pub fn random_secret() -> Result<String, Problem> {
    Ok(entropy::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
