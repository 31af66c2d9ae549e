//! The connection under a channel: begun when something is to be sent, given up when the owner says nothing, begun anew.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use tcp_service::SendQueue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::Stream;
use super::channel::Channel;
use crate::frames::{invalid, read_data, read_head};
use crate::wire::{Call, Hello, Reply, VERSION, framed};

/// From the first packet to the answered greeting.
const GREETING: Duration = Duration::from_millis(1500);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// So often it is looked at what waits, and whether the owner is there.
const LOOK: Duration = Duration::from_millis(250);
/// An owner that is expected to say something and says nothing for so many looks is asked; and given up after so many.
const ASK_AFTER: u32 = 2;
const GIVE_UP_AFTER: u32 = 8;
/// Read at once; data of this length goes straight to its place.
const READ: usize = 64 << 10;
/// Data up to here is copied behind its head.
const COPIED: usize = 1 << 10;
/// Bytes that wait for the socket, beyond which no further command joins them.
const HIGH_WATER: usize = 4 << 20;

/// Keeps a channel's connection for as long as its shard lives.
pub(super) async fn keep(channel: Arc<Channel>) {
    loop {
        while !channel.is_wanted() {
            channel.woken.notified().await;
        }
        let connecting = shard_runtime::timeout(GREETING, begin(&channel));
        tokio::pin!(connecting);
        let begun = loop {
            match shard_runtime::timeout(LOOK, &mut connecting).await {
                Some(begun) => break begun.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())),
                None => channel.expire(),
            }
        };
        let ended = match begun {
            Ok((stream, tick, me)) => {
                channel.up(tick);
                let ended = run(&channel, stream, me).await;
                channel.down();
                ended
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!("commands for node {}: {error}", channel.owner);
        }
        shard_runtime::sleep(PAUSE).await;
        channel.expire();
    }
}

/// Shows that the shard turns, also when no initiator wants anything.
pub(super) async fn turn(channel: Arc<Channel>) {
    loop {
        channel.turn();
        shard_runtime::sleep(LOOK).await;
    }
}

/// A connection, the owner's time, and who this node is on it.
async fn begin(channel: &Channel) -> io::Result<(Box<dyn Stream>, u64, (u16, u64))> {
    let dial = &channel.shared.dial;
    let me = dial.me().ok_or(io::ErrorKind::NotConnected)?;
    let (from, incarnation) = me;
    let mut stream = dial.dial(channel.owner).await?;
    let hello = Hello { version: VERSION, from, incarnation, to: channel.owner, channel: channel.number };
    stream.write_all(&framed(&Call::Hello(hello).encode(), 0)).await?;
    stream.flush().await?;
    let (head, data) = read_head(&mut stream).await?;
    match Reply::decode(&head).map_err(invalid)? {
        Reply::Welcome { version, tick } if version <= VERSION && data == 0 => Ok((stream, tick, me)),
        Reply::Refused(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not greet")),
    }
}

async fn run(channel: &Channel, stream: Box<dyn Stream>, me: (u16, u64)) -> io::Result<()> {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::with_capacity(READ, read);
    let heard = std::cell::Cell::new(true);
    let mut queue = SendQueue::default();
    let mut woken = Box::pin(channel.woken.notified());
    let speak = std::future::poll_fn(|cx| {
        // Enabled before the look, so that nothing is missed.
        while woken.poll_unpin(cx).is_ready() {
            woken.set(channel.woken.notified());
        }
        poll_speak(channel, &mut queue, &mut write, cx)
    });
    tokio::select! {
        biased;
        result = hear(channel, &mut read, &heard) => result,
        result = speak => result,
        result = watch(channel, me, &heard) => result,
    }
}

async fn hear(
    channel: &Channel,
    stream: &mut (impl AsyncRead + Unpin),
    heard: &std::cell::Cell<bool>,
) -> io::Result<()> {
    loop {
        let (head, len) = read_head(stream).await?;
        heard.set(true);
        let reply = Reply::decode(&head).map_err(invalid)?;
        if len > 0 && (!reply.carries_data() || len > channel.data_allowed(&reply)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more data than was asked for"));
        }
        let data = read_data(stream, len).await?;
        if !channel.heard(reply, data) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to nothing"));
        }
    }
}

fn poll_speak(
    channel: &Channel,
    queue: &mut SendQueue,
    stream: &mut (impl AsyncWrite + Unpin),
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        while queue.waiting() < HIGH_WATER
            && let Some((call, data)) = channel.next()
        {
            let data = data.filter(|data| !data.is_empty());
            let head = framed(&call.encode(), data.as_ref().map_or(0, |data| data.len()));
            queue.small(|bytes| bytes.extend_from_slice(&head));
            match data {
                Some(data) if data.len() > COPIED => queue.large(data),
                Some(data) => queue.small(|bytes| bytes.extend_from_slice(&data)),
                None => {}
            }
        }
        match queue.poll_send(stream, cx) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    match Pin::new(stream).poll_flush(cx) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        _ => Poll::Pending,
    }
}

/// Gives up what waits too long, an owner that says nothing, and the connection when this node's life is over: the owner begins nothing that
/// comes over it any more, and says so of each command, though nothing is wrong with the connection.
async fn watch(channel: &Channel, me: (u16, u64), heard: &std::cell::Cell<bool>) -> io::Result<()> {
    let mut silent = 0;
    loop {
        shard_runtime::sleep(LOOK).await;
        channel.expire();
        if channel.shared.dial.me() != Some(me) {
            return Err(io::Error::other("this node's life is over"));
        }
        silent = if heard.replace(false) || !channel.expects() { 0 } else { silent + 1 };
        if silent >= GIVE_UP_AFTER {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it says nothing"));
        }
        if silent >= ASK_AFTER {
            channel.ask();
        }
    }
}
