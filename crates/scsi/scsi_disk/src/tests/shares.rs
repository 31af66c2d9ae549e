//! What one initiator leaves to others of what they share of a unit.

use super::*;
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

#[test]
fn nobody_takes_all_registrations() {
    let greedy: Vec<_> =
        (100..100 + MAX_REGISTRATIONS as u64).map(|id| nexus(id, "iqn.2026-11.example:greedy")).collect();
    let mut state = Reservations::default();
    let mut register = |nexus: &Nexus| {
        let list = [[0; 8], 1_u64.to_be_bytes(), [0; 8]].concat();
        let parameters = scsi_defs::reservation::OutParameters::parse(&list, false).unwrap();
        let port = Port { initiator: nexus.initiator_port_name(), device: "iqn.a:disk".into(), target: 1 };
        state.apply(scsi_defs::Op::PrOutRegister, 0, &port, &parameters, &[1]).is_ok()
    };
    let got = greedy.iter().filter(|nexus| register(nexus)).count();
    assert!((64..MAX_REGISTRATIONS / 2).contains(&got), "{got}");
    for host in 0..8_u64 {
        let name = format!("iqn.2026-11.example:host-{host}");
        let ways = (0..8).filter(|way| register(&nexus(1000 + host * 8 + way, &name))).count();
        assert_eq!(ways, 8, "host {host} registers over all its ways");
    }
}
