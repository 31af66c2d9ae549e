//! Disks by node and path: `NODE:PATH`, as in `n2:/dev/sdb`, for pools that are made of disks of several nodes.

/// A disk of a node of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDisk<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The disk's path on that node, absolute.
    pub path: &'a str,
}

impl<'a> NodeDisk<'a> {
    /// The longest name of a node, in bytes.
    const MAX_NODE: usize = 63;

    /// Takes a disk's id or name apart; none where it is something else: a path of this node, an id, an address.
    #[must_use]
    pub fn parse(id: &'a str) -> Option<Self> {
        let (node, path) = id.split_once(':')?;
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=Self::MAX_NODE).contains(&node.len()) && node.bytes().all(letter);
        // Two slashes are those of an address (iscsi://…).
        let is_path = path.starts_with('/') && !path.starts_with("//") && path.len() > 1;
        (is_name && is_path).then_some(Self { node, path })
    }
}

/// Whether a disk is one that no discovery finds, and that is asked for where it is: a unit of an iSCSI target, an image of
/// Ceph, or a disk of a node.
#[must_use]
pub fn is_unit(id: &str) -> bool {
    is_network_disk(id) || NodeDisk::parse(id).is_some()
}

/// Whether a disk is one that every machine reaches by the same name: a unit of an iSCSI target, or an image of Ceph.
#[must_use]
pub fn is_network_disk(id: &str) -> bool {
    id.starts_with(crate::ISCSI_DISK) || id.starts_with(crate::RBD_DISK)
}

impl std::fmt::Display for NodeDisk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.node, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_paths_ids_and_addresses() {
        let disk = NodeDisk::parse("n2:/dev/disk/by-id/wwn-0x5:0").expect("one");
        assert_eq!((disk.node, disk.path), ("n2", "/dev/disk/by-id/wwn-0x5:0"));
        assert_eq!(disk.to_string(), "n2:/dev/disk/by-id/wwn-0x5:0");
        for other in [
            "/dev/sdb",
            "n2",
            "n2:",
            "n2:/",
            "n2:sdb",
            "N2:/dev/sdb",
            ":/dev/sdb",
            "iscsi://10.0.0.5:3260/iqn.2026-01.org.example:disk/3",
            "/a:/b",
        ] {
            assert_eq!(NodeDisk::parse(other), None, "{other}");
        }
    }
}
