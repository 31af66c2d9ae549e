//! A pool that is destroyed: closed, and its disks made nobody's.

use block_device::Device;
use control_api::{Code, Problem};
use pool::{PoolErrorKind, release_disk};

use super::super::device;
use super::SystemPool;
use crate::backend::PoolDisk;

impl SystemPool {
    pub(super) async fn destroyed(&self, disks: Vec<PoolDisk>) -> Result<(), Problem> {
        let devices: Vec<Device> = disks.iter().map(device).collect::<Result<_, _>>()?;
        let closed = self.at_home(|pool| async move {
            match pool.close().await {
                // What is destroyed may be lost.
                Err(error) if error.kind() == PoolErrorKind::Lost => Ok(()),
                closed => closed,
            }
        });
        closed.await?;
        let (guid, witness) = (self.pool.guid(), self.surroundings.witness.clone());
        let name = self.pool.name().to_owned();
        let cleared = self.shards.run(self.home, move || async move {
            for device in &devices {
                let released = release_disk(device, guid, &name).await;
                released.map_err(|error| Problem::new(Code::Io, error.to_string()))?;
            }
            // Left behind, it would only be in the way of whoever looks.
            if let Err(error) = witness.forget(guid).await {
                tracing::warn!("the witness of the destroyed pool {guid} could not be removed: {error}");
            }
            Ok(())
        });
        cleared.await
    }
}
