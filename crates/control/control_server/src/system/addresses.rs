//! Service addresses on the interfaces of this machine, by the kernel.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use control_api::{Code, Problem, ServiceAddress};
use parking_lot::Mutex;
use service_address::{AddressError, Farewell, Interface, Machine};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::backend::{AddressBackend, MachineAddress, Work};

/// How long an answer of another machine that has an address is waited for (RFC 5227 has between 3 and 6 seconds for machines that start; an administrator
/// waits for this one).
const PROBE: Duration = Duration::from_millis(900);

/// For so long connections of the machine before are ended, unless all are over earlier. Of clients that are gone, too, nothing comes.
const FAREWELL: Duration = Duration::from_secs(10);

/// Connections of the machine that had an address before: our end of each, and theirs.
type Former = Vec<(SocketAddr, SocketAddr)>;

/// The machine's network.
#[derive(Default)]
pub(super) struct MachineNetwork {
    /// Opened when it is used first: most nodes have no pool with an address.
    machine: OnceCell<Machine>,
    /// Connections of the machine before to each address, which are being ended.
    farewells: Mutex<BTreeMap<IpAddr, (Former, Farewell)>>,
}

fn problem(error: &AddressError) -> Problem {
    let detail = error.to_string();
    match error {
        AddressError::NotAllowed(needs) => Problem::new(Code::Forbidden, detail).todo(format!(
            "Run the node with the capabilities CAP_NET_ADMIN and CAP_NET_RAW (it lacks {needs}): as root, or with CapabilityBoundingSet and AmbientCapabilities of its unit."
        )),
        AddressError::NoInterface(_) => Problem::new(Code::InvalidRequest, detail).todo(
            "Name the interface of the clients' network with `holdfast pool set POOL --interface NAME`, or give it an address of that network.",
        ),
        AddressError::Kernel { .. } => Problem::new(Code::Io, detail),
    }
}

impl MachineNetwork {
    async fn machine(&self) -> Result<&Machine, Problem> {
        self.machine.get_or_try_init(|| async { Machine::open() }).await.map_err(|error| problem(&error))
    }

    async fn place(&self, at: &ServiceAddress) -> Result<(&Machine, Interface), Problem> {
        let machine = self.machine().await?;
        let interface = machine.interface_for(at.ip, at.prefix, at.interface.as_deref()).await;
        Ok((machine, interface.map_err(|error| problem(&error))?))
    }
}

/// Work that blocks for a moment, beside those that wait for nothing.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AddressError> + Send + 'static,
) -> Result<T, Problem> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Problem::new(Code::Internal, error.to_string()))?.map_err(|error| problem(&error))
}

impl AddressBackend for MachineNetwork {
    fn interface_for<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, String> {
        Box::pin(async move { Ok(self.place(at).await?.1.name) })
    }

    fn hold<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()> {
        Box::pin(async move {
            let (machine, on) = self.place(at).await?;
            machine.hold(&on, at.ip, at.prefix).await.map_err(|error| problem(&error))
        })
    }

    fn release<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()> {
        Box::pin(async move {
            self.farewells.lock().remove(&at.ip);
            // Wherever it is: the interface may have lost the address by which it was found.
            let machine = self.machine().await?;
            let all = machine.addresses().await.map_err(|error| problem(&error))?;
            for found in all.iter().filter(|found| found.address == at.ip && found.prefix == at.prefix) {
                let released = machine.release(&found.interface, at.ip, at.prefix).await;
                released.map_err(|error| problem(&error))?;
            }
            Ok(())
        })
    }

    fn announce<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, ()> {
        Box::pin(async move {
            let ((_, on), ip) = (self.place(at).await?, at.ip);
            aside(move || service_address::announce(&on, ip)).await
        })
    }

    fn claimant<'a>(&'a self, at: &'a ServiceAddress) -> Work<'a, Option<String>> {
        Box::pin(async move {
            let ((_, on), ip) = (self.place(at).await?, at.ip);
            aside(move || service_address::probe(&on, ip, PROBE)).await
        })
    }

    fn all(&self) -> Work<'_, Vec<MachineAddress>> {
        Box::pin(async move {
            let found = self.machine().await?.addresses().await.map_err(|error| problem(&error))?;
            let of = |found: service_address::Assigned| MachineAddress {
                at: ServiceAddress {
                    ip: found.address,
                    prefix: found.prefix,
                    interface: Some(found.interface.name),
                },
                is_service: found.ours,
            };
            Ok(found.into_iter().map(of).collect())
        })
    }

    fn tell_clients<'a>(&'a self, address: IpAddr, of: &'a [(SocketAddr, SocketAddr)]) -> Work<'a, ()> {
        Box::pin(async move {
            if self.farewells.lock().get(&address).is_some_and(|(known, _)| known == of) {
                return Ok(());
            }
            let connections: Vec<(SocketAddr, SocketAddr)> =
                of.iter().filter(|(local, _)| local.ip().to_canonical() == address).copied().collect();
            // Its placeholders would be taken for connections of this machine itself.
            self.farewells.lock().remove(&address);
            let begun = aside(move || Farewell::begin(&connections, FAREWELL)).await?;
            self.farewells.lock().insert(address, (of.to_vec(), begun));
            Ok(())
        })
    }
}
