//! READ, WRITE, FLUSH and LOCK (MS-SMB2 3.3.5.11 to 3.3.5.14).

use aligned_buffer::{IoBuf, SharedBuf};
use observe::IoKind;
use qos_gate::{Kind, Permit};
use smb_protocol::NtStatus;
use smb_protocol::file::FlushRequest;
use smb_protocol::lock::LockRequest;
use smb_protocol::read::{Channel, ReadRequest};
use smb_protocol::write::{WriteFlags, WriteRequest};

use super::{Call, shared_disk, turn};
use crate::connection::answer::{Body, HEADROOM, Outcome};
use crate::connection::receive::Packet;
use crate::open::persistence;
use crate::open::{Open, Thing};
use crate::session::Session;

/// Runs a read or write of a file of a share, counted there and for the session; `bytes` says how many its result moved. Its time is
/// that at the volume: what it was held back before is its flow's, whose queue has the same clock.
pub(super) async fn counted<T, E>(
    call: &Call<'_>,
    (session, open): (&Session, &Open),
    (kind, permit): (IoKind, Option<Permit>),
    bytes: impl FnOnce(&T) -> usize,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Some(share) = open.tree.share() else { return work.await };
    let clock = &call.conn.shared.parts.clock;
    let _under_way = share.counters.io.begin();
    let since = permit.as_ref().map_or_else(|| clock.now(), Permit::since);
    let result = work.await;
    let moved = result.as_ref().map_or(0, bytes);
    let now = clock.now();
    let took = now.since(since);
    if let Some(permit) = permit {
        permit.leave(now);
    }
    for tally in [&share.counters.io, &session.io] {
        tally.record(kind, moved as u64, took, result.is_ok());
    }
    result
}

/// READ.
pub(crate) async fn read(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let ReadRequest { length, offset, file_id, minimum_count, channel, .. } =
        ReadRequest::decode(call.message())?;
    if channel != Channel::NONE {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    call.check_charge(0, length)?;
    let open = call.open(session, file_id)?;
    let file = match &open.thing {
        Thing::File(file) => file,
        Thing::Pipe(pipe) => {
            let (data, more) = pipe.read(length as usize).await.ok_or(NtStatus::PIPE_EMPTY)?;
            let status = if more { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
            let mut buf = IoBuf::new(HEADROOM + data.len());
            if let Some(place) = buf.get_mut(HEADROOM..) {
                place.copy_from_slice(&data);
            }
            return Ok(Outcome { status, body: Body::Read(buf) });
        }
    };
    let permit = match &open.disk {
        Some(_) => None,
        None => turn::turn(call, session, &open, Kind::Read, u64::from(length)).await?,
    };
    let _counted = call.sequenced(&open)?;
    let mut tail = IoBuf::new(HEADROOM + length as usize);
    let mut buf = tail.split_to(HEADROOM);
    let read = async {
        match &open.disk {
            Some(_) => {
                let of = (&*open, shared_disk::flow(call, session, &open));
                shared_disk::read(&call.conn.shared, of, offset, tail).await.map_err(Outcome::from)
            }
            None => file.read(offset, tail).await.map_err(Outcome::from),
        }
    };
    let tail = counted(call, (session, &open), (IoKind::Read, permit), |tail| tail.len(), read).await?;
    if tail.len() < minimum_count as usize || (tail.is_empty() && length > 0) {
        return Err(NtStatus::END_OF_FILE.into());
    }
    if let Err(tail) = buf.join(tail) {
        // The store gave another buffer back.
        buf = IoBuf::new(HEADROOM + tail.len());
        if let Some(place) = buf.get_mut(HEADROOM..) {
            place.copy_from_slice(&tail);
        }
    }
    Ok(Outcome::ok(Body::Read(buf)))
}

/// WRITE.
pub(crate) async fn write(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = WriteRequest::decode(call.message())?;
    if request.channel != Channel::NONE {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let len = request.data.len();
    call.check_charge(len, 0)?;
    let open = call.open(session, request.file_id)?;
    let (from, to) = (call.range.start + request.data.start, call.range.start + request.data.end);
    let file = match &open.thing {
        Thing::File(file) => file,
        Thing::Pipe(pipe) => {
            pipe.write(call.packet.bytes().get(from..to).unwrap_or_default().to_vec()).await?;
            return Ok(Outcome::ok(Body::Written(len as u32)));
        }
    };
    let permit = match &open.disk {
        Some(_) => None,
        None => turn::turn(call, session, &open, Kind::Write, len as u64).await?,
    };
    let _counted = call.sequenced(&open)?;
    // A client that comes back with another session is let in when this has ended: what it sends again comes after it.
    let _writing = call.session()?.begin_write()?;
    let data: SharedBuf = if call.last {
        std::mem::replace(call.packet, Packet::empty()).into_data(from..to).freeze()
    } else {
        IoBuf::copy_from(call.packet.bytes().get(from..to).unwrap_or_default()).freeze()
    };
    let flags = smb_files::WriteFlags { write_through: request.flags.contains(WriteFlags::WRITE_THROUGH) };
    if open.disk.is_some() {
        let of = (&*open, shared_disk::flow(call, session, &open));
        let write = shared_disk::write(&call.conn.shared, of, request.offset, data);
        let count =
            counted(call, (session, &open), (IoKind::Write, permit), |count| *count as usize, write).await?;
        return Ok(Outcome::ok(Body::Written(count)));
    }
    let write = file.write(request.offset, data, flags);
    let count = counted(call, (session, &open), (IoKind::Write, permit), |count| *count as usize, write).await.inspect_err(|error| {
        if error.status == NtStatus::DISK_FULL && call.conn.may_tell("write refused") {
            tracing::warn!(remote = %call.conn.peer.remote, user = session.user().name(), path = file.path(), reason = %error.reason, "SMB write refused: no space");
        }
    })?;
    Ok(Outcome::ok(Body::Written(count)))
}

/// FLUSH.
pub(crate) async fn flush(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = FlushRequest::from_message(call.message())?;
    let open = call.open(session, request.file_id)?;
    if let Thing::File(file) = &open.thing {
        let _counted = call.sequenced(&open)?;
        match &open.disk {
            Some(_) => {
                let of = (&*open, shared_disk::flow(call, session, &open));
                shared_disk::flush(&call.conn.shared, of).await?;
            }
            None => file.flush().await?,
        }
    }
    Ok(Outcome::ok(Body::Empty))
}

/// LOCK.
pub(crate) async fn lock(call: &mut Call<'_>, session: &Session) -> Result<Outcome, Outcome> {
    let request = LockRequest::decode(call.packet.message(&call.range))?;
    let (index, number) = (request.sequence_index(), request.sequence_number());
    let elements: Vec<_> = request.locks().collect();
    let open = call.open(session, request.file_id)?;
    let file = open.file()?;
    if open.disk.is_some() {
        // A disk has no byte ranges (MS-RSVD 3.2.4).
        return Err(NtStatus::LOCK_NOT_GRANTED.into());
    }
    let _counted = call.sequenced(&open)?;
    let remembers =
        call.dialect() != smb_protocol::Dialect::SMB_2_0_2 && (open.lasts() || call.is_multichannel());
    if remembers && open.state.lock().sequence.lock_was_done(index, number) {
        // The first one may have been dropped with its connection before it came so far.
        persistence::save(&open).await?;
        return Ok(Outcome::ok(Body::Empty));
    }
    let pending = call.pending.clone();
    file.lock(&elements, &|waits| pending.say_waiting(waits)).await?;
    if remembers {
        open.state.lock().sequence.lock_done(index, number);
    }
    persistence::save(&open).await?;
    Ok(Outcome::ok(Body::Empty))
}
