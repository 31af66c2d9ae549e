//! Service addresses that are here, as the node remembers them: shown, told of, listened at. `addresses` makes them so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use control_api::{Issue, PoolAddress, PoolConfig, PortalConfig, Problem, ServiceAddress, Severity};
use health_rules::{FindingCode, of_rule};
use parking_lot::Mutex;
use shard_runtime::Monotonic;
use tokio::sync::Notify;
use uuid::Uuid;

/// An address that is here, or should be.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) at: ServiceAddress,
    pub(super) here: bool,
    pub(super) since: Monotonic,
    pub(super) renewed: Option<Monotonic>,
    pub(super) problem: Option<Problem>,
    /// Who is connected to it, as the shared state has it.
    pub(super) clients: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Who was connected to it at the owner before.
    pub(super) former: Former,
}

/// Those who were connected to an address at the owner of the pool before.
#[derive(Clone, Debug, Default)]
pub(super) enum Former {
    /// The shared state has not said yet who they are.
    #[default]
    Unknown,
    /// They are told again and again that their connections are gone, since then.
    Told(Monotonic, Vec<(SocketAddr, SocketAddr)>),
    /// They have been told often enough.
    Over,
}

impl Former {
    /// Who has to be told still.
    pub(super) fn connections(&self) -> &[(SocketAddr, SocketAddr)] {
        match self {
            Self::Told(_, connections) => connections,
            Self::Unknown | Self::Over => &[],
        }
    }
}

/// The service addresses of a node.
#[derive(Default)]
pub(super) struct Addresses {
    pub(super) held: Mutex<BTreeMap<Uuid, Held>>,
    /// Held by whoever makes it so.
    pub(super) keeping: tokio::sync::Mutex<()>,
    pub(super) look: Notify,
}

impl Addresses {
    /// Addresses that are here.
    pub(super) fn here(&self) -> Vec<IpAddr> {
        self.held.lock().values().filter(|held| held.here).map(|held| held.at.ip).collect()
    }

    pub(super) fn change(&self, pool: Uuid, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.held.lock().get_mut(&pool) {
            change(held);
        }
    }

    /// The pool's address as it is shown.
    pub(super) fn shown(&self, pool: &PoolConfig) -> Option<PoolAddress> {
        let address = pool.address.clone()?;
        let held = self.held.lock();
        let held = held.get(&pool.guid).filter(|held| held.at.to_string() == address);
        Some(PoolAddress {
            address,
            interface: pool.interface.clone(),
            here: held.is_some_and(|held| held.here),
            problem: held.and_then(|held| held.problem.as_ref()).map(|problem| problem.detail.clone()),
        })
    }

    /// What is wrong with them.
    pub(super) fn issues(&self) -> Vec<Issue> {
        let held = self.held.lock();
        let troubled = held.values().filter_map(|held| Some((&held.at, held.problem.as_ref()?)));
        let issue = |(at, problem): (&ServiceAddress, &Problem)| Issue {
            severity: Severity::Error,
            subject: format!("address {at}"),
            detail: format!("its pool is served, but not at it: {}", problem.detail),
            todo: problem.todo.clone().unwrap_or_else(|| {
                "The pool is served at the node's own addresses meanwhile; it is tried again by itself."
                    .into()
            }),
            ..of_rule(FindingCode::AddressNotServed)
        };
        troubled.map(issue).collect()
    }

    /// Where shares are to be served besides these addresses.
    pub(super) fn listeners(&self, configured: &[String]) -> Vec<String> {
        let configured: Vec<SocketAddr> = configured.iter().filter_map(|text| text.parse().ok()).collect();
        let mut more = BTreeSet::new();
        for ip in self.here() {
            let ports: BTreeSet<u16> = configured.iter().map(SocketAddr::port).collect();
            for port in ports {
                let of_port = configured.iter().filter(|each| each.port() == port);
                if !of_port.clone().any(|each| covers(each.ip(), ip)) {
                    more.insert(SocketAddr::new(ip, port).to_string());
                }
            }
        }
        more.into_iter().collect()
    }

    /// Where targets are to be served besides these portals: at the same ports, in the same groups.
    pub(super) fn portals(&self, configured: &[PortalConfig]) -> Vec<PortalConfig> {
        let mut more: Vec<PortalConfig> = Vec::new();
        for portal in configured {
            let listening: Vec<String> = configured.iter().map(|portal| portal.address.clone()).collect();
            let Ok(at) = portal.address.parse::<SocketAddr>() else { continue };
            for address in self.listeners(&listening) {
                let same_port = address.parse::<SocketAddr>().is_ok_and(|new| new.port() == at.port());
                if same_port && more.iter().all(|known| known.address != address) {
                    more.push(PortalConfig { address, ..portal.clone() });
                }
            }
        }
        more
    }
}

/// Whether who listens at one address is reached at the other.
fn covers(listening: IpAddr, address: IpAddr) -> bool {
    match listening {
        IpAddr::V4(any) if any.is_unspecified() => address.is_ipv4(),
        IpAddr::V6(any) if any.is_unspecified() => true,
        one => one.to_canonical() == address,
    }
}
