//! Entries for fuzzing: what other nodes say, and what stands on disk.

use cluster_store::keys::NodeId;
use cluster_store::values::Incarnation;
use pool_ownership::Message;

use crate::wire::{Frame, Hello, VERSION};

/// Bytes as a frame of a link: what is taken is written and taken again.
pub fn frame(bytes: &[u8]) {
    if let Ok(frame) = Frame::decode(bytes) {
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame), "what was taken can be sent on");
    }
}

/// Bytes as the file of a node's life.
pub fn incarnation(bytes: &[u8]) {
    let _ = crate::incarnation::decode(bytes);
}

/// A valid file of a node's life.
#[must_use]
pub fn incarnation_sample() -> Vec<u8> {
    crate::incarnation::encode(Incarnation(7), uuid::Uuid::from_u128(1))
}

/// Valid frames, to begin with.
#[must_use]
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let (incarnation, round) = (Incarnation(3), 1 << 40);
    let mut frames = vec![
        ("refused", Frame::Refused("this node is of another cluster".into())),
        ("ask", Frame::Message(Message::Ask { incarnation, round })),
        ("promise", Frame::Message(Message::Promise { incarnation, round })),
        ("alive", Frame::Alive),
        ("aside", Frame::Aside(b"of others".to_vec())),
    ];
    if let (Some(from), Some(to)) = (NodeId::new(1), NodeId::new(u16::MAX)) {
        let hello = Hello { version: VERSION, cluster: "site-1".into(), from, to };
        frames.push(("hello", Frame::Hello(hello)));
    }
    frames.into_iter().map(|(name, frame)| (name, frame.encode())).collect()
}
