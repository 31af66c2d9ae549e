//! A member that the supervisor of this process runs, so that it lives on when the node dies: what the two say to each other.
//!
//! `etcd start JSON`, `etcd stop` and `etcd status` go over the way to the keeper of listening sockets; each is answered at once, with how the
//! member is then. The node asks again and again, as nobody tells it.

use std::io::{self, ErrorKind};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::command::{EtcdMemberConfig, First};
use crate::own::{EtcdStatus, OwnProcess};

/// What every request begins with.
const WORD: &str = "etcd ";

/// What is asked of the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Start {
        config: EtcdMemberConfig,
        first: Option<First>,
    },
    /// Cleanly.
    Stop,
    /// At once.
    Kill,
    Status,
}

/// How the supervisor's member is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Running(u32),
    Waiting(String),
    /// It has been told to end, and has not yet.
    Ending,
    /// There is none.
    None,
    /// It cannot be started; why.
    Failed(String),
}

/// The member that a supervisor runs for the nodes that are its children, one after the other. Ends with this value.
#[derive(Debug, Default)]
pub struct EtcdKeeper(std::sync::Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
enum Kept {
    #[default]
    None,
    Running(Box<EtcdMemberConfig>, OwnProcess),
    Ending,
}

impl EtcdKeeper {
    /// Whether a request of a child is for this.
    #[must_use]
    pub fn is_asked(text: &str) -> bool {
        text.starts_with(WORD)
    }

    /// Carries out what a child asks; answers at once.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub fn asked(&self, text: &str) -> io::Result<String> {
        let text = text.strip_prefix(WORD).ok_or(ErrorKind::InvalidInput)?;
        let answer = match serde_json::from_str(text)? {
            Request::Start { config, first } => self.start(config, first),
            Request::Stop => self.stop(),
            Request::Kill => {
                *self.0.lock() = Kept::None;
                Answer::None
            }
            Request::Status => self.status(),
        };
        Ok(serde_json::to_string(&answer)?)
    }

    fn start(&self, config: EtcdMemberConfig, first: Option<First>) -> Answer {
        let mut kept = self.0.lock();
        match &*kept {
            Kept::Ending => return Answer::Ending,
            Kept::Running(running, process) if **running == config => return told(process),
            // Ends at once; the one that is started waits for its ports if need be.
            Kept::Running(..) | Kept::None => *kept = Kept::None,
        }
        match OwnProcess::start(config.clone(), first) {
            Ok(process) => {
                let answer = told(&process);
                *kept = Kept::Running(Box::new(config), process);
                answer
            }
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    fn stop(&self) -> Answer {
        let mut kept = self.0.lock();
        let process = match std::mem::replace(&mut *kept, Kept::Ending) {
            Kept::Running(_, process) => process,
            Kept::Ending => return Answer::Ending,
            Kept::None => {
                *kept = Kept::None;
                return Answer::None;
            }
        };
        let all = self.0.clone();
        let end = move || {
            process.stop_and_wait();
            let mut kept = all.lock();
            if matches!(*kept, Kept::Ending) {
                *kept = Kept::None;
            }
        };
        match std::thread::Builder::new().name("etcd stops".into()).spawn(end) {
            Ok(_) => Answer::Ending,
            Err(_) => {
                // Its process went with the closure.
                *kept = Kept::None;
                Answer::None
            }
        }
    }

    fn status(&self) -> Answer {
        match &*self.0.lock() {
            Kept::None => Answer::None,
            Kept::Ending => Answer::Ending,
            Kept::Running(_, process) => told(process),
        }
    }
}

fn told(process: &OwnProcess) -> Answer {
    match process.status() {
        EtcdStatus::Running(pid) => Answer::Running(pid),
        EtcdStatus::Waiting(why) => Answer::Waiting(why),
    }
}

fn ask(request: &Request) -> io::Result<Answer> {
    let answer = kept_listeners::ask_beside(&format!("{WORD}{}", serde_json::to_string(request)?))?;
    Ok(serde_json::from_str(&answer)?)
}

/// Has the supervisor start it, or go on with the one of this configuration that it has.
pub(crate) fn ask_start(config: &EtcdMemberConfig, first: Option<&First>) -> io::Result<Answer> {
    ask(&Request::Start { config: config.clone(), first: first.cloned() })
}

/// Has the supervisor end it.
pub(crate) fn ask_stop() -> io::Result<Answer> {
    ask(&Request::Stop)
}

/// Has the supervisor end it at once.
pub(crate) fn ask_kill() -> io::Result<Answer> {
    ask(&Request::Kill)
}

/// How it is with the supervisor.
pub(crate) fn ask_status() -> io::Result<Answer> {
    ask(&Request::Status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused() {
        let keeper = EtcdKeeper::default();
        for text in ["", "etcd", "etcd ", "etcd go", "etcd {\"start\":{}}", "listen 1.2.3.4:5"] {
            assert!(keeper.asked(text).is_err(), "{text}");
        }
        assert!(EtcdKeeper::is_asked("etcd \"status\"") && !EtcdKeeper::is_asked("etcetera"));
        assert_eq!(keeper.asked("etcd \"status\"").expect("answered"), "\"none\"");
    }
}
