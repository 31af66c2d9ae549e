//! A typed client of the management API over its Unix socket.
//!
//! One connection per request: the API is for people and scripts, and a socket on the same machine costs
//! nothing. Errors keep apart what callers act on differently: the node can't be reached, the node says no (a
//! [`Problem`]), the answer makes no sense.
//!
//! Deliberately absent: retries (a request may not be repeatable) and timeouts (a check may take hours).

mod error;
mod path;

use std::path::{Path, PathBuf};

use control_api::{BASE_PATH, List, Problem};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

pub use error::ClientError;
pub use path::{Query, segment};

/// Largest JSON answer that is taken, in bytes: thousands of times what a large node answers, and little
/// enough to hold.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Bytes of a file sent in one piece.
const UPLOAD_CHUNK: usize = 1 << 20;

/// A node, as its administrator sees it.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the node that listens on `socket`. Connects with each request.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Where the node is expected.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for `path` (below `/v1`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Method::GET, path, Bytes::new()).await
    }

    /// Asks for a list.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, ClientError> {
        Ok(self.get::<List<T>>(path).await?.items)
    }

    /// Sends `body` with POST.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(Method::POST, path, encode(body)?).await
    }

    /// Sends `body` with PUT.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(Method::PUT, path, encode(body)?).await
    }

    /// Sends `body` with PATCH.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(Method::PATCH, path, encode(body)?).await
    }

    /// Sends `body` with DELETE.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(Method::DELETE, path, encode(body)?).await
    }

    /// Copies the bytes that `path` answers to `to`, calling `progress` with how many have come, and returns
    /// how many there were.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn download(
        &self,
        path: &str,
        to: &mut (impl AsyncWrite + Unpin),
        mut progress: impl FnMut(u64),
    ) -> Result<u64, ClientError> {
        let request = request(Method::GET, path, "application/octet-stream")
            .body(Full::new(Bytes::new()))
            .map_err(ClientError::protocol)?;
        let response = self.send(request).await?;
        let mut body = refuse_problem(response).await?.into_body();
        let mut done = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(ClientError::protocol)?;
            if let Ok(bytes) = frame.into_data() {
                to.write_all(&bytes).await.map_err(ClientError::Local)?;
                done += bytes.len() as u64;
                progress(done);
            }
        }
        to.flush().await.map_err(ClientError::Local)?;
        Ok(done)
    }

    /// Sends the bytes of `from` to `path` with PUT, calling `progress` with how many have gone.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        mut from: impl AsyncRead + Unpin + Send + 'static,
        mut progress: impl FnMut(u64),
    ) -> Result<T, ClientError> {
        let (chunks, queue) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(4);
        let body = StreamBody::new(ChunkStream(queue));
        let request = request(Method::PUT, path, "application/octet-stream")
            .body(body)
            .map_err(ClientError::protocol)?;
        let reading = async move {
            let mut done = 0;
            loop {
                let mut chunk = Vec::with_capacity(UPLOAD_CHUNK);
                let got = (&mut from).take(UPLOAD_CHUNK as u64).read_to_end(&mut chunk).await;
                let end = match got {
                    Ok(0) => return Ok(()),
                    Ok(n) => {
                        done += n as u64;
                        chunks.send(Ok(Frame::data(chunk.into()))).await.is_err()
                    }
                    Err(error) => {
                        // The body breaks off, so that the node doesn't take what came for the whole.
                        let broken = std::io::Error::new(error.kind(), "reading the local file failed");
                        let _ = chunks.send(Err(broken)).await;
                        return Err(ClientError::Local(error));
                    }
                };
                if end {
                    return Ok(());
                }
                progress(done);
            }
        };
        let (read, response) = tokio::join!(reading, self.send(request));
        read?;
        parse(response?).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let request =
            request(method, path, "application/json").body(Full::new(body)).map_err(ClientError::protocol)?;
        parse(self.send(request).await?).await
    }

    async fn send<B>(&self, request: Request<B>) -> Result<Response<Incoming>, ClientError>
    where
        B: hyper::body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::Unreachable { socket: self.socket.clone(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::protocol)?;
        // Ends with the exchange; its error shows in the response.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(ClientError::protocol)
    }
}

/// A channel as a stream of body frames.
struct ChunkStream(tokio::sync::mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>);

impl futures_util::Stream for ChunkStream {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

fn request(method: Method, path: &str, content: &str) -> hyper::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(format!("{BASE_PATH}{path}"))
        .header("host", "localhost")
        .header("content-type", content)
}

fn encode(body: &impl Serialize) -> Result<Bytes, ClientError> {
    serde_json::to_vec(body).map(Bytes::from).map_err(ClientError::protocol)
}

async fn whole(body: Incoming) -> Result<Bytes, ClientError> {
    let limited = http_body_util::Limited::new(body, MAX_ANSWER_BYTES);
    match limited.collect().await {
        Ok(bytes) => Ok(bytes.to_bytes()),
        Err(error) => Err(ClientError::Protocol(error.to_string())),
    }
}

async fn refuse_problem(response: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let body = whole(response.into_body()).await?;
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
        Err(_) => Err(ClientError::Protocol(format!("the node answered {status} without saying why"))),
    }
}

async fn parse<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ClientError> {
    let body = whole(refuse_problem(response).await?.into_body()).await?;
    serde_json::from_slice(&body)
        .map_err(|error| ClientError::Protocol(format!("the node's answer: {error}")))
}
