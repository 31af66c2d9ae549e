//! One connection to each etcd, made when it is needed, and which of them is asked.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::RwLock;
use prost::Message;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::call::{self, CallError, Sender, framed};
use crate::messages::{StatusRequest, StatusResponse};
use crate::options::{self, Endpoint, Options, OptionsError, Patience, Tls};
use crate::verdict;

/// etcd refuses to be asked for a sign of life more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// What may be on its way to us, of one stream and of all.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

pub(crate) struct Place {
    endpoint: Endpoint,
    /// One dial at a time; the others wait for it.
    connection: Mutex<Option<Sender>>,
}

/// The endpoints of one moment; whoever waits for one of them goes on with it when there are others meanwhile.
struct Places {
    all: Vec<Arc<Place>>,
    /// Whom the next request goes to.
    current: AtomicUsize,
}

impl Places {
    fn current(&self) -> (usize, &Arc<Place>) {
        let index = self.current.load(Ordering::Relaxed) % self.all.len().max(1);
        (index, &self.all[index])
    }

    /// What comes next goes to another endpoint than this one, unless somebody has seen to that.
    fn leave(&self, place: &Arc<Place>) {
        let (index, current) = self.current();
        let next = (index + 1) % self.all.len().max(1);
        if !Arc::ptr_eq(place, current) || next == index {
            return;
        }
        let left = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        if left.is_ok() {
            let (from, to) = (&place.endpoint.url, &self.all[next].endpoint.url);
            tracing::debug!("etcd: {from} is left for {to}");
        }
    }
}

pub(crate) struct Endpoints {
    /// Never without one.
    places: RwLock<Arc<Places>>,
    tls: RwLock<Option<Arc<ClientConfig>>>,
    pub(crate) patience: Patience,
    cluster: Arc<OnceLock<u64>>,
    runtime: Handle,
}

impl Place {
    fn new(endpoint: Endpoint) -> Arc<Self> {
        Arc::new(Self { endpoint, connection: Mutex::default() })
    }

    pub(crate) fn url(&self) -> &str {
        &self.endpoint.url
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.places().all.iter().map(|place| &place.endpoint.url)).finish()
    }
}

impl Endpoints {
    pub(crate) fn new(options: Options, runtime: Handle) -> Result<Self, OptionsError> {
        let places = options::endpoints(&options.endpoints, options.tls.is_some())?;
        let tls = options.tls.as_ref().map(options::client_config).transpose()?;
        let cluster = Arc::new(OnceLock::new());
        if let Some(id) = options.cluster_id {
            cluster.get_or_init(|| id);
        }
        let all = places.into_iter().map(Place::new).collect();
        Ok(Self {
            places: RwLock::new(Arc::new(Places { all, current: AtomicUsize::new(0) })),
            tls: RwLock::new(tls),
            patience: options.patience,
            cluster,
            runtime,
        })
    }

    pub(crate) fn cluster_id(&self) -> Option<u64> {
        self.cluster.get().copied()
    }

    pub(crate) fn set_tls(&self, tls: &Tls) -> Result<(), OptionsError> {
        let config = options::client_config(tls)?;
        let mut present = self.tls.write();
        if present.is_none() {
            return Err(options::OptionsError::without_tls());
        }
        *present = Some(config);
        Ok(())
    }

    pub(crate) fn set_endpoints(&self, texts: &[String]) -> Result<(), OptionsError> {
        let wanted = options::endpoints(texts, self.tls.read().is_some())?;
        let mut present = self.places.write();
        let all = wanted.into_iter().map(|endpoint| {
            let there = present.all.iter().find(|place| place.endpoint.url == endpoint.url);
            there.cloned().unwrap_or_else(|| Place::new(endpoint))
        });
        let all: Vec<_> = all.collect();
        // Whoever is asked now is asked on.
        let now = &present.current().1.endpoint.url;
        let current = all.iter().position(|place| place.endpoint.url == *now).unwrap_or(0);
        *present = Arc::new(Places { all, current: AtomicUsize::new(current) });
        Ok(())
    }

    fn places(&self) -> Arc<Places> {
        self.places.read().clone()
    }

    /// What comes next goes to another endpoint, unless somebody has seen to that.
    pub(crate) fn leave(&self, place: &Arc<Place>) {
        self.places().leave(place);
    }

    /// Waits for an endpoint; after some silence it is left to those who are waiting already.
    async fn patiently<T>(&self, place: &Arc<Place>, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(self.patience.rotate_after) => self.leave(place),
        }
        work.await
    }

    /// One request and its answer, from whichever endpoint has one. It is sent once.
    pub(crate) async fn call<Answer: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> Result<Answer, CallError> {
        let request = framed(request);
        let patience = self.patience.request;
        let sent = AtomicBool::new(false);
        let attempts = async {
            let mut why = String::new();
            for _ in 0..self.places().all.len() {
                let (place, mut sender) = match self.connect().await {
                    Ok(connected) => connected,
                    Err(error) => {
                        why = error;
                        continue;
                    }
                };
                let url = place.url();
                sent.store(true, Ordering::Relaxed);
                let answer = self
                    .patiently(&place, call::unary(&mut sender, url, path, request.clone(), patience))
                    .await;
                match answer {
                    Err(CallError::NotSent(error)) => {
                        sent.store(false, Ordering::Relaxed);
                        self.leave(&place);
                        why = format!("{url}: {error}");
                    }
                    Err(CallError::Broken(error)) => {
                        self.leave(&place);
                        return Err(CallError::Broken(format!("{url}: {error}")));
                    }
                    Err(CallError::Status(status)) if verdict::blames_the_member(&status) => {
                        self.leave(&place);
                        return Err(CallError::Status(status));
                    }
                    other => return other,
                }
            }
            Err(CallError::NotSent(why))
        };
        match timeout(patience, attempts).await {
            Ok(answer) => answer,
            Err(_) if sent.load(Ordering::Relaxed) => {
                Err(CallError::Broken(format!("etcd: no answer in {patience:?}")))
            }
            Err(_) => Err(CallError::NotSent(format!("etcd: no connection in {patience:?}"))),
        }
    }

    /// A connection to the endpoint whose turn it is, which loses its turn when there is none.
    pub(crate) async fn connect(&self) -> Result<(Arc<Place>, Sender), String> {
        let place = self.places().current().1.clone();
        let sender = self.patiently(&place, self.sender(&place)).await;
        match sender {
            Ok(sender) => Ok((place, sender)),
            Err(why) => {
                self.leave(&place);
                Err(format!("{}: {why}", place.url()))
            }
        }
    }

    /// All of them, whoever is asked now.
    pub(crate) fn all(&self) -> Vec<Arc<Place>> {
        self.places().all.clone()
    }

    /// A connection to this endpoint.
    pub(crate) async fn sender(&self, place: &Place) -> Result<Sender, String> {
        let mut connection = place.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        *connection = None;
        let tls = self.tls.read().clone();
        let (patience, endpoint, cluster) =
            (self.patience.connect, place.endpoint.clone(), self.cluster.clone());
        // On the runtime where the connection is to live, whoever it is that waits.
        let dialled = self.runtime.spawn(async move {
            match timeout(patience, dial(&endpoint, tls, patience, &cluster)).await {
                Ok(dialled) => dialled,
                Err(_) => Err(format!("no connection in {patience:?}")),
            }
        });
        let sender = dialled.await.map_err(|_| "the runtime has ended".to_owned())??;
        *connection = Some(sender.clone());
        Ok(sender)
    }
}

/// Connects, and makes sure that it is the same etcd as ever.
async fn dial(
    endpoint: &Endpoint,
    tls: Option<Arc<ClientConfig>>,
    patience: Duration,
    cluster: &OnceLock<u64>,
) -> Result<Sender, String> {
    let error = |error: std::io::Error| error.to_string();
    let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(error)?;
    tcp.set_nodelay(true).map_err(error)?;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let http = |error: hyper::Error| format!("HTTP/2: {error}");
    let mut sender = match (tls, &endpoint.name) {
        (Some(config), Some(name)) => {
            let stream = TlsConnector::from(config).connect(name.clone(), tcp).await;
            let stream = stream.map_err(|error| format!("TLS: {error}"))?;
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(http)?;
            tokio::spawn(connection);
            sender
        }
        _ => {
            let (sender, connection) = builder.handshake(TokioIo::new(tcp)).await.map_err(http)?;
            tokio::spawn(connection);
            sender
        }
    };
    let request = framed(&StatusRequest {});
    let status =
        call::unary::<StatusResponse>(&mut sender, &endpoint.url, call::STATUS, request, patience).await;
    let status = status.map_err(|error| error.to_string())?;
    if !is_new_enough(&status.version) {
        return Err(format!("is etcd {}, 3.4 or later is needed", status.version));
    }
    let id = status.header.map_or(0, |header| header.cluster_id);
    if id == 0 {
        return Err("does not say to which etcd cluster it belongs".into());
    }
    // Last: from here on it is this cluster and no other.
    let expected = *cluster.get_or_init(|| id);
    if id != expected {
        return Err(format!(
            "belongs to the etcd cluster {id:x}, this store to {expected:x}: the endpoint is wrong, or etcd was set up anew"
        ));
    }
    Ok(sender)
}

/// Whole revisions of a watch, and signs of life of it, came with 3.4.
fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else { return false };
    (major, minor) >= (3, 4)
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn versions_are_compared_as_numbers() {
        for fine in ["3.4.23", "3.10.0", "4.0.0"] {
            assert!(is_new_enough(fine), "{fine}");
        }
        for old in ["3.3.27", "2.3.8", "", "etcd", "3"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }
}
