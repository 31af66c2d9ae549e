//! Tokens of offloaded data transfer.

/// Tokens that were given out.
pub(crate) struct Tokens {
    #[allow(dead_code, reason = "body follows")]
    secret: [u8; 16],
}

impl Tokens {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }
}
