//! The gate before each route: who asks, whether that is enough, and the record of what was changed.
//!
//! Invariants:
//! * A request without a [`Peer`], or of a route without a role, is refused: nothing is let in because something was forgotten.
//! * The body of a request is not looked at before it is known who asks, and who asks is looked at again when it is there: that may have
//!   taken long, and the user may be gone.
//! * What is begun comes to its end, though whoever asked for it goes away: a change that is dropped half-way would leave a volume closed, or
//!   open twice. Only what is streamed from the peer ends with the connection, and is made for that.
//! * What is asked for with a cookie and changes something must carry a header that pages of others cannot send, and an Origin,
//!   if there is one, that is this node's.

use std::sync::Arc;

use axum::RequestExt as _;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, RawPathParams, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use control_api::routes::{Method, Route};
use control_api::{Code, Problem, Proof, REQUEST_HEADER};

use super::attempt::Attempt;
use super::failure::{Failure, Outcome};
use super::look::Looks;
use super::relay::{self, Asked, Remembered};
use super::subject::{BODY, Subject};
use crate::access::Asker;
use crate::network::{Peer, Place, Through};
use crate::node::Node;
use crate::socket::SocketPeer;

/// A route, and who answers for it.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) node: Arc<Node>,
    pub(super) route: &'static Route,
    pub(super) remembered: Arc<Remembered>,
    pub(super) looks: Looks,
}

/// Who has asked: there where somebody is known.
pub(super) type Known = Option<Asker>;

impl Gate {
    fn changes(&self) -> bool {
        self.route.method != Method::Get
    }

    /// Who asks, if it may.
    fn admit(
        &self,
        peer: Peer,
        through: Option<&Through>,
        headers: &HeaderMap,
    ) -> (Known, Result<(), Problem>) {
        let asker = match peer {
            Peer::Node(_) => {
                through.map(|by| Asker::through_node(by.who.clone(), by.role, by.proof)).ok_or_else(|| {
                    Problem::new(Code::Unauthenticated, "The node does not say for whom it asks.")
                })
            }
            Peer::Socket(uid) => Ok(Asker::local(uid)),
            Peer::Network(_) => self.node.identify(headers),
        };
        let over_network = matches!(peer, Peer::Network(_));
        let Some(least) = self.route.least else {
            let same = if over_network && self.changes() { same_site(headers) } else { Ok(()) };
            return (asker.ok(), same);
        };
        match asker {
            Err(problem) => (None, Err(problem)),
            Ok(asker) if asker.role < least => {
                let detail = format!("This needs the role {least}; {} is {}.", asker.me().user, asker.role);
                let problem = Problem::new(Code::Forbidden, detail)
                    .todo("Ask an administrator, or use a token or user with that role.");
                (Some(asker), Err(problem))
            }
            Ok(asker) => {
                // What another node passes on it has looked at itself: a cookie ends there.
                let by_cookie = over_network && asker.proof == Proof::Session && self.changes();
                let same = if by_cookie { same_site(headers) } else { Ok(()) };
                (Some(asker), same)
            }
        }
    }
}

/// Whether a request that a browser sends by itself comes from the node's own pages.
fn same_site(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let refused = |detail: &str| Err(Problem::new(Code::Forbidden, detail));
    if !headers.contains_key(REQUEST_HEADER) {
        return refused(
            "A change with a session needs the header X-Holdfast-Request, so that pages of others cannot ask for it.",
        );
    }
    let Some(origin) = text(&header::ORIGIN) else { return Ok(()) };
    let host = text(&header::HOST).unwrap_or_default();
    match origin.strip_prefix("https://") {
        Some(from) if !host.is_empty() && from.eq_ignore_ascii_case(host) => Ok(()),
        _ => refused("This was asked by a page of another site."),
    }
}

/// Where a request comes from, as the listener that took it has said.
fn peer_of(request: &Request) -> Option<Peer> {
    let extensions = request.extensions();
    let socket = extensions.get::<ConnectInfo<SocketPeer>>().map(|ConnectInfo(peer)| Peer::from(*peer));
    extensions.get::<Peer>().copied().or(socket)
}

/// The gate.
pub(super) async fn gate(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Some(peer) = peer_of(&request) else {
        let problem = Problem::new(Code::Internal, "Nobody knows where this request comes from.");
        return Failure::from(problem).into_response();
    };
    request.extensions_mut().insert(peer);
    let through = request.extensions_mut().remove::<Through>();
    let (mut asker, mut admitted) = gate.admit(peer, through.as_ref(), request.headers());
    let mut attempt = if gate.changes() {
        let named = request.extract_parts::<RawPathParams>().await.ok();
        let names = named.iter().flat_map(|all| all.iter()).map(|(_, value)| value.to_owned()).collect();
        Some(Attempt::new(gate.node.clone(), gate.route, request.uri(), names, asker.as_ref(), peer))
    } else {
        None
    };
    let most = super::most_bytes(gate.route);
    if admitted.is_ok() {
        let (parts, body) = request.into_parts();
        let body = if let Peer::Socket(_) = peer { body } else { patient(body) };
        let body = match most {
            Some(most) => match whole(body, most, asker.is_some()).await {
                Ok(bytes) => {
                    (asker, admitted) = gate.admit(peer, through.as_ref(), &parts.headers);
                    Body::from(bytes)
                }
                Err(problem) => {
                    admitted = Err(problem);
                    Body::empty()
                }
            },
            None => body,
        };
        request = Request::from_parts(parts, body);
    }
    if let Err(problem) = admitted {
        if let Some(attempt) = &mut attempt {
            attempt.ended(problem.status, problem.code.as_str(), &problem.detail);
        }
        return Failure::from(problem).into_response();
    }
    if let Some(attempt) = &attempt {
        request.extensions_mut().insert::<Subject>(attempt.subject());
    }
    let asked = Asked {
        node: gate.node.clone(),
        route: gate.route,
        by: relay::by(asker.as_ref()),
        remembered: gate.remembered.clone(),
        looks: gate.looks.clone(),
        subject: attempt.as_ref().map(Attempt::subject),
        relayed: matches!(peer, Peer::Node(_)),
    };
    request.extensions_mut().insert::<Known>(asker);
    let place = request.extensions_mut().remove::<Arc<Place>>();
    let work = async move {
        let _place = place;
        let mut response = asked.answer(request, next).await;
        if let Some(attempt) = &mut attempt {
            let outcome = response.extensions().get::<Outcome>();
            let (result, reason) =
                outcome.map_or(("done", ""), |outcome| (outcome.0.as_str(), outcome.1.as_str()));
            let told = attempt.ended(response.status().as_u16(), result, reason);
            if let Peer::Node(_) = peer {
                told.put(response.headers_mut());
            }
        }
        response
    };
    if most.is_none() {
        return work.await;
    }
    tokio::spawn(work).await.unwrap_or_else(|error| {
        let problem = Problem::new(Code::Internal, format!("The request has failed: {error}."));
        Failure::from(problem).into_response()
    })
}

/// A body, all of it.
async fn whole(body: Body, most: usize, known: bool) -> Result<Bytes, Problem> {
    let limits = crate::network::Limits::default();
    let limit = if known { limits.body } else { limits.stranger };
    let wrong = |why: &str| Problem::new(Code::InvalidRequest, format!("{BODY}: {why}."));
    match tokio::time::timeout(limit, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(wrong(&error.to_string())),
        Err(_) => Err(wrong(&format!("it did not come within {} s", limit.as_secs()))),
    }
}

/// A body that breaks off when nothing of it comes for long.
fn patient(body: Body) -> Body {
    use futures_util::StreamExt as _;
    let limit = crate::network::Limits::default().stall;
    let frames = futures_util::stream::unfold(Some(body.into_data_stream()), move |stream| async move {
        let mut stream = stream?;
        match tokio::time::timeout(limit, stream.next()).await {
            Ok(frame) => Some((frame?, Some(stream))),
            Err(_) => {
                Some((Err(axum::Error::new(std::io::Error::other("nothing more came of it in time"))), None))
            }
        }
    });
    // Who throws away what is left of it asks once more after its end.
    Body::from_stream(frames.fuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_has_ended_stays_ended() {
        use futures_util::StreamExt as _;
        let mut body = patient(Body::from("x")).into_data_stream();
        let next = body.next().await.expect("a piece").expect("read");
        assert_eq!(next, "x");
        assert!(body.next().await.is_none() && body.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_breaks_off() {
        let slow = futures_util::stream::unfold(0_u32, |n| async move {
            // Each piece is late, the last one never comes.
            let wait = if n < 3 { 50 } else { 100_000 };
            tokio::time::sleep(std::time::Duration::from_secs(wait)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), n + 1))
        });
        let read = axum::body::to_bytes(patient(Body::from_stream(slow)), 100).await;
        assert!(read.expect_err("broken off").to_string().contains("in time"));
    }

    #[test]
    fn pages_of_others_are_refused() {
        let headers = |list: &[(&'static str, &str)]| -> HeaderMap {
            let pairs = list.iter().map(|(name, value)| {
                (header::HeaderName::from_static(name), value.parse().expect("a value"))
            });
            pairs.collect()
        };
        let own = [("host", "node1:8443"), (REQUEST_HEADER, "1")];
        assert!(same_site(&headers(&own)).is_ok());
        assert!(same_site(&headers(&own[..1])).is_err());
        for (origin, right) in [
            ("https://node1:8443", true),
            ("https://NODE1:8443", true),
            ("http://node1:8443", false),
            ("https://node1", false),
            ("https://node1:8443.example", false),
            ("https://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let all = [&own[..], &[("origin", origin)]].concat();
            assert_eq!(same_site(&headers(&all)).is_ok(), right, "{origin}");
        }
        assert!(same_site(&headers(&[("origin", "https://"), (REQUEST_HEADER, "1")])).is_err());
    }
}
