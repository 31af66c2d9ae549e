//! What files take of a volume.

use super::*;

/// A file that is written once takes what it needs, and little more where it may go on.
#[test]
fn files_take_what_they_need() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        for (len, most) in [
            (1, 64 << 10),
            (100, 64 << 10),
            (64 << 10, 64 << 10),
            ((64 << 10) + 1, 128 << 10),
            (195 << 10, 256 << 10),
            (977 << 10, 1 << 20),
            (2930 << 10, 3712 << 10),
            (8 << 20, 11 << 20),
        ] {
            let id = volume.create(volume.root(), &format!("f{len}"), file()).await.expect("create");
            let handle = open(&volume, id).await;
            let bytes = vec![7; len];
            for at in (0..len).step_by(1 << 20) {
                let part = &bytes[at..len.min(at + (1 << 20))];
                write(&handle, at as u64, part, Durability::Durable).await;
            }
            let taken = volume.info(id).await.expect("info").allocated;
            assert!(taken >= len as u64 && taken <= most, "{len}: {taken} of {most}");
        }
    });
}
