//! Looking at jobs and health for those who listen to events.

use super::Node;

impl Node {
    /// Looks whether jobs or health are other than was told last, and tells it. Does nothing while nobody listens.
    pub(crate) async fn tell_news(&self) {
        let events = self.events();
        if !events.has_listeners() {
            return;
        }
        let jobs = self.job_list().await.unwrap_or_default();
        let status = self.status().await.ok();
        events.tell_news(jobs, status);
    }
}
