//! What one initiator leaves to others of what they share of a unit.

use super::*;
use crate::reservations::Registration;
use crate::task_set::{MAX_TASKS, SHARES};

fn nexus(id: u64, initiator: &str) -> Arc<Nexus> {
    let [.., low] = id.to_be_bytes();
    Arc::new(Nexus {
        id,
        initiator: initiator.to_owned(),
        initiator_port: [0, 0, 0, 1, (id >> 8) as u8, low],
        target: "iqn.a:disk".to_owned(),
        target_port: 1,
        io: IoTally::default(),
    })
}

/// An initiator with many sessions sends what it can, and none of it ends.
#[test]
fn nobody_fills_the_task_set_over_however_many_sessions() {
    run(async {
        let rig = Rig::new().await;
        let many: Vec<_> = (100..164).map(|id| nexus(id, "iqn.2026-11.example:greedy")).collect();
        many.iter().for_each(|nexus| rig.device.nexus_established(nexus));
        // The first of them, an ordered one behind one that never ends, holds up all others.
        let enter = |nexus, attribute| rig.unit.tasks.enter(nexus, attribute, |other| other == nexus).ok();
        let held = enter(many[0].id, TaskAttribute::Simple);
        let ordered = enter(many[0].id, TaskAttribute::Ordered);
        let mut running = Vec::new();
        let mut full = 0;
        for nexus in many.iter().cycle().take(3 * MAX_TASKS) {
            let command = || ScsiCommand {
                cdb: vec![0; 6],
                data_out: IoBuf::copy_from(&[]).freeze(),
                data_in_limit: 0,
                attribute: TaskAttribute::Simple,
            };
            let mut future = rig.device.execute(nexus, WireLun::from_number(1), command());
            match futures_util::poll!(future.as_mut()) {
                std::task::Poll::Pending => running.push(future),
                // The news of each session, first.
                std::task::Poll::Ready(Some(answer)) if answer.status == ScsiStatus::CheckCondition => {}
                std::task::Poll::Ready(answer) => {
                    assert_eq!(answer.map(|answer| answer.status), Some(ScsiStatus::TaskSetFull));
                    full += 1;
                }
            }
        }
        assert!(full > 0 && running.len() <= MAX_TASKS / 4, "{} run", running.len());
        // Others have more than their first, all the same.
        let others: Vec<_> = std::iter::from_fn(|| enter(2, TaskAttribute::Simple)).collect();
        assert!(others.len() > SHARES.first, "{}", others.len());
        drop((held, ordered, running, others));
        assert_eq!(rig.unit.tasks.counts(), (0, 0, 0));
    });
}

fn register(state: &mut Reservations, nexus: &Nexus, target: u16, all: &[u16]) -> bool {
    let list = [[0; 8], 1_u64.to_be_bytes(), [0; 8]].concat();
    let mut parameters = scsi_defs::reservation::OutParameters::parse(&list, false).unwrap();
    parameters.all_ports = all.len() > 1;
    let port = Port { initiator: nexus.initiator_port_name(), device: "iqn.a:disk".into(), target };
    state.apply(scsi_defs::Op::PrOutRegister, 0, &port, &parameters, all).is_ok()
}

#[test]
fn nobody_takes_all_registrations() {
    let greedy: Vec<_> =
        (100..100 + MAX_REGISTRATIONS as u64).map(|id| nexus(id, "iqn.2026-11.example:greedy")).collect();
    let mut state = Reservations::default();
    let got = greedy.iter().filter(|nexus| register(&mut state, nexus, 1, &[1])).count();
    assert!((64..MAX_REGISTRATIONS / 2).contains(&got), "{got}");
    for host in 0..8_u64 {
        let name = format!("iqn.2026-11.example:host-{host}");
        let ways = (0..8).filter(|way| register(&mut state, &nexus(1000 + host * 8 + way, &name), 1, &[1]));
        assert_eq!(ways.count(), 8, "host {host} registers over all its ways");
    }
}

/// A unit that had 256 registrations, in the order in which hosts come, before there were shares.
#[test]
fn what_fitted_before_there_were_shares_still_fits() {
    for (hosts, ports, targets) in [(16, 16, 1), (16, 4, 4), (64, 4, 1), (1, 8, 32), (2, 8, 16), (32, 2, 4)] {
        let targets: Vec<u16> = (1..=targets).collect();
        for at_once in [false, true] {
            let mut state = Reservations::default();
            for host in 0..hosts {
                let name = format!("iqn.2026-11.example:host-{host}");
                for port in 0..ports {
                    let nexus = nexus(host * 64 + port, &name);
                    let good = match at_once {
                        true => register(&mut state, &nexus, 1, &targets),
                        false => {
                            targets.iter().all(|target| register(&mut state, &nexus, *target, &[*target]))
                        }
                    };
                    assert!(
                        good,
                        "{hosts} hosts, {ports} ports, {}: host {host}, port {port}",
                        targets.len()
                    );
                }
            }
            assert_eq!(state.registrations.len(), 256);
        }
    }
}

/// The row of a unit with as much as there can be is no longer than the state table takes, and is read again.
#[test]
fn the_largest_row_is_bounded() {
    let name = |n: usize| format!("{n:0>240}");
    let registrations: Vec<_> = (0..MAX_REGISTRATIONS)
        .map(|n| Port { initiator: name(n), device: name(n + 1), target: 1 })
        .map(|port| Registration { port, key: 1 })
        .collect();
    let state = Reservations { registrations, aptpl: true, ..Reservations::default() };
    let row = state.encode();
    assert!(row.len() <= file_store::STATE_VALUE_MAX, "{}", row.len());
    assert_eq!(Reservations::decode(&row).as_ref(), Some(&state));
    let mut more = state;
    more.registrations.push(more.registrations[0].clone());
    assert_eq!(Reservations::decode(&more.encode()), None);
}

/// An earlier release takes 256 registrations of version 2: it reads what it knows, and refuses the rest by its version.
#[test]
fn a_row_says_that_it_has_more_than_earlier_releases_take() {
    let mut state = Reservations { aptpl: true, ..Reservations::default() };
    for n in 0..256 {
        assert!(register(&mut state, &nexus(n, &format!("iqn.a:host-{}", n / 8)), 1, &[1]));
    }
    assert_eq!(state.encode()[4], 2);
    assert!(register(&mut state, &nexus(256, "iqn.a:host-32"), 1, &[1]));
    let mut row = state.encode();
    assert_eq!(row[4], 3);
    assert_eq!(Reservations::decode(&row).map(|state| state.registrations.len()), Some(257));
    row[4] = 2;
    assert_eq!(Reservations::decode(&row), None, "no release has written that");
}
