//! How fast messages are signed and packets sealed: `cargo bench -p smb_crypto`. One thread, warm caches, the best of many
//! rounds; what a server reaches is less by what everything else costs.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::hint::black_box;
use std::time::Instant;

use smb_crypto::{CryptoError, Key, Sealer, Signer};
use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};

/// Bytes of a READ's header and body before its data.
const HEAD_BYTES: usize = 80;
/// Rounds, and bytes in each.
const ROUNDS: usize = 40;
const ROUND_BYTES: usize = 4 << 20;

fn main() -> Result<(), CryptoError> {
    for len in [8 << 10, 1 << 20] {
        let mut message = vec![7; HEAD_BYTES + len];
        for algorithm in
            [SigningAlgorithm::AES_GMAC, SigningAlgorithm::AES_CMAC, SigningAlgorithm::HMAC_SHA256]
        {
            let signer = Signer::new(algorithm, &Key::of_16(&[1; 16]))?;
            measure(&format!("sign {signer:?}"), len, || signer.sign(black_box(&mut message)))?;
        }
        let data = vec![5; len];
        let mut out = vec![0; len + 16];
        for cipher in [Cipher::AES_128_GCM, Cipher::AES_256_GCM, Cipher::AES_128_CCM, Cipher::AES_256_CCM] {
            let long = matches!(cipher, Cipher::AES_256_GCM | Cipher::AES_256_CCM);
            let key = if long { Key::of_32(&[1; 32]) } else { Key::of_16(&[1; 16]) };
            let sealer = Sealer::new(cipher, &key)?;
            let name = format!("{}{sealer:?}", if long { "256 " } else { "128 " });
            measure(&format!("seal {name}"), len, || {
                sealer.seal([3; 16], 1, black_box(&mut message)).map(drop)
            })?;
            let (head, _) = message.split_at_mut(HEAD_BYTES);
            measure(&format!("seal_gather {name}"), len, || {
                sealer.seal_gather([3; 16], 1, head, black_box(&data), &mut out).map(drop)
            })?;
            let mut plain = data.clone();
            let header = sealer.seal([3; 16], 1, &mut plain)?;
            let packet = [&header[..], &plain].concat();
            measure(&format!("open_into {name}"), len, || sealer.open_into(black_box(&packet), &mut plain))?;
        }
    }
    Ok(())
}

fn measure(
    name: &str,
    len: usize,
    mut work: impl FnMut() -> Result<(), CryptoError>,
) -> Result<(), CryptoError> {
    let count = (ROUND_BYTES / len).max(1);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..count).try_for_each(|_| work())?;
        best = best.min(start.elapsed().as_secs_f64() / count as f64);
    }
    println!("{name:42} {len:8} bytes {:8.2} GB/s {:9.2} µs", len as f64 / best / 1e9, best * 1e6);
    Ok(())
}
