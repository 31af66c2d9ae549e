//! Entries for fuzz targets: any bytes, no panic.

/// Parses `data` as everything this crate parses.
pub fn fuzz_scsi_defs(data: &[u8]) {
    if let Ok(cdb) = crate::Cdb::parse(data) {
        let _ = (cdb.lba(), cdb.length());
    }
    let _ = crate::copy::CopyList::parse(data);
    let _ = crate::copy::CopyList::parse_lid4(data);
    for moving in [false, true] {
        let _ = crate::reservation::OutParameters::parse(data, moving);
    }
    let _ = crate::reservation::parse_transport_id(data);
    let _ = crate::Reported::parse(data).map(|sense| sense.to_string());
    let capacities = [crate::answer::Capacity::parse10(data), crate::answer::Capacity::parse16(data)];
    for capacity in capacities.into_iter().flatten() {
        assert!(capacity.blocks.checked_mul(u64::from(capacity.block)).is_some());
    }
    let _ = crate::answer::most_blocks(data);
    assert!(crate::answer::unit_names(data).len() <= data.len());
}

#[cfg(test)]
mod tests {
    #[test]
    fn short_inputs() {
        for len in 0..64 {
            for byte in 0..=255 {
                super::fuzz_scsi_defs(&vec![byte; len]);
            }
        }
    }
}
