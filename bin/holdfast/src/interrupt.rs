//! Ctrl-C and SIGTERM, for commands that tidy up before they end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its making on, neither ends the program by itself.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_are_heard() {
        for name in ["TERM", "INT"] {
            let mut interrupts = Interrupts::new().expect("listening");
            let me = std::process::id().to_string();
            let sent =
                std::process::Command::new("kill").args(["-s", name, &me]).status().expect("kill runs");
            assert!(sent.success());
            interrupts.wait().await;
        }
    }
}
