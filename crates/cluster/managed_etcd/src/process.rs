//! The member of a node, whoever runs it.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::command::{EtcdMemberConfig, First};
use crate::kept::{self, Answer};
use crate::own::{EtcdStatus, OwnProcess, ProcessError, watch_over};

/// The supervisor is asked so often how its member is, and while that ends.
const LOOKS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(20));

/// A member at work: run by the supervisor of this process, where there is one, and then it outlives a crash of this process; otherwise by
/// this process itself. It ends with this value: cleanly by [`Self::stop`], at once when this is dropped.
#[derive(Debug)]
pub struct EtcdProcess(OwnProcess);

impl EtcdProcess {
    /// Starts it; whether it answers, clients see. `first` counts only if there is no data yet. One that the supervisor has run for a process before
    /// this one goes on.
    ///
    /// # Errors
    /// When a program is missing, or the folder of its data cannot be made.
    pub fn start(config: EtcdMemberConfig, first: Option<First>) -> Result<Self, ProcessError> {
        if !kept_listeners::is_kept() {
            return OwnProcess::start(config, first).map(Self);
        }
        let data = config.data.clone();
        let started = OwnProcess::looked_after(&data, async move |mut stopped, tell| {
            if left_alone(&config, first.as_ref(), &mut stopped, &tell).await {
                watch_over(config, first, stopped, tell).await;
            }
        });
        started.map(Self)
    }

    /// How it is now.
    #[must_use]
    pub fn status(&self) -> EtcdStatus {
        self.0.status()
    }

    /// Ends it, and returns when it has ended.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

/// Has the supervisor run it, until it is to end. True when the supervisor is gone, or cannot: then it is this process's own matter; what
/// the supervisor ran has ended with it.
async fn left_alone(
    config: &EtcdMemberConfig,
    first: Option<&First>,
    stopped: &mut mpsc::Receiver<()>,
    tell: &watch::Sender<EtcdStatus>,
) -> bool {
    let mut asked = kept::ask_start(config, first);
    let mut told_to_stop = false;
    loop {
        let ends = matches!(asked, Ok(Answer::Ending));
        let status = match asked {
            Ok(Answer::Running(pid)) => EtcdStatus::Running(pid),
            Ok(Answer::Waiting(why) | Answer::Failed(why)) => EtcdStatus::Waiting(why),
            Ok(Answer::None) if told_to_stop => return false,
            Ok(Answer::Ending | Answer::None) => EtcdStatus::Waiting("it is being started".into()),
            Err(error) => {
                tracing::warn!(%error, "the supervisor does not run etcd: this process does it itself");
                return !told_to_stop;
            }
        };
        tell.send_if_modified(|told| {
            let changed = *told != status;
            *told = status;
            changed
        });
        if told_to_stop {
            sleep(LOOKS.1).await;
            asked = kept::ask_status();
            continue;
        }
        asked = tokio::select! {
            // None: whoever wanted it is gone, and nobody waits for its end.
            wanted = stopped.recv() => {
                if wanted.is_none() {
                    // Whoever wanted it is gone. An error means that the supervisor is, too, and the member with it.
                    let _ = kept::ask_kill();
                    return false;
                }
                told_to_stop = true;
                kept::ask_stop()
            }
            () = sleep(if ends { LOOKS.1 } else { LOOKS.0 }) => kept::ask_start(config, first),
        };
    }
}
