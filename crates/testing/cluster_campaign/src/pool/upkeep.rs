//! What an owner does beside serving: disks that were away come back, stale copies are repaired, dirty blocks become clean.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::Pool;
use crate::disk::{Block, Command, DiskIndex, Metadata};
use crate::fence::{Trouble, fence};
use crate::life::SECOND;

impl Pool {
    /// Brings back disks that were away, repairs what they lack, and forgets what is dirty; until something fails.
    pub(crate) async fn look_after(self: Rc<Self>) {
        let mut round = 0_u64;
        loop {
            self.life.sleep(SECOND / 2).await;
            round += 1;
            let result = async {
                for disk in 0..self.plan.disks.len() {
                    if self.session(disk).is_none() {
                        self.rejoin(disk).await?;
                    }
                }
                for block in 0..self.plan.blocks {
                    self.repair(block).await?;
                    if round.is_multiple_of(3) {
                        self.clean(block).await?;
                    }
                }
                Ok(())
            };
            if let Err(trouble) = result.await {
                return self.report(Err(trouble));
            }
        }
    }

    async fn rejoin(&self, disk: DiskIndex) -> Result<(), Trouble> {
        let session = self.life.new_session();
        match fence(&self.life, self.node, self.plan.disks[disk], self.epoch, session).await {
            Err(Trouble::Away) => Ok(()),
            Err(Trouble::Fenced) => Err(Trouble::Fenced),
            Ok(session) => {
                let _guard = self.commits.take(&self.life).await;
                self.sessions.borrow_mut()[disk] = Some(session);
                // What is dirty may have been written without it.
                self.commit(|metadata| self.miss(metadata, &BTreeSet::from([disk]))).await
            }
        }
    }

    async fn repair(&self, block: Block) -> Result<(), Trouble> {
        for copy in self.plan.copies(block) {
            let stale = self.metadata.borrow().stale.contains(&(copy, block));
            if !stale || self.session(copy).is_none() {
                continue;
            }
            let _guard = self.blocks[block].take(&self.life).await;
            let value = self.read(block).await?;
            let session = self.session(copy);
            match self.command(copy, Command::Write(block, value)).await {
                Ok(_) => {
                    let _commits = self.commits.take(&self.life).await;
                    if session.is_some() && self.session(copy) == session {
                        let repaired = |metadata: &mut Metadata| {
                            if self.session(copy) == session {
                                metadata.stale.remove(&(copy, block));
                            }
                        };
                        self.commit(repaired).await?;
                    }
                }
                Err(Trouble::Fenced) => return Err(Trouble::Fenced),
                Err(Trouble::Away) => self.lose(copy).await?,
            }
        }
        Ok(())
    }

    async fn clean(&self, block: Block) -> Result<(), Trouble> {
        if !self.metadata.borrow().dirty.contains(&block) {
            return Ok(());
        }
        let _guard = self.blocks[block].take(&self.life).await;
        let _commits = self.commits.take(&self.life).await;
        self.commit(|metadata| {
            metadata.dirty.remove(&block);
        })
        .await
    }
}
