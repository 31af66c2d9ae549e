//! gRPC on an HTTP/2 connection: a message is a byte (compressed or not), its length in four bytes, big-endian, and its bytes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE};
use hyper::{Method, Request, Response, StatusCode};
use prost::Message;
use tokio::sync::mpsc;

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";
pub(crate) const MEMBER_ADD: &str = "/etcdserverpb.Cluster/MemberAdd";
pub(crate) const MEMBER_PROMOTE: &str = "/etcdserverpb.Cluster/MemberPromote";
pub(crate) const MEMBER_REMOVE: &str = "/etcdserverpb.Cluster/MemberRemove";

/// The longest message that is taken: etcd's requests have 1.5 MiB, a page of a read is asked for anew in smaller ones.
const MAX_MESSAGE: usize = 16 << 20;
const PREFIX: usize = 5;
/// The longest text of an error that is kept.
const MAX_TEXT: usize = 512;

/// How etcd itself says that something went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: u32,
    pub(crate) message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gRPC code {})", self.message, self.code)
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The request has not left this machine.
    NotSent(String),
    /// It may have.
    Broken(String),
    /// There is one, but longer than what is taken.
    TooLong,
    /// etcd's own error.
    Status(Status),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) | Self::Broken(why) => f.write_str(why),
            Self::TooLong => f.write_str("an answer that is too long"),
            Self::Status(status) => status.fmt(f),
        }
    }
}

/// A connection; clones share it.
pub(crate) type Sender = SendRequest<Outgoing>;

/// What is sent: one message, or several as they come.
pub(crate) enum Outgoing {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(messages) => {
                messages.poll_recv(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }
}

/// A message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes.into()
}

/// Sends a request and returns its answer's head. `patience` tells etcd when nobody waits any more.
pub(crate) async fn begin(
    sender: &mut Sender,
    url: &str,
    path: &str,
    body: Outgoing,
    patience: Option<Duration>,
) -> Result<Response<Incoming>, CallError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{url}{path}"))
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(TE, HeaderValue::from_static("trailers"));
    // A member that knows no leader says so at once. How it is with itself it is to say all the same: in an election no member knows one, and none of
    // them is away.
    let request = match path {
        STATUS => request,
        _ => request.header(HeaderName::from_static("hasleader"), HeaderValue::from_static("true")),
    };
    let request = match patience {
        // At most eight digits are allowed.
        Some(patience) => {
            request.header("grpc-timeout", format!("{}m", patience.as_millis().min(99_999_999)))
        }
        None => request,
    };
    let request = request.body(body).map_err(|error| CallError::NotSent(error.to_string()))?;
    let response = sender.try_send_request(request).await.map_err(|mut failed| {
        let given_back = failed.take_message().is_some();
        let why = told(&failed.into_error());
        if given_back { CallError::NotSent(why) } else { CallError::Broken(why) }
    })?;
    if response.status() != StatusCode::OK {
        return Err(CallError::Broken(format!("HTTP status {}: is this etcd?", response.status())));
    }
    // An error without an answer stands in the head.
    match status(response.headers()) {
        Some(status) if status.code != 0 => Err(CallError::Status(status)),
        _ => Ok(response),
    }
}

/// One request, one answer.
pub(crate) async fn unary<Answer: Message + Default>(
    sender: &mut Sender,
    url: &str,
    path: &str,
    request: Bytes,
    patience: Duration,
) -> Result<Answer, CallError> {
    let response = begin(sender, url, path, Outgoing::Whole(Some(request)), Some(patience)).await?;
    let mut messages = Messages::new(response.into_body());
    let Some(answer) = messages.next().await? else {
        return Err(CallError::Broken("neither an answer nor an error".into()));
    };
    // It counts only with "all is well" behind it.
    match messages.next::<Answer>().await? {
        None => Ok(answer),
        Some(_) => Err(CallError::Broken("two answers to one request".into())),
    }
}

/// Messages as they come.
pub(crate) struct Messages {
    body: Incoming,
    buffer: Vec<u8>,
    ended: bool,
}

impl Messages {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new(), ended: false }
    }

    /// The next one; `None` after the last, when etcd has said that all is well. May be dropped while it waits.
    pub(crate) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, CallError> {
        loop {
            if let Some(message) = take(&mut self.buffer)? {
                let message = M::decode(message.as_slice());
                return message
                    .map(Some)
                    .map_err(|error| CallError::Broken(format!("an answer that is none: {error}")));
            }
            if self.ended {
                return Ok(None);
            }
            let frame = match self.body.frame().await {
                None => return Err(CallError::Broken("the answer was cut off".into())),
                Some(Err(error)) => return Err(CallError::Broken(told(&error))),
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    match status(&trailers) {
                        Some(Status { code: 0, .. }) if self.buffer.is_empty() => self.ended = true,
                        Some(Status { code: 0, .. }) | None => {
                            return Err(CallError::Broken("the answer was cut off".into()));
                        }
                        Some(status) => return Err(CallError::Status(status)),
                    }
                }
            }
        }
    }
}

/// Takes a whole message out of what has come.
fn take(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, CallError> {
    let Some((prefix, rest)) = buffer.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    if compressed != 0 {
        return Err(CallError::Broken("a compressed answer, which was not asked for".into()));
    }
    if length > MAX_MESSAGE {
        return Err(CallError::TooLong);
    }
    let Some(message) = rest.get(..length) else { return Ok(None) };
    let message = message.to_vec();
    buffer.drain(..PREFIX + length);
    Ok(Some(message))
}

fn status(headers: &HeaderMap) -> Option<Status> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    let message: String =
        String::from_utf8_lossy(message).chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
    Some(Status { code, message })
}

/// An error with what lies beneath it: hyper's own text is but its kind.
fn told(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(beneath) = source {
        text = format!("{text}: {beneath}");
        source = beneath.source();
    }
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_they_end() {
        let mut buffer = vec![0, 0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0];
        assert_eq!(take(&mut buffer), Ok(Some(vec![7, 8])));
        assert_eq!(take(&mut buffer), Ok(Some(Vec::new())));
        assert_eq!(take(&mut buffer), Ok(None));
        assert_eq!(buffer, [0]);
        assert!(matches!(take(&mut vec![1, 0, 0, 0, 0]), Err(CallError::Broken(_))));
        assert_eq!(
            take(&mut vec![0, 255, 255, 255, 255]),
            Err(CallError::TooLong),
            "before it is waited for"
        );
    }
}
