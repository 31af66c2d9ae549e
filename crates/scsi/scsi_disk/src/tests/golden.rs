//! Rows as earlier releases wrote them are read as what they were; those of a later one keep the unit from opening.

use block_device::MemoryDisk;
use format_images::{Image, kept};
use scsi_defs::reservation::Kind;

use super::*;
use crate::mode::Mode;
use crate::reservations::Registration;
use crate::sanitize::Sanitize;

fn registrations(version: u32) -> Vec<Registration> {
    let names = ["iqn.1991-05.com.microsoft:host-a,i,0x400001370000", "iqn.2004-10.com.ubuntu:ü,i,0x80", ""];
    let each = names.into_iter().enumerate().map(|(index, initiator)| {
        let device =
            if version == 1 { String::new() } else { format!("iqn.2026-01.org.example:disk{index}") };
        let port = Port { initiator: initiator.into(), device, target: index as u16 * 256 + 1 };
        Registration { port, key: 0x1122_3344_5566_7700 + index as u64 }
    });
    each.collect()
}

fn reserved(version: u32) -> Reservations {
    let registrations = registrations(version);
    let holder = registrations[1].port.clone();
    let reservation = Some((Kind::from_code(5).unwrap(), holder));
    Reservations { generation: 0, registrations, reservation, aptpl: true }
}

fn mode() -> Mode {
    Mode { write_cache: true, d_sense: false, tas: true, swp: false }
}

/// More registrations than there were before version 3.
fn many() -> Reservations {
    let each = (0..257_u16).map(|n| {
        let initiator = format!("iqn.2026-11.org.example:host-{},i,0x80{n:010x}", n / 16);
        let port = Port { initiator, device: "iqn.2026-01.org.example:disk".into(), target: n % 16 + 1 };
        Registration { port, key: 0x1122_3344_5566_0000 + u64::from(n) }
    });
    let registrations: Vec<_> = each.collect();
    let reservation = Some((Kind::from_code(5).unwrap(), registrations[256].port.clone()));
    Reservations { generation: 0, registrations, reservation, aptpl: true }
}

fn image(version: u32) -> Image {
    if version == 3 {
        return kept("scsi_state", version, &[("many", many().encode())]).unwrap();
    }
    let registered = Reservations { reservation: None, ..reserved(2) };
    let now = [
        ("reserved", reserved(2).encode()),
        ("registered", registered.encode()),
        ("mode", mode().encode()),
        ("sanitize", Sanitize::row(true)),
    ];
    kept("scsi_state", version, &now).unwrap()
}

#[test]
fn rows_of_earlier_releases_are_read() {
    for version in [1, 2] {
        let (image, reserved) = (image(version), reserved(version));
        let found = Reservations::decode(image.bytes("reserved")).unwrap();
        assert_eq!(
            (&found.registrations, &found.reservation),
            (&reserved.registrations, &reserved.reservation)
        );
        assert!(found.aptpl);
        let found = Reservations::decode(image.bytes("registered")).unwrap();
        assert_eq!((&found.registrations, &found.reservation), (&reserved.registrations, &None));
    }
    let image = image(2);
    assert_eq!(reserved(2).encode(), image.bytes("reserved"), "what is written now is another version");
    let larger = self::image(3);
    assert_eq!(Reservations::decode(larger.bytes("many")).as_ref(), Some(&many()));
    assert_eq!(many().encode(), larger.bytes("many"), "what is written now is another version");
    assert_eq!(Mode::decode(image.bytes("mode")), Some(mode()));
    assert_eq!(mode().encode(), image.bytes("mode"));
    assert_eq!(Sanitize::decode(image.bytes("sanitize")), Some(Sanitize::Failed { may_exit: true }));
    assert_eq!(Sanitize::row(true), image.bytes("sanitize"));
}

async fn open_with(kind: u8, row: &[u8]) -> Result<Arc<LogicalUnit>, String> {
    let rows = Rows::default();
    rows.0.lock().insert([&[7; 16][..], &[kind]].concat(), row.to_vec());
    let disk = Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512));
    LogicalUnit::open(unit_config(), Arc::new(DeviceBacking::new(disk)), Arc::new(rows)).await
}

#[test]
fn a_unit_opens_with_them_and_never_without_what_a_later_release_wrote() {
    run(async {
        for version in [1, 2] {
            let image = image(version);
            for (kind, name) in [(b'r', "reserved"), (b'r', "registered"), (b'm', "mode"), (b's', "sanitize")]
            {
                let row = image.bytes(name).to_vec();
                let unit = open_with(kind, &row).await.unwrap();
                if name == "reserved" {
                    assert_eq!(unit.inner.lock().reservations.registrations, registrations(version));
                }
                let mut newer = row;
                newer[4] = if kind == b'r' { 4 } else { 3 };
                assert!(open_with(kind, &newer).await.is_err(), "{name}");
            }
        }
        let row = image(3).bytes("many").to_vec();
        let unit = open_with(b'r', &row).await.unwrap();
        assert_eq!(unit.inner.lock().reservations.registrations, many().registrations);
        let mut newer = row;
        newer[4] = 4;
        assert!(open_with(b'r', &newer).await.is_err());
    });
}

/// A row of an earlier release does not tell targets apart: the one over which an initiator port is there first has its registration.
#[test]
fn a_registration_without_a_target_is_of_the_first_that_the_port_comes_over() {
    let row = image(1).bytes("reserved").to_vec();
    let mut state = Reservations::decode(&row).unwrap();
    let over = |device: &str| Port { device: device.into(), ..registrations(1)[1].port.clone() };
    state.know(&over("iqn.a:first"));
    state.know(&over("iqn.a:second"));
    assert!(state.holds(&over("iqn.a:first")) && state.allows(&over("iqn.a:first"), false));
    assert_eq!((state.key_of(&over("iqn.a:second")), state.holds(&over("iqn.a:second"))), (None, false));
}
