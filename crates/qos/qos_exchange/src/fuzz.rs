//! Entry for fuzzing: what other nodes say.

use uuid::Uuid;

use crate::message::{self, Message};
use crate::{Demand, Exchange, MOST_BYTES};

/// Bytes as messages of a node, each with its length in two bytes before it.
pub fn messages(mut bytes: &[u8]) {
    let exchange = Exchange::default();
    while let Some((length, rest)) = bytes.split_at_checked(2) {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(rest.len());
        let (said, rest) = rest.split_at(length);
        bytes = rest;
        exchange.hear(1, said);
        if let Ok(message) = Message::decode(said) {
            let encoded = message.encode();
            assert!(encoded.len() <= MOST_BYTES && said.starts_with(&encoded[..6]));
        }
    }
    let _ = exchange.got_elsewhere(Uuid::nil());
    exchange.keep(|_| false);
}

/// A valid round, to begin with.
#[must_use]
pub fn sample() -> Vec<u8> {
    let demand = |number| Demand {
        policy: Uuid::from_u128(1),
        volume: Uuid::from_u128(number),
        units: u64::MAX,
        bytes: 1 << 20,
        got: 2000,
    };
    let demands: Vec<Demand> = (0..20).map(demand).collect();
    let each = message::round(7, &demands).into_iter();
    each.flat_map(|bytes| [(bytes.len() as u16).to_le_bytes().to_vec(), bytes].concat()).collect()
}
