//! The terminal: progress, questions, Ctrl-C.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spd_engine::{Confirm, Control, Progress};
use spd_profile::display_size;

/// What a shell reports for a program that died of SIGINT: 128 + 2.
const INTERRUPTED: i32 = 130;

/// Progress on standard error if that is a terminal, and the signals that end a run.
pub(crate) struct Console {
    shows: bool,
    stop: Arc<AtomicBool>,
    /// A dot for so many operations of a thread (`-P`); 0: none.
    dot_every: u64,
    dots: AtomicU64,
}

impl Console {
    /// Begins to listen for signals.
    pub(crate) fn new(quiet: bool, dot_every: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        listen(&stop);
        let shows = !quiet && std::io::stderr().is_terminal();
        Self { shows, stop, dot_every: u64::from(dot_every), dots: AtomicU64::new(0) }
    }

    fn line(&self, text: &str) {
        if self.shows {
            // Over the line that is there; its end is cleared.
            eprint!("\r{text}\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }

    /// Shows a line that stays.
    pub(crate) fn note(&self, text: &str) {
        if self.shows {
            self.line(text);
            eprintln!();
        }
    }

    /// Shows a line that stays, whatever standard error is.
    pub(crate) fn warn(&self, text: &str) {
        self.line("");
        eprintln!("WARNING: {text}");
    }

    /// Whether a signal asked for the end.
    pub(crate) fn stopped(&self) -> &AtomicBool {
        &self.stop
    }

    /// Clears the line of progress.
    pub(crate) fn finish(&self) {
        self.line("");
        if self.dots.load(Ordering::Relaxed) > 0 {
            eprintln!();
        }
    }
}

/// The first SIGINT or SIGTERM asks the run to end with its report; the second ends the program.
fn listen(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    let work = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async move {
            use tokio::signal::unix::{SignalKind, signal};
            let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
            loop {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
                if stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
    };
    // Without the thread, signals end the program as they would any other.
    let _ = shard_runtime::spawn_thread("signals", work);
}

impl Control for Console {
    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: &Progress) {
        if let Some(dots) =
            progress.operations.iter().map(|done| done.checked_div(self.dot_every)).sum::<Option<u64>>()
        {
            let new = dots.saturating_sub(self.dots.swap(dots, Ordering::Relaxed));
            eprint!("{}", ".".repeat(new.min(1000) as usize));
            let _ = std::io::stderr().flush();
            return;
        }
        let phase = if progress.measuring { "" } else { " (not measured)" };
        self.line(&format!(
            "{:.0}/{:.0} s{phase}  {:.0} IOPS  {:.1} MiB/s  {:.3} ms",
            progress.elapsed,
            progress.whole,
            progress.iops,
            progress.bytes_per_second / 1_048_576.0,
            progress.latency_ms
        ));
    }
}

/// Questions before something is lost.
pub(crate) struct Asking<'a> {
    pub(crate) console: &'a Console,
    pub(crate) yes: bool,
}

impl Confirm for Asking<'_> {
    fn may_destroy(&self, what: &str) -> bool {
        if self.yes {
            return true;
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return false;
        }
        eprint!("This destroys {what}. Go on? [y/N] ");
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).is_ok()
            && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    fn made(&self, path: &str, bytes: u64, total: u64) -> bool {
        self.console.line(&format!("making {path}: {} of {}", display_size(bytes), display_size(total)));
        !self.console.stop()
    }
}
