//! What a case tells beside its verdict. Cases that run at the same time tell it when they end, so that lines of two do not mix.

use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Tells a line about the case that runs on this thread.
#[macro_export]
macro_rules! note {
    ($($words:tt)*) => { $crate::notes::add(format!($($words)*)) };
}

/// Keeps what is told on this thread, until [`take`].
pub fn keep() {
    KEPT.with(|kept| *kept.borrow_mut() = Some(Vec::new()));
}

/// What was kept, line by line; nothing when everything was printed at once.
pub fn take() -> Vec<String> {
    KEPT.with(|kept| kept.borrow_mut().take()).unwrap_or_default()
}

/// See [`note!`](crate::note).
pub fn add(line: String) {
    KEPT.with(|kept| match &mut *kept.borrow_mut() {
        Some(lines) => lines.push(line),
        None => println!("{line}"),
    });
}
