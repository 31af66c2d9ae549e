//! Interfaces, from `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net of the kernel).

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::text::{names, number, read};

/// What an interface is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A port of an adapter of the machine, or of the virtual machine.
    Physical,
    /// Several interfaces that look like one.
    Bond,
    /// A switch in software.
    Bridge,
    /// One virtual network of another interface.
    Vlan,
    /// The machine itself.
    Loopback,
    /// Any other one without hardware: veth, tunnel, tap.
    #[default]
    Virtual,
}

/// An RDMA device behind an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rdma {
    /// Its name, as `mlx5_0`.
    pub device: String,
    /// The version of its firmware, as the driver writes it.
    pub firmware: String,
}

/// How a bond works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// As the kernel calls it: `active-backup`, `802.3ad`.
    pub mode: String,
    /// The interfaces that it is made of.
    pub members: Vec<String>,
}

/// An interface of the network. What the kernel does not say is empty, 0 or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// `up`, `down`, `unknown`, as the kernel says.
    pub state: String,
    /// Megabits a second; absent where the driver says none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbit: Option<u64>,
    /// Whether it sends or receives, but not both at once.
    pub half_duplex: bool,
    /// Bytes of the longest packet.
    pub mtu: u64,
    /// Its address on the link.
    pub hardware_address: String,
    /// IP addresses with the length of their prefix, as `192.0.2.1/24`.
    pub addresses: Vec<String>,
    /// The driver.
    pub driver: String,
    /// The version of the adapter's firmware; needs the program `ethtool`.
    pub firmware: String,
    /// Receive queues, over which its packets are spread (RSS).
    pub receive_queues: u64,
    /// Transmit queues.
    pub transmit_queues: u64,
    /// Whether the kernel spreads received packets over processors by itself (RPS).
    pub spread_by_kernel: bool,
    /// The RDMA device behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<Rdma>,
    /// What there is more of it when it is a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// The bond or bridge that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// Packets received and sent since the machine started.
    pub packets: u64,
    /// Packets that were dropped or damaged since then.
    pub errors: u64,
}

impl Interface {
    /// Whether it carries packets of others: not the loopback, and not down.
    #[must_use]
    pub fn carries(&self) -> bool {
        self.kind != Kind::Loopback && self.state != "down"
    }

    /// One, from its folder in `/sys/class/net`.
    fn of(folder: &Path) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let device = folder.join("device");
        let queues = names(&folder.join("queues"));
        let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count() as u64;
        let counted = |names: &[&str]| {
            let each = names.iter().filter_map(|name| number(folder.join("statistics").join(name)));
            each.fold(0_u64, u64::saturating_add)
        };
        // A mask of processors in hexadecimal, groups of 32 with commas between: zeros when it is off.
        let spread = |queue: &&String| {
            queue.starts_with("rx-")
                && read(folder.join("queues").join(queue).join("rps_cpus"))
                    .contains(|c| !matches!(c, '0' | ','))
        };
        Self {
            kind: kind(folder),
            state: read(folder.join("operstate")),
            // -1 where there is no link.
            speed_mbit: number(folder.join("speed")).filter(|speed| *speed < u64::from(u32::MAX)),
            half_duplex: read(folder.join("duplex")) == "half",
            mtu: number(folder.join("mtu")).unwrap_or(0),
            hardware_address: read(folder.join("address")),
            addresses: Vec::new(),
            driver: last_of_link(&device.join("driver")).unwrap_or_default(),
            firmware: String::new(),
            receive_queues: count("rx-"),
            transmit_queues: count("tx-"),
            spread_by_kernel: queues.iter().any(|queue| spread(&queue)),
            rdma: names(&device.join("infiniband")).into_iter().next().map(|device_name| Rdma {
                firmware: read(device.join("infiniband").join(&device_name).join("fw_ver")),
                device: device_name,
            }),
            bond: folder.join("bonding").is_dir().then(|| bond(&folder.join("bonding"))),
            part_of: last_of_link(&folder.join("master")),
            packets: counted(&["rx_packets", "tx_packets"]),
            errors: counted(&["rx_errors", "tx_errors", "rx_dropped", "tx_dropped"]),
            name,
        }
    }
}

fn kind(folder: &Path) -> Kind {
    // ARPHRD_LOOPBACK
    if read(folder.join("type")) == "772" {
        return Kind::Loopback;
    }
    if folder.join("bonding").is_dir() {
        return Kind::Bond;
    }
    if folder.join("bridge").is_dir() {
        return Kind::Bridge;
    }
    if read(folder.join("uevent")).lines().any(|line| line == "DEVTYPE=vlan") {
        return Kind::Vlan;
    }
    if folder.join("device").exists() { Kind::Physical } else { Kind::Virtual }
}

fn bond(folder: &Path) -> Bond {
    let first = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
    Bond {
        // "802.3ad 4": the name and its number.
        mode: first(read(folder.join("mode"))),
        members: read(folder.join("slaves")).split_whitespace().map(str::to_owned).collect(),
    }
}

fn last_of_link(link: &Path) -> Option<String> {
    let target = std::fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// All, by name. `class` is `/sys/class/net`.
#[must_use]
pub(crate) fn interfaces(class: &Path) -> Vec<Interface> {
    let mut all: Vec<Interface> = names(class).iter().map(|name| Interface::of(&class.join(name))).collect();
    // `bonding_masters` is a file beside the interfaces.
    all.retain(|interface| interface.mtu > 0);
    all
}
