//! Persistent reservations: who may write to a disk that several initiators share.

use std::collections::BTreeSet;

use block_device::{
    BlockErrorKind, Device, Durability, Reservation, ReservationKind, Reservations, UnmapBehavior,
};
use futures_util::future::join_all;
use futures_util::poll;

use crate::SubjectFuture;
use crate::check::{DEVICE, Outcome, data, done, fail, get, holds, put, refused};
use crate::pattern::{self, Found};

const GROUP: &str = "reservations";
const FENCED: &[BlockErrorKind] = &[BlockErrorKind::Fenced];
/// Keys of the three initiators.
const KEYS: [u64; 3] = [0x0005_0001, 0x0006_0002, 0x0007_0003];

/// What is tested: a way to make disks that several initiators share.
pub trait SharedSubject {
    /// A new disk of at least [`crate::MIN_SIZE`] bytes, without registrations, as so many initiators see it.
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>>;

    /// Whether only the holder of the reservation writes, and no other registrant, as a device may have it.
    fn holder_alone_writes(&self) -> bool {
        false
    }
}

/// Runs the suite for [`Reservations`], with a fresh disk for each group of checks.
///
/// # Errors
/// The first sentence of the contract that the device breaks.
pub async fn run_reservations<S: SharedSubject>(subject: &S) -> Outcome {
    keys(&subject.create_shared(3).await).await?;
    who_may_write(&subject.create_shared(3).await, subject.holder_alone_writes()).await?;
    conditions(&subject.create_shared(3).await).await?;
    shared_keys(&subject.create_shared(3).await).await?;
    no_ghosts(&subject.create_shared(2).await).await
}

fn of(device: &Device) -> Outcome<&dyn Reservations> {
    match device.reservations() {
        Some(reservations) => Ok(reservations),
        None => fail(GROUP, "the device offers no reservations".into()),
    }
}

async fn shows(device: &Device, keys: &[u64], holder: Option<u64>) -> Outcome {
    let reservations = of(device)?;
    let found = done(GROUP, "read keys", reservations.keys().await)?;
    if found != keys.iter().copied().collect::<BTreeSet<_>>() {
        return fail(GROUP, format!("the keys are {found:x?}, not {keys:x?}"));
    }
    let found = done(GROUP, "read the reservation", reservations.reservation().await)?;
    let kind = ReservationKind::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
    let wanted = holder.map(|holder| Reservation { holder, kind });
    if found != wanted {
        return fail(GROUP, format!("the reservation is {found:x?}, not {wanted:x?}"));
    }
    Ok(())
}

/// Registering, with another key, and not at all.
async fn keys(devices: &[Device]) -> Outcome {
    let [a, b, c] = devices else { return fail(GROUP, "the subject made not three initiators".into()) };
    shows(a, &[], None).await?;
    done(GROUP, "unregister without a registration", of(a)?.unregister().await)?;
    done(GROUP, "register", of(a)?.register(KEYS[0]).await)?;
    done(GROUP, "register", of(b)?.register(KEYS[1]).await)?;
    for device in [a, b, c] {
        shows(device, &KEYS[..2], None).await?;
    }
    done(GROUP, "register again", of(a)?.register(KEYS[2]).await)?;
    shows(b, &KEYS[1..], None).await?;
    // Without a reservation registrations forbid nothing.
    put(GROUP, c, 0, 8192, 1).await?;
    done(GROUP, "unregister", of(a)?.unregister().await)?;
    shows(b, &KEYS[1..2], None).await?;
    // A holder that registers anew holds on; one that unregisters lets go.
    done(GROUP, "reserve", of(b)?.reserve(KEYS[1]).await)?;
    shows(c, &KEYS[1..2], Some(KEYS[1])).await?;
    done(GROUP, "register a holder anew", of(b)?.register(KEYS[2]).await)?;
    shows(c, &KEYS[2..], Some(KEYS[2])).await?;
    done(GROUP, "unregister a holder", of(b)?.unregister().await)?;
    shows(c, &[], None).await?;
    put(GROUP, c, 0, 8192, 2).await
}

/// Every operation of holder, registrant and stranger.
async fn who_may_write(devices: &[Device], holder_alone: bool) -> Outcome {
    let [a, b, c] = devices else { return fail(GROUP, "the subject made not three initiators".into()) };
    let len = 16 * u64::from(a.geometry().block_size);
    put(GROUP, a, 0, len, 1).await?;
    done(GROUP, "register", of(a)?.register(KEYS[0]).await)?;
    done(GROUP, "reserve", of(a)?.reserve(KEYS[0]).await)?;
    done(GROUP, "reserve again", of(a)?.reserve(KEYS[0]).await)?;
    for stranger in [b, c] {
        for durability in [Durability::Volatile, Durability::Durable] {
            let written = stranger.write(0, data(0, len as usize, 9), durability).await;
            refused(GROUP, "a stranger's write", written, FENCED)?;
            let zeroed = stranger.write_zeroes(0, len, durability).await;
            refused(GROUP, "a stranger's write_zeroes", zeroed, FENCED)?;
        }
        let parts = vec![data(0, len as usize / 2, 9), data(len / 2, len as usize / 2, 9)];
        let written = stranger.write_vectored(0, parts, Durability::Durable).await;
        refused(GROUP, "a stranger's vectored write", written, FENCED)?;
        if stranger.geometry().unmap != UnmapBehavior::Ignored {
            refused(GROUP, "a stranger's unmap", stranger.unmap(0, len).await, FENCED)?;
        }
        holds(GROUP, stranger, 0, len, |_| 1).await?;
    }
    done(GROUP, "register", of(b)?.register(KEYS[1]).await)?;
    if holder_alone {
        let written = b.write(0, data(0, len as usize, 9), Durability::Durable).await;
        refused(GROUP, "a registrant's write", written, FENCED)?;
        put(GROUP, a, 0, len, 2).await?;
    } else {
        put(GROUP, b, 0, len, 2).await?;
    }
    done(GROUP, "a registrant's flush", b.flush().await)?;
    put(GROUP, a, len, len, 3).await?;
    holds(GROUP, c, 0, 2 * len, |place| if place < len { 2 } else { 3 }).await
}

/// What must not succeed, and changes nothing.
async fn conditions(devices: &[Device]) -> Outcome {
    let [a, b, c] = devices else { return fail(GROUP, "the subject made not three initiators".into()) };
    refused(GROUP, "reserving without a registration", of(a)?.reserve(KEYS[0]).await, FENCED)?;
    done(GROUP, "register", of(a)?.register(KEYS[0]).await)?;
    refused(GROUP, "reserving with another key", of(a)?.reserve(KEYS[1]).await, FENCED)?;
    shows(a, &KEYS[..1], None).await?;
    done(GROUP, "reserve", of(a)?.reserve(KEYS[0]).await)?;
    done(GROUP, "register", of(b)?.register(KEYS[1]).await)?;
    refused(GROUP, "reserving what another holds", of(b)?.reserve(KEYS[1]).await, FENCED)?;
    let stranger = of(c)?.preempt_and_abort(KEYS[2], KEYS[0]).await;
    refused(GROUP, "a stranger's preempt", stranger, FENCED)?;
    let other_key = of(b)?.preempt_and_abort(KEYS[2], KEYS[0]).await;
    refused(GROUP, "preempting with another key than one's own", other_key, FENCED)?;
    let nobody = of(b)?.preempt_and_abort(KEYS[1], KEYS[2]).await;
    refused(GROUP, "preempting a key that nobody has", nobody, FENCED)?;
    shows(c, &KEYS[..2], Some(KEYS[0])).await?;
    // One who is no holder loses its registration only.
    done(GROUP, "preempt a registrant", of(a)?.preempt_and_abort(KEYS[0], KEYS[1]).await)?;
    shows(c, &KEYS[..1], Some(KEYS[0])).await?;
    refused(
        GROUP,
        "a preempted one's write",
        b.write(0, data(0, 4096, 9), Durability::Durable).await,
        FENCED,
    )?;
    // The holder's place is taken, once.
    done(GROUP, "register", of(b)?.register(KEYS[1]).await)?;
    done(GROUP, "register", of(c)?.register(KEYS[2]).await)?;
    done(GROUP, "preempt the holder", of(b)?.preempt_and_abort(KEYS[1], KEYS[0]).await)?;
    shows(c, &KEYS[1..], Some(KEYS[1])).await?;
    let late = of(c)?.preempt_and_abort(KEYS[2], KEYS[0]).await;
    refused(GROUP, "preempting who was preempted", late, FENCED)?;
    refused(
        GROUP,
        "the old holder's write",
        a.write(0, data(0, 4096, 9), Durability::Durable).await,
        FENCED,
    )?;
    refused(GROUP, "the old holder's preempt", of(a)?.preempt_and_abort(KEYS[0], KEYS[1]).await, FENCED)?;
    shows(a, &KEYS[1..], Some(KEYS[1])).await?;
    put(GROUP, b, 0, 8192, 4).await
}

/// Two initiators under one key lose it together.
async fn shared_keys(devices: &[Device]) -> Outcome {
    let [a, b, c] = devices else { return fail(GROUP, "the subject made not three initiators".into()) };
    done(GROUP, "register", of(a)?.register(KEYS[0]).await)?;
    done(GROUP, "register", of(b)?.register(KEYS[0]).await)?;
    shows(c, &KEYS[..1], None).await?;
    done(GROUP, "reserve", of(b)?.reserve(KEYS[0]).await)?;
    done(GROUP, "register", of(c)?.register(KEYS[2]).await)?;
    done(GROUP, "preempt both", of(c)?.preempt_and_abort(KEYS[2], KEYS[0]).await)?;
    shows(a, &KEYS[2..], Some(KEYS[2])).await?;
    for preempted in [a, b] {
        let written = preempted.write(0, data(0, 4096, 9), Durability::Durable).await;
        refused(GROUP, "the write of one of two under a preempted key", written, FENCED)?;
    }
    Ok(())
}

/// Writes that are under way when their initiator is preempted do not land behind the one who preempts.
async fn no_ghosts(devices: &[Device]) -> Outcome {
    let [old, new] = devices else { return fail(GROUP, "the subject made not two initiators".into()) };
    let block = u64::from(old.geometry().block_size);
    const WRITES: u64 = 24;
    for round in 0..8_u64 {
        let (key, successor) = (0x10 + 2 * round, 0x11 + 2 * round);
        done(GROUP, "register", of(old)?.register(key).await)?;
        if let Some(found) = done(GROUP, "read the reservation", of(old)?.reservation().await)?
            && found.holder != key
        {
            done(GROUP, "preempt", of(old)?.preempt_and_abort(key, found.holder).await)?;
        } else {
            done(GROUP, "reserve", of(old)?.reserve(key).await)?;
        }
        let mut writes: Vec<_> = (0..WRITES)
            .map(|n| old.write(n * block, data(n * block, block as usize, 100 + round), Durability::Durable))
            .collect();
        let mut left = Vec::new();
        for mut write in writes.drain(..) {
            if poll!(write.as_mut()).is_pending() {
                left.push(write);
            }
        }
        done(GROUP, "register", of(new)?.register(successor).await)?;
        done(GROUP, "preempt", of(new)?.preempt_and_abort(successor, key).await)?;
        put(GROUP, new, 0, WRITES * block, 200 + round).await?;
        // However these end, they change nothing any more.
        join_all(left).await;
        let found = get(GROUP, new, 0, WRITES * block).await?;
        for (index, sector) in found.chunks(pattern::SECTOR).enumerate() {
            let place = (index * pattern::SECTOR) as u64;
            let wanted = Found::Written { device: DEVICE, offset: place, generation: 200 + round };
            if pattern::identify(sector) != wanted {
                return fail(GROUP, format!("a preempted write has landed at {place}, behind its successor"));
            }
        }
    }
    Ok(())
}
