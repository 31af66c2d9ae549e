//! Commands in progress as futures that can be aborted.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use scsi_core::ScsiResponse;

/// What a future in the connection's set ended with.
pub(super) enum Done {
    /// A command; `None` when it is not to be answered.
    Command(u32, Option<ScsiResponse>),
    /// A task management function: tag, response code, and whether the sessions of the target end now.
    Management { itt: u32, response: u8, cold: bool, numbered: bool },
    /// Aborted by [`Abort::abort`].
    Aborted,
}

/// Stops a command from outside.
#[derive(Default)]
pub(super) struct Abort {
    aborted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Abort {
    pub(super) fn abort(&self) {
        self.aborted.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future with its way out.
pub(super) struct Running {
    future: Option<Pin<Box<dyn Future<Output = Done>>>>,
    abort: Rc<Abort>,
}

impl Running {
    pub(super) fn new(abort: Rc<Abort>, future: impl Future<Output = Done> + 'static) -> Self {
        Self { future: Some(Box::pin(future)), abort }
    }
}

impl Future for Running {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        if self.abort.aborted.get() {
            self.future = None;
        }
        let Some(future) = &mut self.future else { return Poll::Ready(Done::Aborted) };
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            let mut waker = self.abort.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        polled
    }
}
