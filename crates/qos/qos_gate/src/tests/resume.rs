//! What a limited flow gets that comes back: after a restart of the node, a takeover, or when its client has connected anew.

use qos_policy::PlaceKind;
use qos_scheduler::DEFAULT_BURST;

use super::*;

const MAX_IOPS: u64 = 500;
const MAX_BANDWIDTH: u64 = 4 << 20;
const SECOND: u64 = 1000;

/// A client that always has so many requests of so many bytes waiting, and each of whose requests takes the volume a millisecond.
struct Greedy {
    clock: Arc<HandClock>,
    gate: Arc<Gate>,
    flow: Option<Arc<Flow>>,
    turns: Vec<Turn>,
    bytes: u64,
    /// Requests that were let to the volume.
    started: u64,
}

impl Greedy {
    /// A node's queue as it is when it has just taken over: policies are in effect before any client is there.
    fn new(terms: Terms, bytes: u64) -> Self {
        let (clock, gate) = gate(128);
        gate.apply(&QosSettings::default(), only("a", Rule::Alone(terms)));
        Self { clock, gate, flow: None, turns: Vec::new(), bytes, started: 0 }
    }

    fn connect(&mut self) {
        self.flow = self.gate.disk("a").flow("x");
    }

    fn disconnect(&mut self) {
        self.turns.clear();
        self.flow = None;
    }

    /// Lets time pass, a millisecond after the other.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            let flow = self.flow.clone().expect("it is connected");
            while self.turns.len() < 256 {
                match flow.enter(Kind::Write, self.bytes).expect("there is room") {
                    Entry::Now(permit) => {
                        self.started += 1;
                        drop(permit);
                    }
                    Entry::Later(turn) => self.turns.push(turn),
                }
            }
            self.clock.pass(1);
            self.gate.pump(self.gate.now(), None);
            let came = self.turns.iter_mut().filter_map(come).count();
            self.started += came as u64;
            // They come in their order.
            self.turns.drain(..came);
        }
    }
}

fn iops() -> Terms {
    Terms { max_iops: Some(MAX_IOPS), ..Terms::default() }
}

/// The limit and 5 %, and what the burst allowance and one request may add.
fn most(rate: u64, each: u64) -> u64 {
    (rate + rate / 20 + rate * DEFAULT_BURST / 1_000_000_000) / each + 1
}

#[test]
fn a_flow_that_is_restored_gets_no_more_in_its_first_second_than_its_limit() {
    let bandwidth = Terms { max_bandwidth: Some(MAX_BANDWIDTH), ..Terms::default() };
    for (terms, bytes, rate, each) in
        [(iops(), 8192, MAX_IOPS, 1), (bandwidth, 65_536, MAX_BANDWIDTH, 65_536)]
    {
        let mut before = Greedy::new(terms, bytes);
        before.connect();
        before.run(3 * SECOND);
        // The node dies with requests waiting. The next one begins with nothing, some time after.
        let mut after = Greedy::new(terms, bytes);
        after.clock.pass(30 * SECOND);
        after.connect();
        after.run(SECOND);
        let started = after.started;
        assert!(started <= most(rate, each), "{started} of {}", most(rate, each));
        assert!(started >= rate / each * 9 / 10, "it is held back more than it must be: {started}");
        after.run(SECOND);
        assert!(
            after.started - started <= rate / each * 21 / 20,
            "{} in the next second",
            after.started - started
        );
    }
}

#[test]
fn flows_that_are_restored_together_get_their_one_limit_together() {
    let (clock, gate) = gate(128);
    clock.pass(30 * SECOND);
    let shared = Rule::Together(Uuid::from_u128(1), iops());
    let names: Vec<String> = (0..10).map(|number| format!("lun{number}")).collect();
    gate.apply(
        &QosSettings::default(),
        names.iter().map(|name| (name.clone(), shared)).collect::<BTreeMap<_, _>>(),
    );
    let flows: Vec<_> =
        names.iter().map(|name| gate.disk(name.as_str()).flow("x").expect("a flow")).collect();
    let (mut started, mut turns) = (0, Vec::new());
    for flow in flows.iter().cycle().take(2000) {
        match flow.enter(Kind::Read, 4096).expect("there is room") {
            Entry::Now(permit) => {
                started += 1;
                drop(permit);
            }
            Entry::Later(turn) => turns.push(turn),
        }
    }
    for _ in 0..SECOND {
        clock.pass(1);
        gate.pump(gate.now(), None);
        let waited = turns.len();
        turns.retain_mut(|turn| come(turn).is_none());
        started += (waited - turns.len()) as u64;
    }
    assert!(started <= most(MAX_IOPS, 1), "{started} of {}", most(MAX_IOPS, 1));
    assert!(started >= MAX_IOPS * 9 / 10, "{started}");
}

/// Its LUN stays while a client comes and goes: what it has had is not forgotten.
#[test]
fn a_client_that_connects_again_and_again_gets_nothing_by_it() {
    let mut client = Greedy::new(iops(), 65_536);
    let _lun = client.gate.disk("a");
    for _ in 0..20 {
        client.connect();
        client.run(SECOND / 20);
        client.disconnect();
    }
    assert!(client.started * 8 <= most(MAX_IOPS, 1) + 8, "{} of 8 each", client.started);
}

/// A file that is closed and opened again: nobody holds it meanwhile.
#[test]
fn a_client_that_opens_a_file_again_and_again_gets_nothing_by_it() {
    let mut client = Greedy::new(iops(), 65_536);
    for _ in 0..20 {
        client.connect();
        client.run(SECOND / 20);
        client.disconnect();
    }
    assert!(client.started * 8 <= most(MAX_IOPS, 1) + 8, "{} of 8 each", client.started);
    // What is owed is forgotten once time has paid it.
    let debts = |client: &Greedy| client.gate.state.lock().debts();
    assert_eq!(debts(&client), 1);
    client.clock.pass(30 * SECOND);
    client.gate.sample(client.gate.now());
    assert_eq!(debts(&client), 0);
    // The next one has its burst.
    client.connect();
    drop(now(client.flow.take().expect("a flow").enter(Kind::Write, 8192)));
}

/// However many files are closed with debts: the longest are kept.
#[test]
fn debts_are_bounded_and_the_longest_are_kept() {
    let (_, gate) = gate(1 << 14);
    let names: Vec<String> = (0..5000).map(|number| format!("/f{number}")).collect();
    let mut rules = Rules::default();
    for name in &names {
        rules.places.insert(PlaceKind::File, name, Rule::Alone(iops()));
    }
    gate.apply(&QosSettings::default(), rules);
    let owe = |name: &str, bytes: u64| {
        let flow = gate.disk(DiskName::File(name.to_owned())).flow("x").expect("a flow");
        drop(now(flow.enter(Kind::Write, bytes)));
    };
    owe(&names[0], 64 << 20);
    for name in &names[1..] {
        owe(name, 1 << 20);
    }
    assert_eq!(gate.state.lock().debts(), 4096);
    let flow = gate.disk(DiskName::File(names[0].clone())).flow("x").expect("a flow");
    assert!(matches!(flow.enter(Kind::Write, 4096), Ok(Entry::Later(_))), "the longest debt is known");
    // What a host has named is never asked for again.
    let rules = Rules::default();
    gate.apply(&QosSettings::default(), rules);
    let debts = gate.state.lock().debts();
    let named = gate.disk(DiskName::Flow(Uuid::from_u128(1), "/g".into()));
    named.ask(Asked::Terms(iops()));
    drop(now(named.flow("x").expect("a flow").enter(Kind::Write, 1 << 20)));
    drop(named);
    assert_eq!(gate.state.lock().debts(), debts);
}
