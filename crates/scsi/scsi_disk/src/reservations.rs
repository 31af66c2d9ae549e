//! Persistent reservations: a state machine without I/O (SPC-4 5.12).
//!
//! The caller clones the state, applies a change, makes the clone durable if it asks for APTPL, installs it, and
//! only then answers and raises the attentions that the change returned.

use scsi_core::Shares;
use scsi_defs::reservation::{Kind, MAX_PORT_NAME_BYTES, OutParameters};
use scsi_defs::{Op, Sense, asc, be};

/// Most registrations of a unit. With the longest names the durable row has half a megabyte, which a state table takes; READ FULL STATUS
/// tells how long it is, and transfers what its allocation length has room for (64 KiB at the most).
pub const MAX_REGISTRATIONS: usize = 1024;
/// What of them one initiator may have, over all its ports and those of the target. Whatever has up to [`FITTED`] of them in all
/// fits, in whichever order its hosts come and however many each of them has: what is kept for others is beyond that.
const SHARES: Shares = Shares::half_kept(MAX_REGISTRATIONS, 8);
/// Most registrations of releases that wrote rows up to version 2.
const FITTED: usize = 256;
const _: () = assert!(SHARES.open(FITTED - 1) >= FITTED);

/// An initiator port through a target port, as reservations remember it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The initiator port's name.
    pub initiator: String,
    /// The name of the target that the target port is of; empty in a row of an earlier release, which did not tell targets apart, until
    /// the initiator port is there again: [`Reservations::know`].
    pub device: String,
    /// The relative target port.
    pub target: u16,
}

impl Port {
    /// The name of the initiator that it is a port of.
    #[must_use]
    pub fn initiator_name(&self) -> &str {
        host_of(&self.initiator)
    }

    /// Whether it is a port of the initiator with this name, in lower case: an iSCSI port's name is the initiator's, then its
    /// session identifier (RFC 7143 4.2.7.1).
    #[must_use]
    pub fn is_of(&self, initiator: &str) -> bool {
        self.initiator_name() == initiator
    }
}

/// The name of the initiator that a port is of.
pub(crate) fn host_of(port: &str) -> &str {
    port.split_once(',').map_or(port, |(name, _)| name)
}

/// One registered I_T nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Who.
    pub port: Port,
    /// The key that it registered with.
    pub key: u64,
}

/// All there is to know of a unit's persistent reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// Counts changes of registrations; starts at zero with each start of the node.
    pub generation: u32,
    /// Registered nexuses.
    pub registrations: Vec<Registration>,
    /// The reservation, and its holder (one of several for the all-registrants types).
    pub reservation: Option<(Kind, Port)>,
    /// Whether all this must survive the loss of power.
    pub aptpl: bool,
}

/// Why a service action fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The command ends with RESERVATION CONFLICT.
    Conflict,
    /// The command ends with CHECK CONDITION.
    Sense(Sense),
}

/// Attentions to raise, by port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Additional sense codes for the nexuses of ports.
    pub attentions: Vec<(Port, u16)>,
    /// Ports whose commands PREEMPT AND ABORT ends.
    pub aborted: Vec<Port>,
}

/// A name behind its length, at the beginning of what is left of a row.
pub(crate) fn take_name(rest: &mut &[u8]) -> Option<String> {
    let len = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    let name = rest.get(2..2 + len).filter(|_| len <= MAX_PORT_NAME_BYTES)?;
    *rest = &rest[2 + len..];
    Some(std::str::from_utf8(name).ok()?.to_owned())
}

impl Reservations {
    /// An initiator port is there over a target port: what a row of an earlier release says of the two is said of this target.
    pub fn know(&mut self, port: &Port) {
        let is_it = |old: &Port| {
            old.device.is_empty() && old.initiator == port.initiator && old.target == port.target
        };
        if self.registrations.iter().any(|r| r.port == *port) {
            return;
        }
        let holder = self.reservation.as_mut().map(|(_, holder)| holder);
        let registered = self.registrations.iter_mut().map(|r| &mut r.port);
        registered.chain(holder).filter(|old| is_it(old)).for_each(|old| old.device.clone_from(&port.device));
    }

    /// The registrations whose nexuses hold the reservation.
    pub fn holders(&self) -> impl Iterator<Item = &Registration> {
        self.registrations.iter().filter(|r| self.holds(&r.port))
    }

    /// The key `port` is registered with.
    #[must_use]
    pub fn key_of(&self, port: &Port) -> Option<u64> {
        self.registrations.iter().find(|r| r.port == *port).map(|r| r.key)
    }

    /// Whether `port` holds the reservation.
    #[must_use]
    pub fn holds(&self, port: &Port) -> bool {
        match &self.reservation {
            Some((kind, _)) if kind.all() => self.key_of(port).is_some(),
            Some((_, holder)) => holder == port,
            None => false,
        }
    }

    /// Whether `port` may read or write now.
    #[must_use]
    pub fn allows(&self, port: &Port, reads_only: bool) -> bool {
        let Some((kind, _)) = &self.reservation else { return true };
        (reads_only && kind.readable()) || self.holds(port) || (kind.shared() && self.key_of(port).is_some())
    }

    /// Carries a PERSISTENT RESERVE OUT service action out for `port`. `kind` is the CDB's type and scope byte.
    ///
    /// # Errors
    /// The state may then be half changed: the caller drops the clone it works on.
    pub fn apply(
        &mut self,
        op: Op,
        scope_kind: u8,
        port: &Port,
        parameters: &OutParameters,
        ports: &[u16],
    ) -> Result<Effects, Refused> {
        let registered = self.key_of(port);
        if op == Op::PrOutRegister {
            if parameters.key != registered.unwrap_or(0) {
                return Err(Refused::Conflict);
            }
        } else if op != Op::PrOutRegisterIgnore && registered != Some(parameters.key) {
            return Err(Refused::Conflict);
        }
        if parameters.specify_initiators {
            // SIP_C=0 in REPORT CAPABILITIES.
            return Err(Refused::Sense(Sense::parameter_field(20)));
        }
        let typed = || {
            let kind = Kind::from_code(scope_kind & 0x0f).filter(|_| scope_kind >> 4 == 0);
            kind.ok_or(Refused::Sense(Sense::cdb_field(2)))
        };
        match op {
            Op::PrOutRegister | Op::PrOutRegisterIgnore => self.register(port, parameters, ports),
            Op::PrOutReserve => {
                let kind = typed()?;
                match &self.reservation {
                    None => self.reservation = Some((kind, port.clone())),
                    Some((current, _)) if *current == kind && self.holds(port) => {}
                    Some(_) => return Err(Refused::Conflict),
                }
                Ok(Effects::default())
            }
            Op::PrOutRelease => {
                let kind = typed()?;
                let Some((current, _)) = self.reservation else { return Ok(Effects::default()) };
                if !self.holds(port) {
                    return Ok(Effects::default());
                }
                if current != kind {
                    return Err(Refused::Sense(Sense::illegal(asc::INVALID_RELEASE_OF_RESERVATION)));
                }
                self.reservation = None;
                Ok(self.tell_others(port, if kind.shared() { asc::RESERVATIONS_RELEASED } else { 0 }))
            }
            Op::PrOutClear => {
                let effects = self.tell_others(port, asc::RESERVATIONS_PREEMPTED);
                self.clear();
                Ok(effects)
            }
            Op::PrOutPreempt | Op::PrOutPreemptAbort => {
                self.preempt(typed, port, parameters.action_key, op == Op::PrOutPreemptAbort)
            }
            Op::PrOutRegisterMove => self.register_and_move(port, parameters, ports),
            _ => Err(Refused::Sense(Sense::cdb_field(1))),
        }
    }

    /// Nobody holds anything any more. All who were registered are to be told.
    pub(crate) fn clear(&mut self) -> Effects {
        let told = self.registrations.drain(..).map(|r| (r.port, asc::RESERVATIONS_PREEMPTED)).collect();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
        Effects { attentions: told, aborted: Vec::new() }
    }

    fn tell_others(&self, port: &Port, code: u16) -> Effects {
        let others = self.registrations.iter().filter(|r| code != 0 && r.port != *port);
        Effects { attentions: others.map(|r| (r.port.clone(), code)).collect(), aborted: Vec::new() }
    }

    fn register(&mut self, port: &Port, p: &OutParameters, ports: &[u16]) -> Result<Effects, Refused> {
        let mut effects = Effects::default();
        let targets = if p.all_ports { ports } else { std::slice::from_ref(&port.target) };
        for &target in targets {
            let port = Port { target, ..port.clone() };
            match (self.registrations.iter().position(|r| r.port == port), p.action_key) {
                (Some(at), 0) => {
                    let held = self.holds(&port);
                    self.registrations.remove(at);
                    if held {
                        effects.attentions.extend(self.holder_left(&port));
                    }
                }
                (Some(at), key) => self.registrations[at].key = key,
                (None, 0) => {}
                (None, key) => {
                    if !self.has_room(&port) {
                        let code = asc::INSUFFICIENT_REGISTRATION_RESOURCES;
                        return Err(Refused::Sense(Sense::illegal(code)));
                    }
                    self.registrations.push(Registration { port, key });
                }
            }
        }
        self.aptpl = p.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// Whether one more registration may be made for a port.
    fn has_room(&self, port: &Port) -> bool {
        let own = self.registrations.iter().filter(|r| r.port.is_of(port.initiator_name())).count();
        SHARES.may_take(self.registrations.len(), own)
    }

    /// The holder's registration is gone: all-registrants types live on while a registrant is left.
    fn holder_left(&mut self, port: &Port) -> Vec<(Port, u16)> {
        let Some((kind, _)) = self.reservation else { return Vec::new() };
        if kind.all()
            && let Some(next) = self.registrations.first()
        {
            self.reservation = Some((kind, next.port.clone()));
            return Vec::new();
        }
        self.reservation = None;
        self.tell_others(port, if kind.shared() { asc::RESERVATIONS_RELEASED } else { 0 }).attentions
    }

    fn preempt(
        &mut self,
        typed: impl Fn() -> Result<Kind, Refused>,
        port: &Port,
        key: u64,
        abort: bool,
    ) -> Result<Effects, Refused> {
        let mut effects = Effects::default();
        let (all, holder_key) = match &self.reservation {
            Some((kind, holder)) => (kind.all(), if kind.all() { None } else { self.key_of(holder) }),
            None => (false, None),
        };
        let takes_over = self.reservation.is_some() && ((all && key == 0) || holder_key == Some(key));
        if key == 0 && !all {
            return Err(Refused::Sense(Sense::parameter_field(8)));
        }
        if !takes_over && !self.registrations.iter().any(|r| r.key == key) {
            return Err(Refused::Conflict);
        }
        let victim = |r: &Registration| r.port != *port && ((all && key == 0) || r.key == key);
        // A registrant that preempts its own key without holding loses its registration too.
        let suicide = |r: &Registration| !takes_over && r.port == *port && r.key == key;
        let gone: Vec<Port> =
            self.registrations.iter().filter(|r| victim(r)).map(|r| r.port.clone()).collect();
        self.registrations.retain(|r| !victim(r) && !suicide(r));
        effects.attentions.extend(gone.iter().map(|p| (p.clone(), asc::REGISTRATIONS_PREEMPTED)));
        if takes_over {
            let kind = typed()?;
            let before = self.reservation.replace((kind, port.clone()));
            if before.is_some_and(|(old, _)| old != kind && old.shared()) {
                effects.attentions.extend(self.tell_others(port, asc::RESERVATIONS_RELEASED).attentions);
            }
        } else if all {
            let left = self.registrations.first().map(|r| r.port.clone());
            self.reservation = self.reservation.take().zip(left).map(|((kind, _), port)| (kind, port));
        }
        if abort {
            effects.aborted = gone;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    fn register_and_move(
        &mut self,
        port: &Port,
        p: &OutParameters,
        ports: &[u16],
    ) -> Result<Effects, Refused> {
        let Some((kind, _)) = self.reservation.clone().filter(|_| self.holds(port)) else {
            return Err(Refused::Conflict);
        };
        if kind.all() {
            return Err(Refused::Conflict);
        }
        // The relative identifier is one of the target over which the command has come.
        let to =
            Port { initiator: p.destination.clone(), device: port.device.clone(), target: p.target_port };
        if p.action_key == 0 {
            return Err(Refused::Sense(Sense::parameter_field(8)));
        }
        if !ports.contains(&to.target) {
            return Err(Refused::Sense(Sense::parameter_field(18)));
        }
        if to == *port {
            return Err(Refused::Sense(Sense::parameter_field(24)));
        }
        let at = self.registrations.iter().position(|r| r.port == to);
        match at {
            Some(at) => self.registrations[at].key = p.action_key,
            None if !self.has_room(&to) => {
                return Err(Refused::Sense(Sense::illegal(asc::INSUFFICIENT_REGISTRATION_RESOURCES)));
            }
            None => self.registrations.push(Registration { port: to.clone(), key: p.action_key }),
        }
        self.reservation = Some((kind, to));
        if p.unregister {
            self.registrations.retain(|r| r.port != *port);
        }
        self.aptpl = p.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(Effects::default())
    }

    /// The durable row (docs/formats/scsi_state.md). Version 3 has more registrations than releases before took.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = b"HFPR".to_vec();
        out.push(if self.registrations.len() > FITTED { 3 } else { 2 });
        let kind = self.reservation.as_ref().map_or(0, |(kind, _)| *kind as u8);
        let holder = self
            .reservation
            .as_ref()
            .and_then(|(_, port)| self.registrations.iter().position(|r| r.port == *port));
        out.push(kind);
        out.extend_from_slice(&(holder.unwrap_or(0) as u16).to_be_bytes());
        out.extend_from_slice(&(self.registrations.len() as u16).to_be_bytes());
        for r in &self.registrations {
            out.extend_from_slice(&r.key.to_be_bytes());
            out.extend_from_slice(&r.port.target.to_be_bytes());
            out.extend_from_slice(&(r.port.initiator.len() as u16).to_be_bytes());
            out.extend_from_slice(r.port.initiator.as_bytes());
            out.extend_from_slice(&(r.port.device.len() as u16).to_be_bytes());
            out.extend_from_slice(r.port.device.as_bytes());
        }
        out
    }

    /// Reads a durable row; `None` when it is not one.
    #[must_use]
    pub fn decode(row: &[u8]) -> Option<Self> {
        let (mut rest, has_devices, most) = match row.strip_prefix(b"HFPR")?.split_first()? {
            (1, rest) => (rest, false, FITTED),
            (2, rest) => (rest, true, FITTED),
            (3, rest) => (rest, true, MAX_REGISTRATIONS),
            _ => return None,
        };
        let (kind, holder, count) = (*rest.first()?, be(rest, 1, 2) as usize, be(rest, 3, 2) as usize);
        rest = rest.get(5..)?;
        if count > most {
            return None;
        }
        let mut out = Self { aptpl: true, ..Self::default() };
        for _ in 0..count {
            let (key, target) = (be(rest.get(..10)?, 0, 8), be(rest, 8, 2) as u16);
            rest = &rest[10..];
            let initiator = take_name(&mut rest)?;
            let device = if has_devices { take_name(&mut rest)? } else { String::new() };
            out.registrations.push(Registration { port: Port { initiator, device, target }, key });
        }
        if kind != 0 {
            out.reservation = Some((Kind::from_code(kind)?, out.registrations.get(holder)?.port.clone()));
        }
        rest.is_empty().then_some(out)
    }
}
