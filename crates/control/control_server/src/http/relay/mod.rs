//! The whole cluster seen from any node: what a request needs of other nodes, in one place for all routes.
//!
//! ```text
//!   gate: who asks, may it? ─► rule(route) ─┬─ Here        ─► the handler
//!                                           ├─ Everywhere  ─► the handler, and the same request to all others at once ─► merge ─► one answer
//!                                           └─ AtOwner     ─► the handler of the node that has the thing: of this one, or of one other
//! ```
//! How requests travel between nodes, and why the other one believes who asks, is in `cluster::calls`.
//!
//! Invariants:
//! * Handlers know nothing of it: each answers for its own node. Whatever a node is asked by another one it answers by itself (one hop, no circles).
//! * A list is answered within [`WITHIN`], whoever is away; who has not answered is named in it.
//! * What changes something is done by one node, and is not sent twice.
//! * A disk that is named without its node is one of the node that is asked, whoever owns the pool.

mod disks;
mod flows;
mod known;
mod merge;
mod picture;
mod rule;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts as _, Query, RawPathParams, Request};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use control_api::routes::Route;
use control_api::{BASE_PATH, Code, List, Problem, Unanswered};
use serde_json::Value;

use super::failure::{Failure, Outcome};
use super::look::Looks;
use super::subject::Subject;
use crate::access::Asker;
use crate::cluster::{By, NodePeer};
use crate::node::Node;
use crate::node::elsewhere::Thing;
use merge::Told;
use rule::{Merge, Rule, rule};

pub(super) use known::Remembered;

/// Other nodes have so long to answer with what they have.
const WITHIN: Duration = Duration::from_secs(1);
/// An answer that is read whole has come to its end this long after its head.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// The largest answer of another node that is read whole, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Who asks, for a node that is asked through this one.
pub(super) fn by(asker: Option<&Asker>) -> By {
    let (proof, role) = (asker.map(|asker| asker.proof), asker.map(|asker| asker.role));
    By { who: asker.map_or_else(|| "nobody".into(), Asker::who), proof, role }
}

/// A request that was let in.
pub(super) struct Asked {
    pub(super) node: Arc<Node>,
    pub(super) route: &'static Route,
    pub(super) by: By,
    pub(super) remembered: Arc<Remembered>,
    /// Another node passes it on.
    pub(super) relayed: bool,
    pub(super) looks: Looks,
    /// For the record of what is changed; none where somebody only looks.
    pub(super) subject: Option<Subject>,
}

impl Asked {
    /// Its answer.
    pub(super) async fn answer(self, request: Request, next: Next) -> Response {
        let rule = rule(self.route);
        if self.relayed {
            return match rule {
                Rule::Here => failed(Problem::new(Code::Forbidden, "This is asked of each node itself.")),
                Rule::Everywhere(Merge::Status) => match self.node.status_soon().await {
                    Ok(status) => json(&status),
                    Err(problem) => failed(problem),
                },
                Rule::Everywhere(merge) => own_only(&self.node, merge, next.run(request).await).await,
                Rule::AtOwner => self.here(request, next).await,
            };
        }
        match (rule, self.node.others()) {
            (Rule::Here, _) | (_, None) => self.here(request, next).await,
            (Rule::Everywhere(merge), Some((peers, me))) => {
                self.everywhere(merge, peers, me, request, next).await
            }
            (Rule::AtOwner, Some(_)) => self.at_owner(request, next).await,
        }
    }

    /// The handler of this node, and for the record what it has changed.
    async fn here(&self, request: Request, next: Next) -> Response {
        match &self.subject {
            Some(subject) => self.looks.around(self.route, subject, request, next).await,
            None => next.run(request).await,
        }
    }

    async fn everywhere(
        &self,
        merge: Merge,
        peers: Vec<NodePeer>,
        me: String,
        request: Request,
        next: Next,
    ) -> Response {
        let uri = request.uri().clone();
        let asking = peers.into_iter().map(|peer| {
            let request = outgoing(Method::GET, &uri, None, Body::empty());
            async move {
                let told = async {
                    let answer = self.node.call(&peer, self.by.clone(), request?).await?;
                    let answer = whole(answer.map(Body::new)).await?;
                    serde_json::from_slice::<Value>(&answer)
                        .map_err(|error| Problem::new(Code::Unavailable, error.to_string()))
                };
                let late = |_| Err(Problem::new(Code::Unavailable, "it does not answer in time"));
                let told = tokio::time::timeout(WITHIN, told).await.unwrap_or_else(late);
                (peer.name, told)
            }
        });
        let (own, others) = tokio::join!(next.run(request), futures_util::future::join_all(asking));
        if own.status() != StatusCode::OK {
            return own;
        }
        let own = match whole(own).await.map(|bytes| serde_json::from_slice::<Value>(&bytes)) {
            Ok(Ok(own)) => own,
            Ok(Err(error)) => return failed(Problem::new(Code::Internal, error.to_string())),
            Err(problem) => return failed(problem),
        };
        let (mut told, mut silent) = (Vec::new(), Vec::new());
        for (node, answer) in others {
            match answer {
                Ok(answer) => told.push((node, answer)),
                Err(problem) => {
                    tracing::debug!(%node, %problem, "another node does not say what it has");
                    silent.push(node);
                }
            }
        }
        if merge == Merge::Status {
            return json(&status::merged(&self.node, own, told, &silent));
        }
        if merge == Merge::Policy {
            let told = told.into_iter().map(|(_, answer)| answer).collect();
            return json(&flows::policy(own, told, silent));
        }
        let items = |mut answer: Value| match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let told: Vec<(String, Vec<Value>)> = std::iter::once((me.clone(), own))
            .chain(told)
            .map(|(node, answer)| (node, items(answer)))
            .collect();
        let lasting = merge.lasting();
        if let Some(what) = lasting {
            let now = self.node.clocks().1;
            for (node, items) in told.iter().filter(|(node, _)| *node != me) {
                self.remembered.keep(node, what, items, now);
            }
        }
        let (mut kept, mut unanswered) = (Vec::new(), Vec::new());
        for node in silent {
            let known = lasting.and_then(|what| self.remembered.of(&node, what));
            let (detail, items) = match known {
                Some((at, items)) => known::as_known(&self.node, &node, at, items, merge),
                None => ("it does not answer; what it has is not shown.".to_owned(), Vec::new()),
            };
            kept.extend(items);
            unanswered.push(Unanswered { node, detail });
        }
        // Of those that take part no more: what they had is theirs still where nobody has taken it.
        for (node, what) in
            lasting.iter().flat_map(|what| self.remembered.nodes(what).into_iter().map(|node| (node, *what)))
        {
            if told.iter().any(|(of, _)| *of == node)
                || unanswered.iter().any(|of: &Unanswered| of.node == node)
            {
                continue;
            }
            let Some((at, items)) = self.remembered.of(&node, what) else { continue };
            let (detail, items) = known::as_known(&self.node, &node, at, items, merge);
            if !items.is_empty() {
                kept.extend(items);
                unanswered.push(Unanswered { node, detail });
            }
        }
        let owner = |pool: &str| self.node.owner_name(pool);
        let is_elsewhere = elsewhere(&self.node, merge);
        let mut items = merge::merged(merge, &me, told, &Told { owner: &owner, is_elsewhere: &is_elsewhere });
        merge::add_known(merge, &mut items, kept);
        if merge == Merge::Volumes {
            // Of the others that no node serves only the names are known.
            let waiting = self.node.waiting_volumes().await;
            let waiting = waiting.iter().filter_map(|volume| serde_json::to_value(volume).ok());
            merge::add_known(merge, &mut items, waiting.collect());
        }
        json(&List { items, unanswered })
    }

    async fn at_owner(&self, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let params: Vec<(String, String)> = match RawPathParams::from_request_parts(&mut parts, &()).await {
            Ok(params) => params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            Err(error) => return failed(Problem::new(Code::InvalidRequest, error.to_string())),
        };
        let query: BTreeMap<String, String> =
            Query::try_from_uri(&parts.uri).map(|query| query.0).unwrap_or_default();
        let thing = rule::thing(self.route, &params, query.get("pool").map(String::as_str));
        let whose = match thing {
            Some(thing) => self.node.whose(thing).await,
            None => Ok(None),
        };
        match whose {
            Ok(Some(peer)) => {
                let uri = match thing {
                    Some(Thing::Of(node)) => rule::without_node(&parts.uri, node),
                    _ => parts.uri.clone(),
                };
                self.pass_on(&peer, &parts.method, &uri, parts.headers.get(header::CONTENT_TYPE), body).await
            }
            // What the configuration says of it can be looked at everywhere.
            Err(_)
                if matches!(thing, Some(Thing::Lun(_) | Thing::Share(_))) && parts.method == Method::GET =>
            {
                next.run(Request::from_parts(parts, body)).await
            }
            Err(problem) => failed(problem),
            Ok(None) if super::most_bytes(self.route).is_none() => {
                self.here(Request::from_parts(parts, body), next).await
            }
            Ok(None) => {
                // It was read by the gate.
                let bytes = match axum::body::to_bytes(body, usize::MAX).await {
                    Ok(bytes) => bytes,
                    Err(error) => return failed(Problem::new(Code::InvalidRequest, error.to_string())),
                };
                let (method, uri) = (parts.method.clone(), parts.uri.clone());
                let content = parts.headers.get(header::CONTENT_TYPE).cloned();
                let own = self.here(Request::from_parts(parts, Body::from(bytes.clone())), next).await;
                match other_node(own).await {
                    Ok(own) => own,
                    // No pool of the cluster has a volume of this name, as far as is known: no other node knows more of it.
                    Err(problem) => match thing {
                        Some(Thing::Volume(name, _)) if self.node.has_no_volume(name).await => {
                            failed(Node::no_such_volume(name))
                        }
                        Some(Thing::Volume(..)) => failed(problem),
                        _ => match self.named(&problem, &bytes).await {
                            Some(peer) => {
                                self.pass_on(&peer, &method, &uri, content.as_ref(), Body::from(bytes)).await
                            }
                            None => failed(problem),
                        },
                    },
                }
            }
        }
    }

    /// The node that a problem names; else the one that has what the body names, as that of a new LUN does its volume.
    async fn named(&self, problem: &Problem, body: &[u8]) -> Option<NodePeer> {
        if let Some(node) = &problem.node {
            return self.node.peer_called(node).ok();
        }
        let body: Value = serde_json::from_slice(body).ok()?;
        let (volume, pool) = (body["volume"].as_str(), body["pool"].as_str());
        let thing = match (volume, pool) {
            (Some(volume), pool) => Thing::Volume(volume, pool),
            (None, Some(pool)) => Thing::Pool(pool),
            (None, None) => return None,
        };
        self.node.whose(thing).await.ok().flatten()
    }

    async fn pass_on(
        &self,
        peer: &NodePeer,
        method: &Method,
        uri: &Uri,
        content: Option<&HeaderValue>,
        body: Body,
    ) -> Response {
        let passing = async {
            let (uri, body) = if disks::names_disks(self.route) {
                disks::for_owner(uri, body, &self.node.name(), &peer.name).await?
            } else {
                (uri.clone(), body)
            };
            let request = outgoing(method.clone(), &uri, content, body)?;
            self.node.call(peer, self.by.clone(), request).await
        };
        match passing.await {
            Ok(answer) => {
                let mut answer = answer.map(Body::new);
                if let Some(subject) = &self.subject {
                    subject.passed(answer.headers_mut());
                }
                if answer.status() != StatusCode::OK {
                    return problem_of(answer).await;
                }
                if method == Method::POST { of_node(answer, &peer.name).await } else { answer }
            }
            Err(problem) => failed(problem),
        }
    }
}

fn failed(problem: Problem) -> Response {
    Failure::from(problem).into_response()
}

fn json(what: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(what) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => failed(Problem::new(Code::Internal, error.to_string())),
    }
}

/// A request to another node, with nothing of what proves who asks this one.
fn outgoing(
    method: Method,
    uri: &Uri,
    content: Option<&HeaderValue>,
    body: Body,
) -> Result<axum::http::Request<Body>, Problem> {
    let target = uri.path_and_query().map_or(BASE_PATH, |target| target.as_str());
    let mut request = axum::http::Request::builder().method(method).uri(target);
    if let Some(content) = content {
        request = request.header(header::CONTENT_TYPE, content);
    }
    request.body(body).map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

async fn whole(answer: Response) -> Result<Bytes, Problem> {
    let broken = |why: String| Problem::new(Code::Unavailable, format!("the answer broke off: {why}"));
    let status = answer.status();
    let reading = tokio::time::timeout(READ_WITHIN, axum::body::to_bytes(answer.into_body(), MAX_ANSWER));
    let bytes = reading.await.map_err(|_| broken("nothing more has come".into()))?;
    let bytes = bytes.map_err(|error| broken(error.to_string()))?;
    if status == StatusCode::OK {
        return Ok(bytes);
    }
    Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| broken(status.to_string())))
}

/// An answer that names a job, with the node whose job it is.
async fn of_node(answer: Response, node: &str) -> Response {
    let is_json = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json {
        return answer;
    }
    match whole(answer).await.map(|bytes| serde_json::from_slice::<Value>(&bytes)) {
        Ok(Ok(mut told)) => {
            if let Value::Object(fields) = &mut told
                && fields.get("job").is_some_and(Value::is_number)
            {
                fields.insert("node".into(), node.into());
            }
            json(&told)
        }
        Ok(Err(error)) => failed(Problem::new(Code::Internal, error.to_string())),
        Err(problem) => failed(problem),
    }
}

/// The problem that another node has answered, as this node's answer.
async fn problem_of(answer: Response) -> Response {
    match whole(answer).await {
        Ok(_) => failed(Problem::new(Code::Internal, "an answer that is no problem")),
        Err(problem) => failed(problem),
    }
}

/// The answer; as an error when it is that another node has the thing.
async fn other_node(answer: Response) -> Result<Response, Problem> {
    if answer.extensions().get::<Outcome>().is_none_or(|outcome| outcome.0 != Code::OtherNode) {
        return Ok(answer);
    }
    match whole(answer).await {
        Ok(_) => Err(Problem::new(Code::Internal, "an answer that is no problem")),
        Err(problem) => Err(problem),
    }
}

/// Whether a listed thing is served by another node than the one that lists it: that one tells of it. Looked up once for all things of a list,
/// of which there may be thousands.
fn elsewhere(node: &Node, merge: Merge) -> impl Fn(&Value) -> bool + use<> {
    let names = match merge {
        Merge::Luns => node.luns_elsewhere(),
        Merge::Shares => node.shares_elsewhere(),
        _ => BTreeSet::new(),
    };
    move |item| {
        let is_named = || item["name"].as_str().is_some_and(|name| names.contains(name));
        match merge {
            Merge::Pools => item["state"] == "elsewhere",
            Merge::Luns => !item["problem"].is_null() && is_named(),
            Merge::Shares => item["online"] != true && is_named(),
            _ => false,
        }
    }
}

/// A list for another node: without what that one has itself, or hears of from a third.
async fn own_only(node: &Node, merge: Merge, answer: Response) -> Response {
    if answer.status() != StatusCode::OK || !merge.names_others() {
        return answer;
    }
    match whole(answer).await.map(|bytes| serde_json::from_slice::<List<Value>>(&bytes)) {
        Ok(Ok(mut list)) => {
            let is_elsewhere = elsewhere(node, merge);
            list.items.retain(|item| !is_elsewhere(item));
            json(&list)
        }
        Ok(Err(error)) => failed(Problem::new(Code::Internal, error.to_string())),
        Err(problem) => failed(problem),
    }
}
