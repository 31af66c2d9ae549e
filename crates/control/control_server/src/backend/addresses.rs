//! What the node needs of the machine's network to have the service addresses of its pools.

use std::net::{IpAddr, SocketAddr};

use control_api::ServiceAddress;

use super::Work;

/// An address of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineAddress {
    /// The address.
    pub at: ServiceAddress,
    /// Whether it is there as a service address: by this process, or by the one before it.
    pub is_service: bool,
}

/// The machine's addresses. An address is held for a few seconds and has to be held again before they are over.
pub trait AddressBackend: Send + Sync + 'static {
    /// The interface that gets an address.
    fn interface_for<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, String>;
    /// Has the address from now on, or for longer.
    fn hold<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()>;
    /// Does not have it any more.
    fn release<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()>;
    /// Tells the network that it is here.
    fn announce<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()>;
    /// The machine that answers for the address beside this one, if there is one: its MAC address.
    fn claimant<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, Option<String>>;
    /// All addresses that the machine has.
    fn all(&self) -> Work<'_, Vec<MachineAddress>>;
    /// Ends the connections of the machine that had the address before, given as our end of each and theirs, as that would have ended them: also
    /// what clients send at that moment meets no reset. It goes on for some seconds; asked for again, it is the same.
    fn tell_clients<'a>(&'a self, address: IpAddr, of: &'a [(SocketAddr, SocketAddr)]) -> Work<'a, ()>;
}
