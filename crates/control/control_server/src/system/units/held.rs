//! Images of units that are held as they are while a snapshot is taken of their files.

use std::collections::BTreeSet;
use std::sync::Arc;

use block_device::BlockDevice as _;
use control_api::{Code, Problem};
use futures_util::future::try_join_all;
use vhdx::{Held, Image, ImageError};

use super::SystemUnits;
use crate::images;

/// What keeps an image from being held, told of its LUN.
fn refused(lun: &str, problem: &Problem) -> Problem {
    let detail = format!("the image of LUN {lun} cannot be made whole: {}", problem.detail);
    Problem::new(Code::WrongState, detail)
        .todo("`holdfast status` says why. Without --quiesce it is taken as after a cut of the power.")
}

impl SystemUnits {
    /// Gives the disk in a unit's image another size, on the shard of its file.
    pub(super) async fn resize(&self, lun: &str, size: u64) -> Result<(), Problem> {
        let found = {
            let state = self.state.lock();
            let entry = state.units.get(lun);
            entry.and_then(|entry| Some((entry.volume.as_ref()?.shard(), entry.disk.image()?)))
        };
        let (shard, image) = found.ok_or_else(|| {
            Problem::new(Code::WrongState, format!("The image of LUN {lun} is not open here."))
                .todo("`holdfast status` says why.")
        })?;
        let resized = self.shards.run(shard, move || async move {
            image.resize(size).await.map_err(|error| images::problem(&error))
        });
        resized.await
    }

    /// Holds the images of these LUNs, of those that are open here.
    pub(super) async fn hold(&self, luns: Vec<String>) -> Result<Vec<Held>, Problem> {
        // In the order of their names, so that two who hold several do not wait for each other.
        let luns: BTreeSet<String> = luns.into_iter().collect();
        let mut open: Vec<(String, usize, Arc<Image>)> = Vec::new();
        {
            let state = self.state.lock();
            for lun in luns {
                let Some(entry) = state.units.get(&lun) else { continue };
                // One that writes are kept from is whole.
                let is_written = entry.disk.cache_now().is_none();
                if let (Some(volume), Some(image), true) = (&entry.volume, entry.disk.image(), is_written) {
                    open.push((lun, volume.shard(), image));
                }
            }
        }
        // What is to be flushed is flushed before anything is held, and of all at a time.
        let flushed = open.iter().map(|(lun, shard, image)| {
            let image = Arc::clone(image);
            let work = move || async move {
                image.flush().await.map_err(|error| images::problem(&ImageError::from(error)))
            };
            async move { self.shards.run(*shard, work).await.map_err(|problem| refused(lun, &problem)) }
        });
        try_join_all(flushed).await?;
        let mut held = Vec::new();
        for (lun, shard, image) in open {
            let work = move || async move { image.hold().await.map_err(|error| images::problem(&error)) };
            held.push(self.shards.run(shard, work).await.map_err(|problem| refused(&lun, &problem))?);
        }
        Ok(held)
    }
}
