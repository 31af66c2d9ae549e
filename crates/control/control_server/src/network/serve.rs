//! Accepting connections, and serving HTTP on them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use control_api::{Code, Problem};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::limits::{Connections, Limits, Place};
use super::stall::Stalling;
use super::{Peer, Shown};
use crate::http::Failure;

/// What accepts on one address.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) tls: TlsAcceptor,
    pub(super) router: Router,
    pub(super) connections: Arc<Connections>,
    pub(super) requests: Arc<Connections>,
    pub(super) limits: Limits,
    /// Its sender is dropped when all is to end.
    pub(super) stopped: watch::Receiver<()>,
}

impl Acceptor {
    /// Accepts until it is stopped.
    pub(super) async fn run(self, listener: TcpListener) {
        let mut stopped = self.stopped.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // Nothing is ever sent: this ends when the sender is dropped.
                _ = stopped.changed() => return,
            };
            match accepted {
                Ok((stream, from)) => match self.connections.take(from.ip(), &self.limits) {
                    Some(place) => drop(tokio::spawn(self.clone().connection(stream, from, place))),
                    // Closed unanswered: an answer would cost a handshake.
                    None => tracing::debug!(%from, "API connection refused: there are too many"),
                },
                Err(error) => {
                    // Out of descriptors, most likely: waiting lets others close theirs.
                    tracing::warn!(%error, "API connection not accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream, from: SocketAddr, _place: Place) {
        let _ = stream.set_nodelay(true);
        let stream = Stalling::new(stream, self.limits.stall);
        let tls = match tokio::time::timeout(self.limits.handshake, self.tls.accept(stream)).await {
            Ok(Ok(tls)) => tls,
            // Scanners do this all day.
            Ok(Err(error)) => return tracing::debug!(%from, %error, "no TLS"),
            Err(_) => return tracing::debug!(%from, "no TLS in time"),
        };
        let shown = Shown(tls.get_ref().1.peer_certificates().map(Into::into));
        let mut stopped = self.stopped.clone();
        let limits = self.limits;
        let service = service_fn(move |request| {
            let (this, shown) = (self.clone(), shown.clone());
            async move { Ok::<_, Infallible>(this.answer(request, from, shown).await) }
        });
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(limits.head_bytes)
            .max_headers(limits.headers);
        let mut connection = pin!(server.serve_connection(TokioIo::new(tls), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                let ended = tokio::time::timeout(super::DRAIN, connection).await;
                ended.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%from, %error, "API connection ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>, from: SocketAddr, shown: Shown) -> Response {
        let Some(room) = self.requests.take(from.ip(), &self.limits.of_requests()) else {
            let problem = Problem::new(Code::Unavailable, "Too many requests are under way.")
                .todo("Ask again in a moment.");
            let mut response = Failure::from(problem).into_response();
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return response;
        };
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer::Network(from));
        request.extensions_mut().insert(shown);
        // What is begun goes on when the connection is cut, and takes its place until it ends.
        let room = Arc::new(room);
        request.extensions_mut().insert(Arc::clone(&room));
        match TowerToHyperService::new(self.router.clone()).call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
