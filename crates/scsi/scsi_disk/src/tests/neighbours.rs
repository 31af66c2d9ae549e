//! What an initiator may do to a unit that others use too.

use super::going_on::copy_list;
use super::*;

const WRITE_PROTECTED: (u8, u16) = (7, 0x2700);
const NOT_REACHABLE: (u8, u16) = (0xa, 0x0d02);
const GOOD: (u8, u16) = (0, 0);
const CACHING: [u8; 6] = [0x1a, 8, 8, 0, 255, 0];

/// MODE SELECT (6) of the caching page with this WCE.
fn select_caching(on: bool) -> ([u8; 6], Vec<u8>) {
    let mut list = vec![0; 24];
    (list[4], list[5], list[6]) = (0x08, 18, u8::from(on) << 2);
    ([0x15, 0x11, 0, 0, 24, 0], list)
}

async fn unit_with(id: [u8; 16], rows: Arc<Rows>, cache: (bool, bool)) -> Arc<LogicalUnit> {
    let config = UnitConfig {
        id,
        product: "disk".into(),
        block_size: 512,
        write_cache: cache.0,
        initiator_write_cache: cache.1,
        discards_writes: false,
        keep_reservations: false,
        port_groups: vec![PortGroup::optimized(1)],
    };
    let disk = Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512));
    LogicalUnit::open(config, Arc::new(DeviceBacking::new(disk)), rows).await.unwrap()
}

impl Rig {
    /// Two units, 1 and 2; the second initiator may only read what `read_only` says.
    async fn of_two(second: &Arc<LogicalUnit>, read_only: bool) -> Self {
        let rig = Self::new().await;
        let group = |initiator: &str, read_only| Group {
            initiators: [initiator.to_owned()].into(),
            luns: [(1, &rig.unit), (2, second)]
                .map(|(number, unit)| (number, MappedUnit { unit: unit.clone(), read_only }))
                .into(),
            ..Group::default()
        };
        rig.device.configure(vec![group(INITIATORS[0], false), group(INITIATORS[1], read_only)]);
        for who in 0..2 {
            for lun in [1, 2] {
                while rig.send(who, lun, &[0; 6], &[]).await.status != ScsiStatus::Good {}
            }
        }
        rig
    }

    async fn function(&self, who: usize, function: TaskManagement) -> TaskManagementOutcome {
        self.device.task_management(&self.nexuses[who], WireLun::from_number(1), function).await
    }
}

#[test]
fn who_may_only_read_changes_nothing_for_others() {
    run(async {
        let other = unit_with([8; 16], Arc::default(), (false, true)).await;
        let rig = Rig::of_two(&other, true).await;
        let (select, list) = select_caching(true);
        assert_eq!(rig.sense(1, &select, &list).await, WRITE_PROTECTED);
        // Software write protection, by the control mode page.
        let mut control = rig.good(1, &[0x1a, 8, 0x0a, 0, 255, 0], &[]).await;
        (control[0], control[2]) = (0, 0);
        control[4] &= 0x3f;
        control[8] |= 8;
        assert_eq!(
            rig.sense(1, &[0x15, 0x11, 0, 0, control.len() as u8, 0], &control).await,
            WRITE_PROTECTED
        );
        assert_eq!(rig.sense(1, &[0x1b, 0, 0, 0, 0, 0], &[]).await, WRITE_PROTECTED, "stop");
        assert_eq!(rig.sense(1, &[0x1b, 0, 0, 0, 1, 0], &[]).await, GOOD, "it runs already");
        assert_eq!(rig.sense(1, &[0x16, 0, 0, 0, 0, 0], &[]).await, WRITE_PROTECTED, "RESERVE");
        for action in 0..8 {
            assert_eq!(rig.prout(1, action, 1, (0, 0xb), true).await, WRITE_PROTECTED, "{action}");
        }
        assert_eq!(rig.sense(1, &[0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await, WRITE_PROTECTED);
        assert!(rig.unit.reservations().registrations.is_empty() && rig.rows.0.lock().is_empty());
        // The commands and the reservation of another are not ended by it either.
        rig.good(0, &[0x16, 0, 0, 0, 0, 0], &[]).await;
        for function in [TaskManagement::LogicalUnitReset, TaskManagement::ClearTaskSet] {
            assert_eq!(rig.function(1, function).await, TaskManagementOutcome::Rejected);
        }
        for function in [TaskManagement::TargetWarmReset, TaskManagement::AbortTaskSet] {
            assert_eq!(rig.function(1, function).await, TaskManagementOutcome::Complete);
        }
        let [writer, reader] = &rig.nexuses;
        assert!(rig.device.reaches(writer, reader) && !rig.device.reaches(reader, writer));
        let read = rw(0x28, 0, 0, 1);
        assert_eq!(rig.sense(1, &read, &[]).await, (0, 0x18), "it is reserved still");
        assert_eq!(rig.sense(0, &rw(0x2a, 0, 0, 1), &[1; 512]).await, GOOD, "and nobody was told of a reset");
        rig.good(0, &[0x17, 0, 0, 0, 0, 0], &[]).await;
        // It reads, and hears what there is to know.
        rig.good(1, &read, &[]).await;
        rig.good(1, &CACHING, &[]).await;
        rig.good(1, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]).await;
        rig.good(1, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await;
    });
}

/// A reset of the target ends the sessions of others: one unit in common is no right to the others' own ones.
#[test]
fn a_shared_unit_is_no_reach_to_what_another_has_for_itself() {
    run(async {
        let own = unit_with([8; 16], Arc::default(), (false, true)).await;
        let rig = Rig::new().await;
        let group = |initiator: &str, units: &[(u16, bool)]| {
            let mapped = |(number, read_only): &(u16, bool)| {
                let unit = if *number == 1 { &rig.unit } else { &own };
                (*number, MappedUnit { unit: Arc::clone(unit), read_only: *read_only })
            };
            let luns = units.iter().map(mapped).collect();
            Group { initiators: [initiator.to_owned()].into(), luns, ..Group::default() }
        };
        let [first, second] = &rig.nexuses;
        let rights = |a: &[(u16, bool)], b: &[(u16, bool)]| {
            rig.device.configure(vec![group(INITIATORS[0], a), group(INITIATORS[1], b)]);
            (rig.device.reaches(first, second), rig.device.reaches(second, first))
        };
        let writable = |units: &[u16]| units.iter().map(|number| (*number, false)).collect::<Vec<_>>();
        let reach = |a: &[u16], b: &[u16]| rights(&writable(a), &writable(b));
        assert_eq!(reach(&[1, 2], &[1]), (true, false));
        assert_eq!(reach(&[1], &[1]), (true, true));
        assert_eq!(reach(&[1], &[2]), (false, false));
        assert_eq!(reach(&[1], &[]), (false, false), "who has nothing yet keeps its session, too");
        // What both only read is nobody's to keep from the other, beside what both write; alone it is no right to anything.
        assert_eq!(rights(&[(1, false), (2, true)], &[(1, false), (2, true)]), (true, true));
        assert_eq!(rights(&[(1, false), (2, true)], &[(1, false), (2, false)]), (false, true));
        assert_eq!(rights(&[(2, true)], &[(2, true)]), (false, false));
    });
}

#[test]
fn the_write_cache_is_the_administrators() {
    run(async {
        let rows = Arc::new(Rows::default());
        let with = async |cache| {
            Rig::with(unit_with([7; 16], rows.clone(), cache).await, rows.clone(), INITIATORS).await
        };
        let wce = async |rig: &Rig| rig.good(0, &CACHING, &[]).await[6] & 4 != 0;
        let (on, off) = (select_caching(true), select_caching(false));
        let rig = with((false, true)).await;
        rig.good(0, &on.0, &on.1).await;
        assert!(wce(&rig).await && rig.unit.caches_writes());
        // What an initiator saved when it might does not count when it may not.
        let rig = with((false, false)).await;
        assert!(!wce(&rig).await && !rig.unit.caches_writes());
        assert_eq!(rig.sense(0, &on.0, &on.1).await, (5, 0x2600));
        rig.good(0, &off.0, &off.1).await;
        let changeable = rig.good(0, &[0x1a, 8, 0x48, 0, 255, 0], &[]).await;
        assert_eq!(changeable[6], 0, "page 8 says that it cannot be changed");
        // The administrator turns it on and off under sessions, which hear of it.
        for (state, changed) in [(true, true), (true, false), (false, true)] {
            rig.unit.set_write_cache(state, false).await.unwrap();
            let news = if changed { (6, 0x2a01) } else { GOOD };
            for who in 0..2 {
                assert_eq!(rig.sense(who, &[0; 6], &[]).await, news);
            }
            assert_eq!(wce(&rig).await, state);
        }
        // What is left of the initiator's row is the administrator's word.
        assert!(!wce(&with((false, true)).await).await);
    });
}

#[test]
fn a_unit_that_does_not_serve_is_not_reached_by_another() {
    run(async {
        let other = unit_with([8; 16], Arc::default(), (false, true)).await;
        let rig = Rig::of_two(&other, false).await;
        // From unit 1 to unit 2, and by a token the other way.
        let copy = {
            let mut list = copy_list(1, &rig.unit.designator(), 1, 1, 0);
            let mut second = copy_list(1, &other.designator(), 0, 0, 0)[16..48].to_vec();
            list[3] = 64;
            let rest = list.split_off(48);
            list.append(&mut second);
            list.extend_from_slice(&rest);
            list
        };
        let [high, low] = (copy.len() as u16).to_be_bytes();
        let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0];
        let token = {
            // The token is unit 1's, and is used through unit 2.
            let token = rig.token(0, &[(0, 1)]).await;
            super::tokens::write(&token, 0, &[(9, 1)])
        };
        let using = super::tokens::cdb(0x11, 2, token.len());
        let sense = async |lun, cdb: &[u8], data: &[u8]| {
            let response = rig.send(0, lun, cdb, data).await;
            match response.status {
                ScsiStatus::CheckCondition => {
                    (response.sense[2], u16::from_be_bytes([response.sense[12], response.sense[13]]))
                }
                status => (0, status as u16),
            }
        };
        assert_eq!(sense(1, &cdb, &copy).await, GOOD);
        assert_eq!(sense(2, &using, &token).await, GOOD);

        other.set_state(UnitState::Offline("test".into()));
        assert_eq!(sense(1, &cdb, &copy).await, NOT_REACHABLE, "the destination");
        other.set_state(UnitState::Online);
        rig.unit.set_state(UnitState::Offline("test".into()));
        assert_eq!(sense(2, &using, &token).await, NOT_REACHABLE, "the token's source");
        assert_eq!(sense(2, &cdb, &copy).await, NOT_REACHABLE, "a source, asked for through the destination");
        rig.unit.set_state(UnitState::Online);
        // Stopped by START STOP UNIT.
        assert_eq!(sense(1, &[0x1b, 0, 0, 0, 0, 0], &[]).await, GOOD);
        assert_eq!(sense(2, &using, &token).await, NOT_REACHABLE);
        assert_eq!(sense(1, &[0x1b, 0, 0, 0, 1, 0], &[]).await, GOOD);
        assert_eq!(sense(2, &using, &token).await, GOOD);
    });
}

/// A copy sent to one unit does to another only what could be done there directly.
#[test]
fn a_copy_does_to_another_unit_what_may_be_done_there() {
    run(async {
        let other = unit_with([8; 16], Arc::default(), (false, true)).await;
        let rig = Rig::of_two(&other, false).await;
        let group = |initiator: &str, read_only| Group {
            initiators: [initiator.to_owned()].into(),
            luns: [(1, &rig.unit, false), (2, &other, read_only)]
                .map(|(number, unit, read_only)| (number, MappedUnit { unit: unit.clone(), read_only }))
                .into(),
            ..Group::default()
        };
        let mapped = |read_only| {
            rig.device.configure(vec![group(INITIATORS[0], read_only), group(INITIATORS[1], false)]);
        };
        // From unit 1 to unit 2, or back; always sent to unit 1, which nothing of what follows is about.
        let copy = |back: bool| {
            let units = [rig.unit.designator(), other.designator()];
            let (from, to) = if back { (1, 0) } else { (0, 1) };
            let mut list = copy_list(1, &units[from], 1, 1, if back { 50 } else { 0 });
            let second = copy_list(1, &units[to], 0, 0, 0)[16..48].to_vec();
            list[3] = 64;
            let rest = list.split_off(48);
            list.extend_from_slice(&second);
            list.extend_from_slice(&rest);
            list
        };
        let sent = async |back: bool| {
            let list = copy(back);
            let [high, low] = (list.len() as u16).to_be_bytes();
            let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0];
            rig.sense(0, &cdb, &list).await
        };
        // Hears all news of both units, so that what is answered is about the copy.
        let heard = async |who| {
            for lun in [1, 2] {
                while rig.send(who, lun, &[0; 6], &[]).await.status == ScsiStatus::CheckCondition {}
            }
        };
        let holds = async |who, cdb: &[u8], list: &[u8]| {
            assert_eq!(rig.send(who, 2, cdb, list).await.status, ScsiStatus::Good);
        };
        let keys = |old: u64, new: u64| {
            let mut list = [old.to_be_bytes(), new.to_be_bytes()].concat();
            list.resize(24, 0);
            list
        };
        let prout = |action, kind| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        let untouched = vec![0; 512];
        rig.good(0, &rw(0x2a, 0, 0, 1), &[7; 512]).await;
        let medium = async || {
            heard(1).await;
            rig.send(1, 2, &rw(0x28, 0, 0, 1), &[]).await.data_in.unwrap().to_vec()
        };

        mapped(true);
        heard(0).await;
        assert_eq!(sent(false).await, NOT_REACHABLE, "it is mapped read-only");
        assert_eq!(medium().await, untouched);
        assert_eq!(sent(true).await, GOOD, "and may be read");
        mapped(false);
        heard(0).await;

        holds(1, &[0x16, 0, 0, 0, 0, 0], &[]).await;
        for back in [false, true] {
            assert_eq!(sent(back).await, NOT_REACHABLE, "another's RESERVE");
        }
        holds(1, &[0x17, 0, 0, 0, 0, 0], &[]).await;

        holds(1, &prout(0, 0), &keys(0, 5)).await;
        for (kind, reads) in [(1, GOOD), (3, NOT_REACHABLE)] {
            holds(1, &prout(1, kind), &keys(5, 0)).await;
            assert_eq!(sent(false).await, NOT_REACHABLE, "another's reservation of type {kind}");
            assert_eq!(sent(true).await, reads, "another's reservation of type {kind}");
            holds(1, &prout(2, kind), &keys(5, 0)).await;
        }
        holds(1, &prout(3, 0), &keys(5, 0)).await;
        heard(0).await;

        for (state, writes, reads) in [
            (UnitState::ReadOnly("test".into()), NOT_REACHABLE, GOOD),
            (UnitState::Busy, NOT_REACHABLE, NOT_REACHABLE),
            (UnitState::Offline("test".into()), NOT_REACHABLE, NOT_REACHABLE),
        ] {
            other.set_state(state.clone());
            assert_eq!(sent(false).await, writes, "{state:?}");
            assert_eq!(sent(true).await, reads, "{state:?}");
            other.set_state(UnitState::Online);
        }
        assert_eq!(medium().await, untouched);
        assert_eq!(sent(false).await, GOOD);
        assert_ne!(medium().await, untouched);
    });
}

#[test]
fn sanitize_wants_the_unit_for_itself() {
    run(async {
        let erase = [0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        let rig = Rig::new().await;
        rig.good(0, &erase, &[]).await; // the other one is there, and has not touched it
        let data = rw(0x2a, 0, 0, 1);
        rig.good(1, &data, &[5; 512]).await;
        assert_eq!(rig.sense(0, &erase, &[]).await, (5, 0x2c0b), "another initiator uses it");
        assert_eq!(rig.prout(0, 0, 0, (0, 0xa), false).await, GOOD);
        assert_eq!(rig.prout(1, 0, 0, (0, 0xb), false).await, GOOD);
        // Write exclusive lets others read; exclusive access for registrants lets them do all.
        for kind in [1, 6] {
            assert_eq!(rig.prout(0, 1, kind, (0xa, 0), false).await, GOOD);
            assert_eq!(rig.sense(0, &erase, &[]).await, (5, 0x2c0b), "{kind}");
            assert_eq!(rig.prout(0, 2, kind, (0xa, 0), false).await, GOOD);
            if kind == 6 {
                assert_eq!(rig.sense(1, &[0; 6], &[]).await, (6, 0x2a04));
            }
        }
        assert_eq!(rig.good(1, &rw(0x28, 0, 0, 1), &[]).await, [5; 512]);
        assert_eq!(rig.prout(0, 1, 3, (0xa, 0), false).await, GOOD);
        rig.good(0, &erase, &[]).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 0, 1), &[]).await, [0; 512]);
        // Alone, nothing is asked for.
        assert_eq!(rig.prout(0, 3, 0, (0xa, 0), false).await, GOOD);
        rig.device.nexus_lost(&rig.nexuses[1]);
        rig.good(0, &erase, &[]).await;
    });
}

#[test]
fn self_test_and_designator() {
    run(async {
        let rig = Rig::new().await;
        rig.good(0, &[0x1d, 4, 0, 0, 0, 0], &[]).await;
        assert_eq!(rig.sense(0, &[0x1d, 4, 0, 0, 8, 0], &[0; 8]).await, (5, 0x2400), "pages");
        assert_eq!(rig.sense(0, &[0x1d, 0x20, 0, 0, 0, 0], &[]).await, (5, 0x2400), "in the background");
        rig.unit.set_state(UnitState::Offline("test".into()));
        assert_eq!(rig.sense(0, &[0x1d, 4, 0, 0, 0, 0], &[]).await, (2, 0x0412));
        // An identity of the kind that LUNs had keeps its designator; new ones claim no vendor's numbers.
        assert_eq!(rig.unit.designator()[..], [&[0x67][..], &[7; 15]].concat());
        let mut id = [0xab; 16];
        id[6] = 0x8b;
        let new = unit_with(id, Arc::default(), (false, true)).await;
        assert_eq!(new.designator(), [0x3b, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab]);
        let rig = Rig::with(new, Arc::default(), INITIATORS).await;
        let page = rig.good(0, &[0x12, 1, 0x83, 0, 255, 0], &[]).await;
        assert_eq!(page[4..16], [1, 3, 0, 8, 0x3b, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab, 0xab]);
        let list = copy_list(1, &rig.unit.designator(), 0, 1, 100);
        let [high, low] = (list.len() as u16).to_be_bytes();
        rig.good(0, &rw(0x2a, 0, 0, 1), &[9; 512]).await;
        rig.good(0, &[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0], &list).await;
        assert_eq!(rig.good(0, &rw(0x28, 0, 100, 1), &[]).await, [9; 512]);
        let token = rig.token(0, &[(0, 1)]).await;
        assert_eq!(rig.use_token(1, &token, 0, &[(50, 1)]).await, GOOD);
        assert_eq!(rig.good(0, &rw(0x28, 0, 50, 1), &[]).await, [9; 512]);
    });
}

/// Each target counts its own portal groups: the tag alone does not tell ports of two targets apart.
#[test]
fn one_initiator_port_over_two_targets_is_two_nexuses() {
    run(async {
        let rows = Arc::new(Rows::default());
        let mut rig = Rig::over(rows.clone()).await;
        let first = &rig.nexuses[0];
        let second = Arc::new(Nexus {
            id: 3,
            initiator: first.initiator.clone(),
            initiator_port: first.initiator_port,
            target: "iqn.a:other".to_owned(),
            target_port: first.target_port,
            io: IoTally::default(),
        });
        rig.device.nexus_established(&second);
        rig.nexuses[1] = second;
        assert_eq!(rig.sense(1, &[0; 6], &[]).await, (6, 0x2900));
        assert_eq!(rig.prout(0, 0, 0, (0, 7), true).await, GOOD);
        // Write Exclusive: who has not registered over this target has no key here, and does not write.
        assert_eq!(rig.prout(0, 1, 1, (7, 0), true).await, GOOD);
        assert_eq!(rig.prout(1, 1, 1, (7, 0), true).await, (0, 0x18));
        assert_eq!(rig.sense(1, &rw(0x2a, 0, 0, 1), &[1; 512]).await, (0, 0x18));
        rig.good(0, &rw(0x2a, 0, 0, 1), &[2; 512]).await;
        // Nor does it after a restart, when only the row is left.
        let rig = Rig::over(rows).await;
        rig.good(0, &rw(0x2a, 0, 0, 1), &[3; 512]).await;
    });
}

/// What a number has meant to a session it goes on to mean, whatever else is mapped under it.
#[test]
fn a_number_never_leads_to_another_unit_under_a_host() {
    run(async {
        let other = unit_with([8; 16], Arc::default(), (false, true)).await;
        let rig = Rig::new().await;
        let mapped = |unit: &Arc<LogicalUnit>| {
            BTreeMap::from([(1, MappedUnit { unit: unit.clone(), read_only: false })])
        };
        let own = |luns| Group { initiators: [INITIATORS[0].to_owned()].into(), luns, ..Group::default() };
        let all = Group { luns: mapped(&other), ..Group::default() };
        let write = async || {
            let mut answer = rig.sense(0, &rw(0x2a, 0, 0, 1), &[1; 512]).await;
            while answer.0 == 6 {
                answer = rig.sense(0, &rw(0x2a, 0, 0, 1), &[1; 512]).await;
            }
            answer
        };
        // Both are mapped: it sees its own, as it did; it goes: the other one does not take its place.
        rig.device.configure(vec![own(mapped(&rig.unit)), all.clone()]);
        assert_eq!(write().await, (0, 0));
        rig.device.configure(vec![all.clone()]);
        assert_eq!(write().await, (5, 0x2500), "its writes must not go to the other disk");
        // Nor later, nor while its own is not there to be served.
        rig.device.configure(vec![all.clone()]);
        assert_eq!(write().await, (5, 0x2500));
        rig.device.configure(vec![own(mapped(&rig.unit)), all.clone()]);
        assert_eq!(write().await, (0, 0), "its own comes back");
        let away = Group { reserved: [1].into(), ..own(BTreeMap::new()) };
        rig.device.configure(vec![away, all.clone()]);
        assert_eq!(write().await, (5, 0x2500));
        rig.device.configure(vec![all.clone()]);
        assert_eq!(write().await, (5, 0x2500));
        // One that logs in anew sees what there is; so does one that has had nothing under the number.
        rig.device.nexus_lost(&rig.nexuses[0]);
        rig.device.nexus_established(&rig.nexuses[0]);
        assert_eq!(write().await, (0, 0));
        rig.device.configure(vec![]);
        assert_eq!(write().await, (5, 0x2500));
        rig.device.configure(vec![own(mapped(&rig.unit))]);
        assert_eq!(write().await, (0, 0));
    });
}
