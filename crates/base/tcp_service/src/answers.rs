//! "May answers leave now?": asked when bytes are about to leave, which is the last moment at which what they say can be held back.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often it is asked again while answers, or connections, have to wait.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Says whether answers may leave.
pub trait AnswerPermit: Send + Sync + 'static {
    /// The life in which the node may answer now; none while it may not. Asked for each system call that sends: costs little.
    fn life(&self) -> Option<u64>;
}

/// Whether answers may leave: always, or while there is a permit. Clones ask the same.
#[derive(Clone, Default)]
pub struct Answers {
    permit: Option<Arc<dyn AnswerPermit>>,
    /// The life in which the connection began that these are for.
    began_in: Option<u64>,
}

impl Answers {
    /// While this permits it.
    #[must_use]
    pub fn while_permitted(permit: Arc<dyn AnswerPermit>) -> Self {
        Self { permit: Some(permit), began_in: None }
    }

    /// Whether they leave only while somebody permits it.
    #[must_use]
    pub fn are_permitted(&self) -> bool {
        self.permit.is_some()
    }

    /// Those of a connection that begins when this ends: not before there is a life to begin in. What a connection reads before would have to
    /// be thrown away with it at the first answer.
    pub(crate) async fn begin(&self) -> Self {
        let Some(permit) = &self.permit else { return Self::default() };
        loop {
            if let Some(life) = permit.life() {
                return Self { began_in: Some(life), ..self.clone() };
            }
            shard_runtime::sleep(ASK_EVERY).await;
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.permit.is_some() { "Answers(while permitted)" } else { "Answers(always)" })
    }
}

/// The gate of one connection.
///
/// Invariant: everything leaves in the life in which the connection began. What was read in a life before may be old by now, though the node
/// may answer again: others may have changed it in between. Such a connection ends.
#[derive(Default)]
pub(crate) struct Gate {
    answers: Answers,
    began_in: Option<u64>,
    waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.answers).field(&self.began_in).finish()
    }
}

impl Gate {
    /// Of a connection that begins now.
    pub(crate) fn new(answers: Answers) -> Self {
        let now = || answers.permit.as_ref().and_then(|permit| permit.life());
        let began_in = answers.began_in.or_else(now);
        Self { answers, began_in, waiting: None }
    }

    /// Whether bytes may leave; the task is woken to ask again when not.
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(permit) = &self.answers.permit else { return Ok(true) };
        loop {
            match permit.life() {
                Some(life) if self.began_in == Some(life) => {
                    self.waiting = None;
                    return Ok(true);
                }
                // It began without a permit, or in another life.
                Some(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
                None => {}
            }
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(shard_runtime::sleep(ASK_EVERY)));
            match waiting.as_mut().poll(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(()) => self.waiting = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::SendQueue;

    #[derive(Default)]
    struct Life(AtomicU64);

    impl AnswerPermit for Life {
        fn life(&self) -> Option<u64> {
            Some(self.0.load(Ordering::SeqCst)).filter(|life| *life > 0)
        }
    }

    fn queue(life: &Arc<Life>) -> SendQueue {
        let mut queue = SendQueue::default();
        queue.ask(Answers::while_permitted(life.clone()));
        queue.small(|bytes| bytes.extend_from_slice(b"answer"));
        queue
    }

    async fn sent(queue: &mut SendQueue) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::future::poll_fn(|cx| Poll::Ready(queue.poll_send(&mut bytes, cx))).await?;
        Ok(bytes)
    }

    #[tokio::test]
    async fn answers_wait_for_a_permit_and_leave_only_in_the_life_that_they_belong_to() {
        let life = Arc::new(Life(AtomicU64::new(7)));
        let mut one = queue(&life);
        assert_eq!(sent(&mut one).await.expect("permitted"), b"answer");
        one.small(|bytes| bytes.extend_from_slice(b"more"));
        life.0.store(0, Ordering::SeqCst);
        assert_eq!(sent(&mut one).await.expect("it waits"), b"");
        let late = queue(&life);
        life.0.store(7, Ordering::SeqCst);
        assert_eq!(sent(&mut one).await.expect("permitted again"), b"more");
        // What began without a permit may have read what others change.
        let mut late = late;
        assert!(sent(&mut late).await.is_err());
        one.small(|bytes| bytes.extend_from_slice(b"stale"));
        life.0.store(8, Ordering::SeqCst);
        assert!(sent(&mut one).await.is_err(), "its data may be of a time when others owned them");
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let life = Arc::new(Life(AtomicU64::new(7)));
        let mut one = queue(&life);
        life.0.store(0, Ordering::SeqCst);
        let mut looked = 0;
        let mut bytes = Vec::new();
        std::future::poll_fn(|cx| {
            looked += 1;
            if looked == 2 {
                life.0.store(7, Ordering::SeqCst);
            }
            let _ = one.poll_send(&mut bytes, cx).expect("permitted");
            if one.waiting() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(bytes, b"answer");
    }
}
