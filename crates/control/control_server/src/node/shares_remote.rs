//! Changes of shares that clients ask for over the network.

use control_api::{Code, Problem, ShareCreate, ShareUpdate};

use super::Node;
use crate::backend::{SmbAdministration, Work};

impl Node {
    /// Ends when no other change is under way. A node that stops takes no more: who asks would wait for it for ever, and
    /// it for who asks.
    async fn my_turn(&self) -> Result<(), Problem> {
        let stopping = || Problem::new(Code::Unavailable, "The node is stopping.");
        tokio::select! {
            biased;
            () = self.stopped() => Err(stopping()),
            _turn = self.changes.lock() => Ok(()),
        }
    }
}

impl SmbAdministration for Node {
    fn share_create(&self, mut request: ShareCreate) -> Work<'_, ()> {
        Box::pin(async move {
            self.my_turn().await?;
            // Case does not count in what clients say of paths.
            let said = request.volume.take().unwrap_or_default();
            let volumes: Vec<String> = self.volumes.lock().keys().cloned().collect();
            let is = |name: &&String| upcase::same(name, &said);
            let volume = volumes.iter().find(|name| **name == said).or_else(|| volumes.iter().find(is));
            let volume = volume
                .ok_or_else(|| Problem::new(Code::NotFound, format!("There is no volume {said}.")))?
                .clone();
            // On Windows, too, a folder is there before it is shared.
            self.file_stat(&volume, request.folder.as_deref().unwrap_or("/")).await?;
            request.volume = Some(volume);
            self.share_create(request).await.map(drop)
        })
    }

    fn share_update(&self, name: String, update: ShareUpdate) -> Work<'_, ()> {
        Box::pin(async move {
            self.my_turn().await?;
            self.share_update(&name, update).await.map(drop)
        })
    }

    fn share_delete(&self, name: String) -> Work<'_, ()> {
        Box::pin(async move {
            self.my_turn().await?;
            self.share_delete(&name, Some(name.clone())).await.map(drop)
        })
    }
}
