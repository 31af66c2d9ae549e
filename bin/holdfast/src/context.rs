//! What every command needs: the node, how to print, how to ask.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use control_api::{Code, DEFAULT_SOCKET, List, Problem, SOCKET_NAME, Status};
use control_client::{Client, ClientError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{CliError, CliResult};

/// Where the node keeps its data when nothing else is said.
pub(crate) const DEFAULT_DATA_DIR: &str = "/var/lib/holdfast";

/// Where `holdfast demo` keeps its data when nothing else is said.
pub(crate) const DEFAULT_DEMO_DIR: &str = "holdfast-demo";

/// What every command needs.
pub(crate) struct Context {
    /// The node.
    pub(crate) client: Client,
    /// Print JSON.
    pub(crate) json: bool,
    /// Nobody is asked.
    pub(crate) yes: bool,
}

impl Context {
    /// Finds the node: `--node`, then `HOLDFAST_SOCKET`, then the places where a node puts its socket.
    pub(crate) fn new(node: Option<&Path>, json: bool, yes: bool) -> Self {
        Self { client: Client::new(find_socket(node)), json, yes }
    }

    /// Prints an answer: as JSON, or as `human` does.
    pub(crate) fn show<T: Serialize>(&self, answer: &T, human: impl FnOnce(&T)) -> CliResult {
        if self.json {
            print_json(answer)
        } else {
            human(answer);
            Ok(())
        }
    }

    /// Asks for a list and prints it.
    pub(crate) async fn show_list<T>(&self, path: &str, human: impl FnOnce(&[T])) -> CliResult
    where
        T: Serialize + DeserializeOwned,
    {
        let list: List<T> = self.client.get(path).await?;
        self.show_answered(&list, human)
    }

    /// Prints a list, and says which nodes have not told of theirs.
    fn show_answered<T: Serialize>(&self, list: &List<T>, human: impl FnOnce(&[T])) -> CliResult {
        for silent in list.unanswered.iter().filter(|_| !self.json) {
            eprintln!("node {}: {}", silent.node, silent.detail);
        }
        self.show(list, |list| human(&list.items))
    }

    /// The same of what is not known before pools are open: an empty list of a node that is still starting does not say that there
    /// is nothing.
    pub(crate) async fn show_list_of_pools<T>(&self, path: &str, human: impl FnOnce(&[T])) -> CliResult
    where
        T: Serialize + DeserializeOwned,
    {
        // Before the list: what opens in between is in it.
        let status: Status = self.client.get("/status").await?;
        let list: List<T> = self.client.get(path).await?;
        if !status.ready {
            eprintln!(
                "The node is still starting: pools and volumes are being opened, and what is in them is not all listed yet."
            );
            if list.items.is_empty() && !self.json {
                return Ok(());
            }
        }
        self.show_answered(&list, human)
    }

    /// Sends a request that may destroy something: says what, asks, and sends it again with the confirmation.
    pub(crate) async fn confirmed<T>(
        &self,
        send: impl AsyncFn(Option<String>) -> Result<T, ClientError>,
    ) -> CliResult<T> {
        let problem = match send(None).await {
            Err(ClientError::Problem(problem)) if problem.code == Code::ConfirmationRequired => problem,
            other => return Ok(other?),
        };
        let name = problem.confirm.clone().unwrap_or_default();
        if self.json && !self.yes {
            // A program reads it, and is not asked.
            let todo = Some("If you want this, repeat the command with --yes.".to_owned());
            return Err(ClientError::Problem(Box::new(Problem { todo, ..*problem })).into());
        }
        let tell = |before| problem.destroys.iter().for_each(|line| eprintln!("{before}{line}"));
        if self.yes {
            return told_when_done(send(Some(name)), || {
                if !self.json {
                    tell("")
                }
            })
            .await;
        }
        eprintln!("If you go on:");
        tell("  ");
        ask(&name)?;
        Ok(send(Some(name)).await?)
    }
}

impl Context {
    /// Says what something costs, and asks whether it shall be done.
    ///
    /// # Errors
    /// As [`confirm`].
    pub(crate) fn agree(&self, cost: &str, name: &str) -> CliResult {
        confirm(cost, name, self.json, self.yes)
    }
}

/// What a command destroys reads as something that has happened, so who is not asked is told of it when it has.
async fn told_when_done<T>(
    doing: impl Future<Output = Result<T, ClientError>>,
    tell: impl FnOnce(),
) -> CliResult<T> {
    let done = doing.await?;
    tell();
    Ok(done)
}

/// Says what something costs that no node is asked for, and asks whether it shall be done.
///
/// # Errors
/// When it shall not, or nobody can be asked and `yes` does not say so.
pub(crate) fn confirm(cost: &str, name: &str, json: bool, yes: bool) -> CliResult {
    if yes {
        return Ok(());
    }
    if json {
        // A program reads it, and is not asked.
        return Err(CliError::here(format!("{cost} If you want this, repeat the command with --yes.")));
    }
    eprintln!("{cost}");
    ask(name)
}

fn ask(name: &str) -> CliResult {
    if !io::stdin().is_terminal() {
        return Err(CliError::here("nothing was done: repeat the command with --yes if you want this."));
    }
    eprint!("Type {name} to go on: ");
    let _ = io::stderr().flush();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(CliError::here)?;
    if line.trim() == name { Ok(()) } else { Err(CliError::here("nothing was done.")) }
}

/// Prints JSON for people and programs alike.
pub(crate) fn print_json(value: &impl Serialize) -> CliResult {
    let text = serde_json::to_string_pretty(value).map_err(CliError::here)?;
    // A closed pipe (`| head`) is not an error worth a message.
    let _ = writeln!(io::stdout(), "{text}");
    Ok(())
}

fn find_socket(node: Option<&Path>) -> PathBuf {
    let from_env = std::env::var_os("HOLDFAST_SOCKET").filter(|text| !text.is_empty()).map(PathBuf::from);
    if let Some(path) = node.map(Path::to_owned).or(from_env) {
        return if path.is_dir() { path.join(SOCKET_NAME) } else { path };
    }
    let in_dir = |dir: &str| Path::new(dir).join(SOCKET_NAME);
    [PathBuf::from(DEFAULT_SOCKET), in_dir(DEFAULT_DATA_DIR), in_dir(DEFAULT_DEMO_DIR)]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| DEFAULT_SOCKET.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines say what is gone, in the words of what has been done.
    #[test]
    fn what_goes_is_told_when_it_is_gone() {
        use std::cell::Cell;
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let refused = || Problem::new(Code::InUse, "somebody has it open");
        for works in [false, true] {
            let (sent, told) = (Cell::new(0), Cell::new(0));
            let answer = async {
                assert_eq!(told.get(), 0);
                sent.set(sent.get() + 1);
                if works { Ok(()) } else { Err(ClientError::Problem(Box::new(refused()))) }
            };
            let mut done = pin!(told_when_done(answer, || told.set(told.get() + 1)));
            let Poll::Ready(done) = done.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("it waits")
            };
            assert_eq!((done.is_ok(), sent.get(), told.get()), (works, 1, u32::from(works)));
        }
    }

    #[test]
    fn node_may_be_a_socket_or_a_data_directory() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(find_socket(Some(dir.path())), dir.path().join(SOCKET_NAME));
        let socket = dir.path().join("other.sock");
        assert_eq!(find_socket(Some(&socket)), socket);
    }
}
