//! The state machine against what must hold whatever clients do.

use proptest::prelude::*;

use super::*;
use crate::api::{Granted, LeaseRequest};
use smb_protocol::Guid;
use smb_protocol::security::Sid;

const LIMIT: Duration = Duration::from_secs(35);

/// A step of some clients on one file.
#[derive(Clone, Debug)]
enum Step {
    OpenLease { client: u8, wanted: u32, overwrites: bool },
    OpenOplock { wanted: u8, violation: bool },
    Change { by: usize },
    Handles { by: usize },
    AckLease { at: usize, state: u32 },
    AckOplock { at: usize, none: bool },
    Close { at: usize },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..4, 0_u32..8, any::<bool>()).prop_map(|(client, wanted, overwrites)| Step::OpenLease {
            client,
            wanted,
            overwrites
        }),
        (prop::sample::select(vec![0_u8, 1, 8, 9]), any::<bool>())
            .prop_map(|(wanted, violation)| Step::OpenOplock { wanted, violation }),
        (0_usize..8).prop_map(|by| Step::Change { by }),
        (0_usize..8).prop_map(|by| Step::Handles { by }),
        (0_usize..8, 0_u32..8).prop_map(|(at, state)| Step::AckLease { at, state }),
        (0_usize..8, any::<bool>()).prop_map(|(at, none)| Step::AckOplock { at, none }),
        (0_usize..8).prop_map(|at| Step::Close { at }),
        (1_u64..40).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// What a client believes it may cache: what it was granted, less what it was told or said itself.
#[derive(Default)]
struct Model {
    caching: Caching,
    now: u64,
    next: u64,
    /// The opens, with the lease that they share.
    opens: Vec<(OpenId, Option<LeaseName>)>,
}

fn name(client: u8) -> LeaseName {
    // Two of the four differ in the user alone.
    let same = client / 2;
    let user = Sid::new(5, &[21, u32::from(client)]).unwrap();
    LeaseName { client: Guid([same; 16]), user, key: LeaseKey([same; 16]) }
}

impl Model {
    fn now(&self) -> Monotonic {
        Monotonic(self.now * 1_000_000_000)
    }

    fn by(&self, at: usize) -> By {
        let open = self.opens.get(at % self.opens.len().max(1));
        open.map_or(By::default(), |(open, lease)| By { open: Some(*open), lease: *lease, creates: false })
    }

    fn open(&mut self, lease: Option<u8>, wanted: u32, violation: bool, overwrites: bool) {
        let lease_name = lease.map(name);
        let opening = Opening { lease: lease_name, violation, overwrites, lease_stat: false, first: true };
        let now = self.now();
        let outcome = self.caching.break_for_open(&opening, now, LIMIT, &|_| Link::Connected);
        if outcome.wait || violation {
            return;
        }
        let mine = By { lease: lease_name, ..By::default() };
        assert!(
            self.caching.entries.iter().all(|e| e.is(&mine) || !e.state.contains(W)),
            "admitted while another caches writes"
        );
        self.next += 1;
        let id = OpenId(self.next);
        let others = Others {
            plain_opens: self
                .opens
                .iter()
                .any(|(open, _)| self.caching.of(*open) == Granted::Oplock(OplockLevel::NONE)),
            ..Others::default()
        };
        match lease {
            Some(client) => {
                let name = name(client);
                let request = LeaseRequest { key: name.key, state: LeaseState(wanted), v2: None };
                self.caching.grant_lease(id, name, &request, others);
            }
            None => drop(self.caching.grant_oplock(id, OplockLevel(wanted as u8), others)),
        }
        self.opens.push((id, lease_name));
    }

    fn apply(&mut self, step: &Step) {
        let now = self.now();
        let link = |_: OpenId| Link::Connected;
        match *step {
            Step::OpenLease { client, wanted, overwrites } => {
                self.open(Some(client), wanted, false, overwrites)
            }
            Step::OpenOplock { wanted, violation } => self.open(None, u32::from(wanted), violation, false),
            Step::Change { by } => {
                let by = self.by(by);
                self.caching.break_for_change(&by, now, LIMIT, &link);
                let stale = self.caching.entries.iter().find(|e| {
                    !e.is(&by) && e.state.contains(R) && e.breaking.is_none_or(|b| b.required.contains(R))
                });
                assert!(stale.is_none(), "still reads from its cache: {stale:?}");
            }
            Step::Handles { by } => {
                let by = self.by(by);
                let outcome = self.caching.break_handles(&by, now, LIMIT, &link);
                let held = self.caching.entries.iter().any(|e| !e.is(&by) && e.state.contains(H));
                assert!(!held || outcome.wait, "a handle is cached and nobody waits");
            }
            Step::AckLease { at, state } => {
                if let Some((_, Some(lease))) = self.opens.get(at % self.opens.len().max(1)) {
                    let before = self.caching.entries.clone();
                    let answer = self.caching.acknowledge_lease(*lease, LeaseState(state), now, LIMIT, &link);
                    if answer.is_err() {
                        assert_eq!(before, self.caching.entries, "a wrong answer changes nothing");
                    }
                }
            }
            Step::AckOplock { at, none } => {
                let level = if none { OplockLevel::NONE } else { OplockLevel::II };
                let open = self.opens.get(at % self.opens.len().max(1)).map(|(open, _)| *open);
                drop(open.map(|open| self.caching.acknowledge_oplock(open, level)));
            }
            Step::Close { at } => {
                if !self.opens.is_empty() {
                    let (open, _) = self.opens.swap_remove(at % self.opens.len());
                    self.caching.close(open);
                }
            }
            Step::Wait { seconds } => {
                self.now += seconds;
                let now = self.now();
                self.caching.expire(now);
            }
        }
    }

    /// What holds between any two steps.
    fn check(&self) {
        for (at, entry) in self.caching.entries.iter().enumerate() {
            assert!([NONE, R, RH, RW, RWH].contains(&entry.state), "no state: {entry:?}");
            assert!(
                !entry.opens.is_empty() && entry.opens.iter().all(|o| self.opens.iter().any(|(p, _)| o == p))
            );
            if let Some(breaking) = entry.breaking {
                assert!(entry.state != breaking.requested && entry.state.contains(breaking.requested));
                assert!(entry.state.contains(breaking.required));
            }
            for other in self.caching.entries.iter().skip(at + 1) {
                let exclusive = entry.state.contains(W) || other.state.contains(W);
                let both = entry.state != NONE && other.state != NONE;
                assert!(!(exclusive && both), "writes are cached beside something: {entry:?} {other:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn caches_never_contradict_each_other(steps in prop::collection::vec(step(), 1..40)) {
        let mut model = Model::default();
        for step in &steps {
            model.apply(step);
            model.check();
        }
        // In the end everybody answers or is given up, and a newcomer gets in.
        for _ in 0..3 {
            model.now += 36;
            let now = model.now();
            model.caching.expire(now);
            model.open(None, 0, false, true);
        }
        prop_assert!(model.caching.entries.iter().all(|entry| entry.breaking.is_none() || !entry.state.contains(W)));
    }
}
