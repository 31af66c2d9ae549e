//! A network in memory: interfaces with addresses, and other machines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use control_api::{Code, Problem, ServiceAddress};
use parking_lot::Mutex;

use super::now;
use crate::backend::{AddressBackend, MachineAddress, Work};

/// The interface that every machine here has.
pub const INTERFACE: &str = "eth0";

/// The addresses of one machine.
#[derive(Default)]
pub struct MemoryAddresses {
    /// Service addresses that it has.
    pub held: Mutex<BTreeSet<ServiceAddress>>,
    /// Addresses of its own.
    pub own: Mutex<Vec<ServiceAddress>>,
    /// Addresses that other machines answer for, with their MAC addresses.
    pub elsewhere: Mutex<BTreeMap<IpAddr, String>>,
    /// Whether the process may not change addresses.
    pub forbidden: Mutex<bool>,
    /// Addresses that the network was told of, in order.
    pub announced: Mutex<Vec<IpAddr>>,
    /// Connections whose clients were told that these are gone.
    pub told: Mutex<BTreeSet<(SocketAddr, SocketAddr)>>,
    /// How often the network had been told of an address when the first clients of it were.
    pub told_after: Mutex<BTreeMap<IpAddr, usize>>,
}

impl AddressBackend for MemoryAddresses {
    fn interface_for<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, String> {
        now(match &at.interface {
            Some(name) if name != INTERFACE => {
                Err(Problem::new(Code::InvalidRequest, format!("this node has no interface {name}")))
            }
            _ => Ok(INTERFACE.to_owned()),
        })
    }

    fn hold<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()> {
        if *self.forbidden.lock() {
            return now(Err(Problem::new(
                Code::Forbidden,
                "the node may not change the machine's addresses",
            )));
        }
        self.held.lock().insert(at.clone());
        now(Ok(()))
    }

    fn release<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()> {
        self.held.lock().remove(at);
        now(Ok(()))
    }

    fn announce<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()> {
        self.announced.lock().push(at.ip);
        now(Ok(()))
    }

    fn claimant<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, Option<String>> {
        now(Ok(self.elsewhere.lock().get(&at.ip).cloned()))
    }

    fn all(&self) -> Work<'_, Vec<MachineAddress>> {
        let held = self.held.lock().clone().into_iter().map(|at| MachineAddress { at, is_service: true });
        let own = self.own.lock().clone().into_iter().map(|at| MachineAddress { at, is_service: false });
        now(Ok(held.chain(own).collect()))
    }

    fn tell_clients<'a>(&'a self, address: IpAddr, of: &'a [(SocketAddr, SocketAddr)]) -> Work<'a, ()> {
        self.told.lock().extend(of);
        let announced = self.announced.lock().iter().filter(|known| **known == address).count();
        self.told_after.lock().entry(address).or_insert(announced);
        now(Ok(()))
    }
}
