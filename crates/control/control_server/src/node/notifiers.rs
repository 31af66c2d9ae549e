//! Who is told of findings, as the API has it, and the task that tells them.

use std::sync::Arc;
use std::time::Duration;

use control_api::{Code, Done, Notifier, NotifierStatus, Problem};

use super::{Node, confirm};
use crate::notify::{Notifications, check};

/// How often it is looked whether something is to be sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Node {
    /// Sends what waits until the node stops.
    pub(crate) async fn notify(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.stopped() => return,
            }
            for due in self.notifications.due(self.uptime_seconds()) {
                let node = self.clone();
                tokio::spawn(async move {
                    let result = due.send().await;
                    node.notifications.ended(&due, node.uptime_seconds(), result);
                });
            }
        }
    }

    /// Who is told of findings.
    pub(crate) fn notifier_list(&self) -> Vec<NotifierStatus> {
        self.notifications.list()
    }

    /// Has somebody told, or changes how.
    ///
    /// # Errors
    /// When it makes no sense, there are too many, or it cannot be kept.
    pub(crate) async fn notifier_set(
        self: &Arc<Self>,
        name: &str,
        asked: Notifier,
    ) -> Result<NotifierStatus, Problem> {
        if !asked.name.is_empty() && asked.name != name {
            return Err(Problem::new(Code::InvalidRequest, "The body names another notifier than the path."));
        }
        let notifier = Notifier { name: name.to_owned(), ..asked };
        check(&notifier)?;
        self.change_notifiers(move |all| all.set(notifier)).await
    }

    /// Changes who is told, to its end also when nobody waits for it any more.
    async fn change_notifiers<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Notifications) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let node = self.clone();
        let changed = tokio::task::spawn_blocking(move || change(&node.notifications)).await;
        changed.unwrap_or_else(|error| Err(Problem::new(Code::Internal, error.to_string())))
    }

    /// Tells it no more.
    ///
    /// # Errors
    /// When there is none such, or it cannot be kept.
    pub(crate) async fn notifier_remove(
        self: &Arc<Self>,
        name: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        self.notifications.get(name)?;
        confirm(name, confirmed.as_deref(), || {
            vec!["It is told of no findings any more, and what waits for it is not sent.".to_owned()]
        })?;
        let gone = name.to_owned();
        self.change_notifiers(move |all| all.remove(&gone)).await?;
        Ok(Done::new(format!("{name} is told of findings no more.")))
    }

    /// Sends a notification that says that it is a test.
    ///
    /// # Errors
    /// When it is not taken, with the reason.
    pub(crate) async fn notifier_test(&self, name: &str) -> Result<Done, Problem> {
        self.notifications.test(name, &self.name(), self.clocks().1).await?;
        Ok(Done::new(format!("{name} has taken the test.")))
    }
}
