//! An image that is held: its file is whole without its log while that lasts.

use futures_util::poll;

use super::*;

#[test]
fn what_is_held_is_whole_without_its_log() {
    run(async {
        let (image, file) = image(&dynamic(64 * MIB, MIB)).await;
        put(&image, 0, MIB, 1).await;
        image.flush().await.expect("flushed");
        put(&image, 10 * MIB, MIB, 2).await;
        assert!(!image.info().await.header.log_guid.is_nil(), "it has a log");
        for round in 0..2 {
            let held = image.hold().await.expect("held");
            let data = IoBuf::copy_from(&[3; 4096]).freeze();
            let mut waits = image.write(20 * MIB, data, Durability::Durable);
            let mut reads = image.read(0, IoBuf::new(4096));
            assert!(poll!(&mut waits).is_pending() && poll!(&mut reads).is_pending());
            let copy = open(&file, Mode::Read).await.expect("opened");
            assert!(copy.info().await.header.log_guid.is_nil(), "nothing is to be replayed");
            holds(&copy, 0, MIB, 1).await;
            holds(&copy, 10 * MIB, MIB, 2).await;
            holds(&copy, 20 * MIB, 4096, 3 * round).await;
            sound(&file).await;
            drop(held);
            waits.await.expect("written");
            reads.await.expect("read");
            holds(&image, 20 * MIB, 4096, 3).await;
        }
        // Whoever goes away while another one holds it leaves nothing held.
        let held = image.hold().await.expect("held");
        let mut gone = Box::pin(image.hold());
        assert!(poll!(&mut gone).is_pending());
        drop(gone);
        drop(held);
        put(&image, 30 * MIB, MIB, 4).await;
        image.close().await.expect("closed");
        sound(&file).await;
    });
}
