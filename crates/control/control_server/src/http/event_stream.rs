//! Events as a stream of server-sent events (HTML Standard 9.2): `event:` is the kind, `data:` the event as JSON.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use control_api::{EventKind, Role};
use futures_util::stream::unfold;
use tokio::sync::broadcast::Receiver;

use super::failure::Failure;
use super::parts::S;
use crate::network::Peer;
use crate::node::Node;

/// How often it is looked whether whoever listens still may; as often something is sent, so that those who have gone are noticed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// One who listens.
struct Listener {
    node: Arc<Node>,
    events: Receiver<control_api::Event>,
    headers: HeaderMap,
    peer: Peer,
}

impl Listener {
    /// Whether it still may. Listening is no use of a session: one who has gone away is logged out in time.
    fn may(&self) -> bool {
        match self.peer {
            // Nodes are not told of events: who asks another node listens there.
            Peer::Node(_) => false,
            Peer::Socket(_) => true,
            Peer::Network(_) => {
                self.node.identify_again(&self.headers).is_ok_and(|asker| asker.role >= Role::Viewer)
            }
        }
    }

    /// The next event; none when it is to come again: too slow, not allowed any more, or the node stops.
    async fn next(&mut self) -> Option<control_api::Event> {
        loop {
            match tokio::time::timeout(LOOK_EVERY, self.events.recv()).await {
                Ok(event) => return event.ok().filter(|_| self.may()),
                Err(_) if self.may() => {}
                Err(_) => return None,
            }
        }
    }
}

/// The handler.
pub(super) async fn listen(
    State(node): S,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let events = node.events().listen()?;
    let listener = Listener { node, events, headers, peer };
    let stream = unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        let kind = match event.kind {
            EventKind::Changed => "changed",
            EventKind::Job => "job",
            EventKind::Health => "health",
            EventKind::Finding => "finding",
        };
        let data = serde_json::to_string(&event).unwrap_or_default();
        Some((Ok::<_, Infallible>(Event::default().event(kind).data(data)), listener))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(LOOK_EVERY)).into_response())
}
