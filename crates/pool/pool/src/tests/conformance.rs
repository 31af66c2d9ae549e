//! Every kind of space keeps the contract of a block device.

use std::cell::RefCell;

use block_conformance::{Options, Subject, SubjectFuture};
use block_device::Device;

use super::{Bench, on_shard};
use crate::{Pool, Provisioning, Resiliency, SpaceSpec};

struct Spaces {
    resiliency: Resiliency,
    columns: u8,
    provisioning: Provisioning,
    integrity: bool,
    /// The pool of the device that was made last: it serves as long as it lives, and has all its disks in memory.
    pool: RefCell<Option<Pool>>,
}

impl Subject for Spaces {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async move {
            drop(self.pool.take());
            let pool = Bench::new(6).create().await;
            let spec = SpaceSpec {
                name: "s".into(),
                resiliency: self.resiliency,
                provisioning: self.provisioning,
                columns: self.columns,
                interleave: 16 << 10,
                size: 12 << 20,
                integrity: self.integrity,
            };
            let device: Device = pool.create_space(spec).await.expect("space");
            self.pool.replace(Some(pool));
            device
        })
    }
}

#[test]
fn spaces_conform() {
    for (resiliency, columns, provisioning, integrity) in [
        (Resiliency::Simple, 1, Provisioning::Thin, false),
        (Resiliency::Simple, 3, Provisioning::Fixed, true),
        (Resiliency::Mirror(2), 1, Provisioning::Thin, true),
        (Resiliency::Mirror(2), 3, Provisioning::Thin, false),
        (Resiliency::Mirror(3), 2, Provisioning::Fixed, true),
        (Resiliency::Parity(1), 3, Provisioning::Thin, true),
        (Resiliency::Parity(1), 5, Provisioning::Fixed, true),
        (Resiliency::Parity(2), 4, Provisioning::Thin, true),
        (Resiliency::Parity(2), 6, Provisioning::Thin, true),
    ] {
        let subject = Spaces { resiliency, columns, provisioning, integrity, pool: RefCell::default() };
        let outcome = on_shard(block_conformance::run(&subject, Options { seed: 7, random_ops: 200 }));
        outcome.unwrap_or_else(|failure| panic!("{resiliency:?} x {columns}: {failure}"));
    }
}
