//! Entries for fuzzing: tables and addresses over any bytes.

use crate::Address;
use crate::table::Table;

/// A table of registrations.
pub fn table(bytes: &[u8]) {
    if let Ok(table) = Table::decode(bytes) {
        assert_eq!(table.encode(), bytes);
    }
}

/// An address.
pub fn address(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(address) = Address::parse(text)
    {
        assert_eq!(Address::parse(&address.to_string()), Ok(address));
    }
}

/// A table that is one, for the corpus.
#[must_use]
pub fn table_sample() -> Vec<u8> {
    let mut table = Table::default();
    for (address, key) in [("192.0.2.1:0/2213213", 3 << 16 | 1), ("192.0.2.2:0/7", 4 << 16 | 2)] {
        let _ = table.register(address, key);
    }
    let _ = table.reserve("192.0.2.2:0/7", 4 << 16 | 2);
    table.encode()
}

/// An address with everything in it, for the corpus.
#[must_use]
pub fn address_sample() -> &'static str {
    "rbd:vms/tenant/disk1?id=holdfast&conf=/etc/ceph/ceph.conf&keyring=/etc/ceph/holdfast.keyring"
}
