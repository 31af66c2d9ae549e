//! Reservations: the table says who may, the image's lock sees to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockError, BlockErrorKind, BlockFuture, Reservation, ReservationKind, Reservations};
use librbd::Failure;

use crate::RbdDisk;
use crate::session::{Session, blocking};
use crate::table::{Conflict, Table};

/// How often a change of the table is tried again when others change it: as many as nodes that want the disk at the same moment, and more.
const ATTEMPTS: usize = 32;

impl RbdDisk {
    /// Changes the table; `change` says what it needs to know of the state before.
    async fn change_table<T>(
        &self,
        doing: &'static str,
        change: impl Fn(&mut Table, &str) -> Result<T, Conflict>,
    ) -> Result<(Arc<Session>, Table, T), BlockError> {
        for _ in 0..ATTEMPTS {
            let mut session = self.live(doing).await?;
            let read = match self.table(&session, doing).await {
                // Shut out, which is how we learn of it: what is wanted is asked for by a new client.
                Err(error) if error.kind() == BlockErrorKind::Fenced => {
                    session = self.live(doing).await?;
                    self.table(&session, doing).await?
                }
                read => read?,
            };
            let (before, version) = read;
            let mut table = before.clone();
            let told = change(&mut table, session.address())
                .map_err(|Conflict| self.refused(doing, "the disk's reservation is another one".into()))?;
            if table == before {
                return Ok((session, table, told));
            }
            let (writer, bytes) = (Arc::clone(&session), table.encode());
            match blocking(move || writer.write_table(&bytes, version)).await {
                Ok(true) => return Ok((session, table, told)),
                Ok(false) => {}
                Err(failure) => {
                    self.learn(&session, &failure);
                    return Err(self.error(failure, doing));
                }
            }
        }
        let why = "others change the table of its reservations all the time";
        Err(BlockError::new(BlockErrorKind::Io, doing).on(&self.name).because(why))
    }

    /// Looks at the table, and finishes what was begun: the holder has the lock.
    async fn look(&self, doing: &'static str) -> Result<Table, BlockError> {
        let (session, table, ()) = self.change_table(doing, |_, _| Ok(())).await?;
        self.hold(&session, &table, doing).await?;
        Ok(table)
    }

    /// Takes the lock, if the table says that this client holds the reservation.
    async fn hold(
        &self,
        session: &Arc<Session>,
        table: &Table,
        doing: &'static str,
    ) -> Result<(), BlockError> {
        let holds = table.holder().is_some_and(|(_, holder)| holder == session.address());
        if !holds || session.writes.load(Ordering::Acquire) {
            return Ok(());
        }
        self.with(session, doing, |session| session.take_lock()).await
    }

    async fn with(
        &self,
        session: &Arc<Session>,
        doing: &'static str,
        work: impl FnOnce(&Session) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), BlockError> {
        let worker = Arc::clone(session);
        blocking(move || work(&worker)).await.map_err(|failure| {
            self.learn(session, &failure);
            self.error(failure, doing)
        })
    }

    async fn end_registration(&self) -> Result<(), BlockError> {
        let doing = "unregister";
        let _alone = self.changing.lock().await;
        let change = |table: &mut Table, address: &str| {
            table.unregister(address);
            Ok(())
        };
        let (session, _, ()) = self.change_table(doing, change).await?;
        *self.key.lock() = None;
        // What is written from now on asks the table first.
        if session.writes.swap(false, Ordering::AcqRel) {
            self.with(&session, doing, |session| session.image.unlock()).await?;
        }
        Ok(())
    }
}

impl Reservations for RbdDisk {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if key == 0 {
                return self.end_registration().await;
            }
            let _alone = self.changing.lock().await;
            self.change_table("register", |table, address| table.register(address, key)).await?;
            *self.key.lock() = Some(key);
            Ok(())
        })
    }

    fn unregister(&self) -> BlockFuture<'_, ()> {
        Box::pin(self.end_registration())
    }

    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        Box::pin(async move {
            let _alone = self.changing.lock().await;
            Ok(self.look("read keys").await?.keys())
        })
    }

    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        Box::pin(async move {
            let _alone = self.changing.lock().await;
            let table = self.look("read the reservation").await?;
            let kind = ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
            Ok(table.holder().map(|(holder, _)| Reservation { holder, kind }))
        })
    }

    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let doing = "reserve";
            let _alone = self.changing.lock().await;
            let change = |table: &mut Table, address: &str| table.reserve(address, key);
            let (session, table, ()) = self.change_table(doing, change).await?;
            self.hold(&session, &table, doing).await
        })
    }

    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let doing = "preempt and abort";
            if victim == key {
                return Err(BlockError::new(BlockErrorKind::Unsupported, "preempt oneself").on(&self.name));
            }
            let _alone = self.changing.lock().await;
            let change = |table: &mut Table, address: &str| {
                let victims = table.addresses(victim);
                table.preempt(address, key, victim).map(|()| victims)
            };
            let (session, table, victims) = self.change_table(doing, change).await?;
            self.hold(&session, &table, doing).await?;
            // One that wrote while nobody held the reservation has the lock without it.
            let stop = move |session: &Session| match session.image.lock_owner()? {
                Some(owner) if victims.contains(&owner) => session.image.break_lock(&owner),
                _ => Ok(()),
            };
            self.with(&session, doing, stop).await
        })
    }
}
