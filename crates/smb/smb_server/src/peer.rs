//! A connection as other threads see it: where to, and a box for mail.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use smb_protocol::oplock::BreakNotification;
use smb_protocol::security::sid::Sid;

use crate::places::Place;

/// What a connection is told from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mail {
    /// Tell the client that an oplock or lease is taken back.
    Break {
        /// Which session's open it is; decides whether the message is encrypted.
        session: u64,
        /// What to say.
        notification: BreakNotification,
    },
    /// A session has ended elsewhere (logged off on another channel, replaced, closed by the administrator).
    SessionEnded,
    /// Its client says that it has lost a session which it had over this connection: close it soon, unless it carries another one.
    Unused,
    /// Close the connection.
    Close,
    /// End it without a word: the address that the client came to is another machine's by now.
    Abandon,
}

/// What has passed over a connection.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its number in this process.
    pub(crate) id: u64,
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) shard: usize,
    pub(crate) counters: Counters,
    pub(crate) waker: AtomicWaker,
    mail: Mutex<Vec<Mail>>,
    gone: AtomicBool,
    /// Whether somebody who has proven who it is has logged in over it.
    is_client: AtomicBool,
    /// Sessions that it is a channel of and that have not ended.
    carries: AtomicUsize,
    /// Its place among all connections.
    place: Mutex<Option<Place>>,
}

impl Peer {
    pub(crate) fn new(id: u64, remote: SocketAddr, local: SocketAddr, shard: usize) -> Self {
        Self {
            id,
            remote,
            local,
            shard,
            counters: Counters::default(),
            waker: AtomicWaker::new(),
            mail: Mutex::new(Vec::new()),
            gone: AtomicBool::new(false),
            is_client: AtomicBool::new(false),
            carries: AtomicUsize::new(0),
            place: Mutex::new(None),
        }
    }

    /// It becomes a channel of a session.
    pub(crate) fn begins_to_carry(&self) {
        self.carries.fetch_add(1, Ordering::AcqRel);
    }

    /// It is a channel no more of a session that it was one of, or that has ended.
    pub(crate) fn carries_no_more(&self) {
        self.carries.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many sessions there are on it.
    pub(crate) fn carries(&self) -> usize {
        self.carries.load(Ordering::Acquire)
    }

    pub(crate) fn has_place(&self) -> bool {
        self.place.lock().is_some()
    }

    /// Holds its place among all connections, until that is given up.
    pub(crate) fn hold(&self, place: Place) {
        *self.place.lock() = Some(place);
    }

    /// Gives its place up; with `user` only when it is that user's.
    pub(crate) fn give_up_place(&self, user: Option<Sid>) -> Option<Place> {
        let mut place = self.place.lock();
        if user.is_some_and(|user| place.as_ref().is_none_or(|place| place.user != user)) {
            return None;
        }
        place.take()
    }

    /// Somebody has logged in and has proven who it is; says whether that is the first time.
    pub(crate) fn becomes_client(&self) -> bool {
        !self.is_client.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_client(&self) -> bool {
        self.is_client.load(Ordering::Acquire)
    }

    /// Leaves a message; `false` when the connection is gone and nobody will read it.
    pub(crate) fn tell(&self, mail: Mail) -> bool {
        {
            let mut waiting = self.mail.lock();
            if self.gone.load(Ordering::Acquire) {
                return false;
            }
            waiting.push(mail);
        }
        self.waker.wake();
        true
    }

    /// Takes all mail.
    pub(crate) fn take_mail(&self) -> Vec<Mail> {
        std::mem::take(&mut *self.mail.lock())
    }

    /// Takes the breaks that wait, with the sessions that they are for.
    pub(crate) fn take_breaks(&self) -> Vec<(u64, BreakNotification)> {
        let mut breaks = Vec::new();
        self.mail.lock().retain(|mail| match mail {
            Mail::Break { session, notification } => {
                breaks.push((*session, *notification));
                false
            }
            Mail::SessionEnded | Mail::Unused | Mail::Close | Mail::Abandon => true,
        });
        breaks
    }

    /// The client has gone.
    pub(crate) fn leave(&self) {
        let mut waiting = self.mail.lock();
        self.gone.store(true, Ordering::Release);
        waiting.clear();
    }
}
