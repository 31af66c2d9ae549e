//! Addresses on the machine's interfaces, by netlink.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::{TryStream, TryStreamExt as _};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, CacheInfo};
use rtnetlink::packet_route::link::LinkAttribute;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::{AddressError, LABEL, LIFETIME};

const ADMIN: &str = "CAP_NET_ADMIN";
/// How often a list is asked for that the kernel is too busy to give, and how long after each time.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Longest label that the kernel takes, in bytes.
const LABEL_MAX: usize = 15;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in the kernel.
    pub index: u32,
}

/// An address that an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The interface.
    pub interface: Interface,
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
    /// Whether it is one of ours: its label says so, or that it is there for a few seconds only.
    pub ours: bool,
}

/// The way to the kernel. Dropping it ends it; addresses that are held run out then.
pub struct Machine {
    handle: rtnetlink::Handle,
    /// Held while something is listed: of one socket the kernel answers one list at a time, and the next one with EBUSY.
    listing: Mutex<()>,
    connection: JoinHandle<()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn kernel(what: &'static str) -> impl Fn(rtnetlink::Error) -> AddressError {
    move |error| {
        let source = match &error {
            rtnetlink::Error::NetlinkError(message) => message.to_io(),
            other => io::Error::other(other.to_string()),
        };
        AddressError::of(what, ADMIN, source)
    }
}

impl Machine {
    /// Opens a way to the kernel of this thread's network namespace. To be called on a runtime of tokio.
    ///
    /// # Errors
    /// When there is no netlink socket to be had.
    pub fn open() -> Result<Self, AddressError> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|source| AddressError::Kernel { what: "netlink", source })?;
        Ok(Self { handle, listing: Mutex::new(()), connection: tokio::spawn(connection) })
    }

    /// Has the kernel list something. A list whose reader was dropped is read to its end by the connection: it is waited for.
    async fn list<T, S>(&self, what: &'static str, ask: impl Fn() -> S) -> Result<Vec<T>, AddressError>
    where
        S: TryStream<Ok = T, Error = rtnetlink::Error>,
    {
        let _listing = self.listing.lock().await;
        let mut tries = 0;
        loop {
            match ask().try_collect().await {
                Err(rtnetlink::Error::NetlinkError(message))
                    if message.to_io().kind() == io::ErrorKind::ResourceBusy && tries < BUSY_TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                listed => return listed.map_err(kernel(what)),
            }
        }
    }

    async fn links(&self) -> Result<Vec<Interface>, AddressError> {
        let found = self.list("interfaces cannot be listed", || self.handle.link().get().execute()).await?;
        let named = found.into_iter().filter_map(|link| {
            let index = link.header.index;
            link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(Interface { name, index }),
                _ => None,
            })
        });
        Ok(named.collect())
    }

    /// All addresses of the machine.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub async fn addresses(&self) -> Result<Vec<Assigned>, AddressError> {
        let links = self.links().await?;
        let found = self.list("addresses cannot be listed", || self.handle.address().get().execute()).await?;
        let of = |message: &AddressMessage| {
            let interface = links.iter().find(|link| link.index == message.header.index)?.clone();
            let (mut address, mut local, mut label, mut lasts) = (None, None, None, None);
            for attribute in &message.attributes {
                match attribute {
                    AddressAttribute::Address(found) => address = Some(*found),
                    AddressAttribute::Local(found) => local = Some(*found),
                    AddressAttribute::Label(found) => label = Some(found.as_str()),
                    AddressAttribute::CacheInfo(found) => lasts = Some(found.ifa_valid),
                    _ => {}
                }
            }
            // Nobody else gives addresses for so short a time: what has no label is known by that.
            let ours = label.is_some() && label == label_of(&interface.name).as_deref()
                || lasts.is_some_and(|seconds| u64::from(seconds) <= LIFETIME.as_secs());
            let address = local.or(address)?;
            Some(Assigned { interface, address, prefix: message.header.prefix_len, ours })
        };
        Ok(found.iter().filter_map(of).collect())
    }

    /// The interface for an address: the one that is named, or the one that has another address of the same network.
    ///
    /// # Errors
    /// When there is none.
    pub async fn interface_for(
        &self,
        address: IpAddr,
        prefix: u8,
        named: Option<&str>,
    ) -> Result<Interface, AddressError> {
        if let Some(name) = named {
            let found = self.links().await?.into_iter().find(|link| link.name == name);
            return found
                .ok_or_else(|| AddressError::NoInterface(format!("this node has no interface {name}")));
        }
        let all = self.addresses().await?;
        let near = all.into_iter().find(|each| {
            !each.ours && !each.address.is_loopback() && same_network(each.address, address, prefix)
        });
        near.map(|each| each.interface).ok_or_else(|| {
            AddressError::NoInterface(format!(
                "no interface of this node has an address in the network of {address}/{prefix}"
            ))
        })
    }

    /// Gives an interface an address for [`LIFETIME`] from now on, whether it has it already or not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn hold(&self, on: &Interface, address: IpAddr, prefix: u8) -> Result<(), AddressError> {
        let mut request = self.handle.address().add(on.index, address, prefix).replace();
        let message = request.message_mut();
        let mut lifetime = CacheInfo::default();
        let seconds = u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX);
        (lifetime.ifa_valid, lifetime.ifa_preferred) = (seconds, seconds);
        message.attributes.push(AddressAttribute::CacheInfo(lifetime));
        match address {
            IpAddr::V4(_) => {
                message.attributes.extend(label_of(&on.name).map(AddressAttribute::Label));
            }
            // Whoever may have it has said so before: it serves at once.
            IpAddr::V6(_) => message.header.flags |= AddressHeaderFlags::Nodad,
        }
        request.execute().await.map_err(kernel("the address cannot be added"))
    }

    /// Takes an address away; `false` when it was not there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn release(&self, on: &Interface, address: IpAddr, prefix: u8) -> Result<bool, AddressError> {
        let mut message = AddressMessage::default();
        message.header.index = on.index;
        message.header.prefix_len = prefix;
        message.header.family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        match self.handle.address().del(message).execute().await {
            Ok(()) => Ok(true),
            Err(rtnetlink::Error::NetlinkError(message))
                if message.to_io().kind() == io::ErrorKind::AddrNotAvailable =>
            {
                Ok(false)
            }
            Err(error) => Err(kernel("the address cannot be taken away")(error)),
        }
    }
}

/// The label of our addresses on an interface, where it has room for one.
fn label_of(interface: &str) -> Option<String> {
    let label = format!("{interface}{LABEL}");
    (label.len() <= LABEL_MAX).then_some(label)
}

fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let rest = |width: u32| width.saturating_sub(u32::from(prefix));
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(rest(32)).unwrap_or(0) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(rest(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As where several addresses are looked after, and some of those who look are dropped while they do.
    #[tokio::test]
    async fn many_list_at_the_same_time() {
        let machine = Machine::open().expect("a netlink socket");
        let looks = (0..200).map(|number| {
            let machine = &machine;
            async move {
                let looking = machine.addresses();
                if number % 4 == 0 {
                    tokio::select! {
                        biased;
                        all = looking => all.map(drop),
                        () = tokio::task::yield_now() => Ok(()),
                    }
                } else {
                    looking.await.map(|all| assert!(all.iter().any(|each| each.address.is_loopback())))
                }
            }
        });
        for look in futures_util::future::join_all(looks).await {
            look.expect("a list");
        }
    }

    #[test]
    fn networks_and_labels() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(same_network(ip("10.0.0.1"), ip("10.0.0.50"), 24));
        assert!(!same_network(ip("10.0.1.1"), ip("10.0.0.50"), 24));
        assert!(
            same_network(ip("1.2.3.4"), ip("200.0.0.50"), 0) && !same_network(ip("::1"), ip("1.2.3.4"), 0)
        );
        assert!(
            same_network(ip("fd00::1"), ip("fd00::ff"), 64)
                && !same_network(ip("fd00::1"), ip("fd01::1"), 64)
        );
        assert!(
            same_network(ip("10.0.0.1"), ip("10.0.0.1"), 32)
                && !same_network(ip("10.0.0.1"), ip("10.0.0.2"), 32)
        );
        assert_eq!(label_of("eth1").as_deref(), Some("eth1:hf"));
        assert_eq!(label_of("enp129s0f1np1"), None);
    }

    #[tokio::test]
    async fn this_machine_has_a_loopback() {
        let machine = Machine::open().expect("netlink");
        let all = machine.addresses().await.expect("listed");
        let loopback = all.iter().find(|each| each.address.is_loopback()).expect("there is one");
        assert!(!loopback.ours);
        let unknown = machine.interface_for("192.0.2.1".parse().expect("one"), 24, Some("nosuch0")).await;
        assert!(matches!(unknown, Err(AddressError::NoInterface(_))), "{unknown:?}");
    }
}
