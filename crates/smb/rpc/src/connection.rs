//! One client's conversation: bind, calls in fragments, answers in fragments (C706 12.5, MS-RPCE 3.3.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::association::{Group, Shared};
use crate::client::RpcClient;
use crate::endpoint::Endpoint;
use crate::error::Fault;
use crate::interface::{Call, Interface};
use crate::ndr::{BadStub, NdrIn, Order};
use crate::pdu::answer::{self, Outcome, Reject};
use crate::pdu::{Bind, FRAGMENT_MAX, FRAGMENT_MIN, Header, Pdu, Request, Syntax, flag, kind};
use crate::protection::{Protections, Refused};

/// Most presentation contexts of a connection.
const CONTEXTS_MAX: usize = 64;
/// The longest stub of a request: 20,480 SIDs fit.
const STUB_MAX: usize = 1 << 20;
/// What we have of the features that clients ask for: an orphaned call does not end the connection (MS-RPCE
/// 2.2.2.14).
const KEEP_CONNECTION_ON_ORPHAN: u16 = 2;

/// A request of which fragments are missing.
struct Partial {
    call: u32,
    context: u16,
    operation: u16,
    order: Order,
    stub: Vec<u8>,
    /// The authentication that protects its fragments.
    protection: Option<u32>,
    /// Known to be too long; what follows is not kept.
    too_long: bool,
}

/// A connection.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    endpoint: &'static Endpoint,
    client: RpcClient,
    group: Option<Arc<Group>>,
    contexts: BTreeMap<u16, &'static Interface>,
    max_xmit: u16,
    protections: Protections,
    partial: Option<Partial>,
    broken: bool,
}

/// Bytes that the protocol does not allow here.
struct Violation;

impl From<BadStub> for Violation {
    fn from(_: BadStub) -> Self {
        Self
    }
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, endpoint: &'static Endpoint, client: RpcClient) -> Self {
        Self {
            shared,
            endpoint,
            client,
            group: None,
            contexts: BTreeMap::new(),
            max_xmit: FRAGMENT_MIN,
            protections: Protections::default(),
            partial: None,
            broken: false,
        }
    }

    /// Whether nothing more is taken.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes nothing more.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
        self.partial = None;
    }

    /// Tells `left` which group loses this connection.
    pub(crate) fn leave(&mut self, left: impl FnOnce(&Shared, &Arc<Group>)) {
        if let Some(group) = self.group.take() {
            left(&self.shared, &group);
        }
    }

    /// Takes a PDU that is as long as its header says. What comes back are PDUs to send.
    pub(crate) fn take(&mut self, header: Header, bytes: &[u8]) -> Vec<Vec<u8>> {
        let taken = Pdu::new(header, bytes).map_err(Violation::from).and_then(|pdu| match header.kind {
            kind::BIND => self.bind(&pdu).map(|answer| vec![answer]),
            kind::ALTER_CONTEXT => self.alter(&pdu).map(|answer| vec![answer]),
            kind::AUTH3 => self.auth3(&pdu).map(|()| Vec::new()),
            kind::REQUEST => self.request(&pdu),
            // A call is over before a cancel could be heard.
            kind::CO_CANCEL => Ok(Vec::new()),
            kind::ORPHANED => {
                self.partial = self.partial.take().filter(|partial| partial.call != header.call);
                Ok(Vec::new())
            }
            _ => Err(Violation),
        });
        taken.unwrap_or_else(|Violation| {
            tracing::debug!(
                pipe = self.endpoint.address,
                kind = header.kind,
                "a PDU that is not allowed here"
            );
            self.give_up();
            vec![match header.kind {
                kind::BIND => answer::bind_nak(header.call, Reject::Unspecified),
                _ => answer::fault(header.call, 0, Fault::PROTOCOL, false),
            }]
        })
    }

    fn bind(&mut self, pdu: &Pdu<'_>) -> Result<Vec<u8>, Violation> {
        let bind = Bind::decode(pdu)?;
        let call = pdu.header.call;
        if self.group.is_some() {
            return Err(Violation);
        }
        let header_sign = pdu.header.has(flag::SUPPORT_HEADER_SIGN);
        let begun = self.protections.begin(pdu.trailer.as_ref(), &*self.shared.authenticator);
        let token = match begun {
            Ok(token) => token,
            Err(refused) => {
                let reject = match refused {
                    Refused::Mechanism => Reject::AuthenticationType,
                    Refused::Client => Reject::Unspecified,
                };
                return Ok(answer::bind_nak(call, reject));
            }
        };
        let Some(group) = self.shared.group(bind.group, self.client.sid) else {
            let reject = if bind.group == 0 { Reject::LocalLimit } else { Reject::Unspecified };
            return Ok(answer::bind_nak(call, reject));
        };
        // What the client takes is what we send, within what anybody has to take and what we keep.
        self.max_xmit = bind.max_recv.clamp(FRAGMENT_MIN, FRAGMENT_MAX);
        let sizes = (self.max_xmit, bind.max_xmit.clamp(FRAGMENT_MIN, FRAGMENT_MAX));
        let outcomes = self.contexts(&bind);
        let sign = header_sign && pdu.trailer.is_some();
        let address = self.endpoint.address;
        let ack = answer::bind_ack(call, false, sign, sizes, group.id, address, &outcomes);
        self.group = Some(group);
        Ok(match token {
            Some(token) => token.append_to(ack),
            None => ack,
        })
    }

    fn alter(&mut self, pdu: &Pdu<'_>) -> Result<Vec<u8>, Violation> {
        let bind = Bind::decode(pdu)?;
        let call = pdu.header.call;
        let group = self.group.as_ref().ok_or(Violation)?.id;
        let header_sign = pdu.header.has(flag::SUPPORT_HEADER_SIGN);
        let stepped = self.protections.alter(pdu.trailer.as_ref(), &*self.shared.authenticator);
        let Ok(token) = stepped else {
            return Ok(answer::fault(call, 0, Fault::ACCESS_DENIED, false));
        };
        let outcomes = self.contexts(&bind);
        let sizes = (self.max_xmit, bind.max_xmit.clamp(FRAGMENT_MIN, FRAGMENT_MAX));
        let ack = answer::bind_ack(call, true, header_sign, sizes, group, "", &outcomes);
        Ok(match token {
            Some(token) => token.append_to(ack),
            None => ack,
        })
    }

    fn auth3(&mut self, pdu: &Pdu<'_>) -> Result<(), Violation> {
        let trailer = pdu.trailer.as_ref().ok_or(Violation)?;
        // There is no answer (MS-RPCE 2.2.2.5): who was refused finds out with the first request.
        self.protections.finish(trailer, &*self.shared.authenticator);
        Ok(())
    }

    fn contexts(&mut self, bind: &Bind) -> Vec<Outcome> {
        bind.contexts
            .iter()
            .map(|item| {
                if let Some(features) = item.transfers.iter().find_map(Syntax::features) {
                    return Outcome::Features(features & KEEP_CONNECTION_ON_ORPHAN);
                }
                let served =
                    self.endpoint.interfaces.iter().find(|ours| item.interface.is_served_by(&ours.syntax));
                let Some(interface) = served else { return Outcome::UnknownInterface };
                if !item.transfers.contains(&Syntax::NDR) {
                    return Outcome::UnknownTransfer;
                }
                if self.contexts.len() >= CONTEXTS_MAX && !self.contexts.contains_key(&item.id) {
                    return Outcome::TooMany;
                }
                self.contexts.insert(item.id, interface);
                Outcome::Accepted
            })
            .collect()
    }

    fn request(&mut self, pdu: &Pdu<'_>) -> Result<Vec<Vec<u8>>, Violation> {
        if self.group.is_none() {
            return Err(Violation);
        }
        let header = pdu.header;
        let request = Request::decode(pdu)?;
        let (stub, protection) = match self.protections.open(pdu, request.stub_at) {
            Ok(opened) => opened,
            Err(fault) => {
                // The keys' state is unknown from here on, or somebody is trying things.
                self.give_up();
                return Ok(vec![answer::fault(header.call, request.context, fault, false)]);
            }
        };
        let mut partial = if header.has(flag::FIRST_FRAG) {
            // Calls of a pipe follow each other: we do not offer to mix them (C706 12.6.3.1, PFC_CONC_MPX).
            if self.partial.is_some() {
                return Err(Violation);
            }
            Partial {
                call: header.call,
                context: request.context,
                operation: request.operation,
                order: header.order,
                stub: Vec::new(),
                protection,
                too_long: false,
            }
        } else {
            let partial = self.partial.take().ok_or(Violation)?;
            let same = partial.call == header.call
                && partial.context == request.context
                && partial.operation == request.operation
                && partial.protection == protection
                && partial.order == header.order;
            if !same {
                return Err(Violation);
            }
            partial
        };
        if partial.stub.len() + stub.len() > STUB_MAX {
            partial.too_long = true;
            partial.stub = Vec::new();
        }
        if !partial.too_long {
            partial.stub.extend_from_slice(&stub);
        }
        if header.has(flag::LAST_FRAG) {
            return Ok(self.call(&partial));
        }
        self.partial = Some(partial);
        Ok(Vec::new())
    }

    fn call(&mut self, request: &Partial) -> Vec<Vec<u8>> {
        let fault = |fault, executed| vec![answer::fault(request.call, request.context, fault, executed)];
        if request.too_long {
            return fault(Fault::NO_MEMORY, false);
        }
        let Some(interface) = self.contexts.get(&request.context) else {
            return fault(Fault::UNKNOWN_INTERFACE, false);
        };
        let Some(group) = self.group.clone() else { return fault(Fault::PROTOCOL, false) };
        let Some(client) = self.protections.client(request.protection, &self.client) else {
            return fault(Fault::ACCESS_DENIED, false);
        };
        let Some(client) = self.shared.authenticator.current(client) else {
            tracing::info!(
                user = client.user,
                pipe = self.endpoint.address,
                "a pipe ends: its user is disabled or gone"
            );
            let refused = fault(Fault::ACCESS_DENIED, false);
            self.give_up();
            return refused;
        };
        let client = RpcClient { from: self.client.from.clone(), ..client };
        let mut arguments = NdrIn::new(&request.stub, request.order);
        let mut handles = group.handles.lock();
        let mut call = Call { view: &*self.shared.view, client: &client, handles: &mut handles };
        let done = interface.run(&mut call, request.operation, &mut arguments);
        drop(handles);
        match done {
            Ok(out) => self.respond(request, &out.finish()),
            Err(error) => {
                tracing::debug!(interface = interface.name, operation = interface.name_of(request.operation), %error, "call");
                fault(error, true)
            }
        }
    }

    fn respond(&mut self, request: &Partial, stub: &[u8]) -> Vec<Vec<u8>> {
        let room = self.protections.room(request.protection, self.max_xmit);
        let mut rest = stub;
        let mut fragments = Vec::new();
        loop {
            let (part, after) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            let pdu = answer::response(request.call, request.context, fragments.is_empty(), rest.len(), part);
            fragments.push(self.protections.seal(request.protection, pdu));
            rest = after;
            if rest.is_empty() {
                return fragments;
            }
        }
    }
}
