//! What is said arrives as it was, whole or not at all, and any bytes may come.

use proptest::prelude::*;

use super::*;

fn demand(policy: u128, volume: u128, units: u64) -> Demand {
    Demand {
        policy: Uuid::from_u128(policy),
        volume: Uuid::from_u128(volume),
        units,
        bytes: units / 2,
        got: units / 4,
    }
}

fn wanted(exchange: &Exchange, policy: u128, volume: u128) -> (u64, u64) {
    exchange.wanted_elsewhere(Uuid::from_u128(policy), Uuid::from_u128(volume))
}

/// All messages of what `from` says now arrive.
fn arrives(from: &Exchange, node: u16, at: &Exchange) {
    for message in from.says().borrow().iter() {
        assert!(message.len() <= MOST_BYTES);
        at.hear(node, message);
    }
}

#[test]
fn what_a_node_says_holds_until_it_says_something_else() {
    let (one, two) = (Exchange::default(), Exchange::default());
    one.say(&[demand(1, 7, 4000), demand(1, 8, u64::MAX), demand(2, 7, 12)]);
    arrives(&one, 1, &two);
    assert_eq!([wanted(&two, 1, 7), wanted(&two, 1, 8)], [(4000, 2000), (u64::MAX, u64::MAX / 2)]);
    assert_eq!(two.got_elsewhere(Uuid::from_u128(2)), 3);
    assert_eq!(two.got_elsewhere(Uuid::from_u128(1)), u64::MAX / 4 + 1000);
    // The volume has another node: it is what the one says that has it.
    two.hear(3, &message::round(1, &[demand(1, 7, 5000)])[0]);
    assert_eq!(wanted(&two, 1, 7), (5000, 2500));
    one.say(&[demand(1, 8, 16)]);
    arrives(&one, 1, &two);
    assert_eq!([wanted(&two, 1, 8), wanted(&two, 2, 7)], [(16, 8), (0, 0)]);
    two.keep(|node| node != 3);
    assert!(two.has_heard() && !one.has_heard());
    assert_eq!([wanted(&two, 1, 7), wanted(&two, 1, 8)], [(0, 0), (16, 8)]);
}

#[test]
fn who_asks_for_something_and_is_silent_is_lost() {
    let (exchange, policy) = (Exchange::default(), Uuid::from_u128(1));
    let look = || (0..LOST_AFTER).for_each(|_| exchange.look());
    exchange.hear(1, &message::round(1, &[demand(1, 7, 100)])[0]);
    assert!(!exchange.is_lost(policy));
    look();
    assert!(exchange.is_lost(policy) && !exchange.is_lost(Uuid::from_u128(2)));
    assert_eq!(wanted(&exchange, 1, 7).0, 100, "what it has said holds");
    exchange.hear(1, &message::round(2, &[demand(1, 7, 100)])[0]);
    assert!(!exchange.is_lost(policy));
    // Who has said that it asks for nothing says no more.
    exchange.hear(1, &message::round(3, &[])[0]);
    look();
    assert!(!exchange.is_lost(policy));
}

#[test]
fn nothing_is_said_once() {
    let exchange = Exchange::default();
    let mut says = exchange.says();
    exchange.say(&[]);
    assert!(!says.has_changed().unwrap(), "there was nothing before");
    for _ in 0..3 {
        exchange.say(&[demand(1, 1, 1)]);
        assert!(
            says.has_changed().unwrap(),
            "what is asked for is said each time: a link that is new knows nothing"
        );
        says.mark_unchanged();
    }
    for expected in [true, false, false] {
        exchange.say(&[]);
        assert_eq!(says.has_changed().unwrap(), expected);
        says.mark_unchanged();
    }
    exchange.say(&[demand(1, 1, 1)]);
    assert!(says.has_changed().unwrap());
}

#[test]
fn a_round_counts_when_all_of_it_is_there() {
    let demands: Vec<Demand> = (0..50).map(|volume| demand(1, volume, 100)).collect();
    let round = message::round(3, &demands);
    assert_eq!(round.len(), 3);
    let exchange = Exchange::default();
    exchange.hear(1, &message::round(1, &[demand(1, 0, 7)])[0]);
    for without in 0..round.len() {
        let rest = round.iter().enumerate().filter(|(number, _)| *number != without);
        rest.for_each(|(_, message)| exchange.hear(1, message));
        assert_eq!(
            [wanted(&exchange, 1, 0).0, wanted(&exchange, 1, 49).0],
            [7, 0],
            "without message {without}"
        );
    }
    // Parts of two rounds are none.
    exchange.hear(1, &round[0]);
    exchange.hear(1, &message::round(5, &demands)[1]);
    exchange.hear(1, &round[2]);
    assert_eq!(wanted(&exchange, 1, 0).0, 7);
    round.iter().for_each(|message| exchange.hear(1, message));
    assert_eq!([wanted(&exchange, 1, 0).0, wanted(&exchange, 1, 49).0], [100, 100]);
}

#[test]
fn a_node_that_says_too_much_is_not_remembered() {
    let exchange = Exchange::default();
    let number = |number: u16| Message {
        round: 1,
        number,
        is_last: false,
        demands: (0..17).map(|each| demand(u128::from(number), each, 1)).collect(),
    };
    for each in 0..u16::MAX {
        exchange.hear(1, &number(each).encode());
    }
    let all = exchange.heard.lock();
    let arriving = |heard: &Heard| heard.arriving.as_ref().map_or(0, |arriving| arriving.demands.len());
    let held: usize = all.values().map(|heard| heard.demands.len() + arriving(heard)).sum();
    assert!(held <= MOST_DEMANDS, "{held}");
}

proptest! {
    #[test]
    fn rounds_come_back_as_they_were(
        rows in proptest::collection::btree_map((0..9_u128, 0..99_u128), (any::<u64>(), any::<u64>(), any::<u64>()), 0..200)
    ) {
        let demands: Vec<Demand> = rows.iter().map(|((policy, volume), (units, bytes, got))| Demand {
            policy: Uuid::from_u128(*policy), volume: Uuid::from_u128(*volume), units: *units, bytes: *bytes, got: *got,
        }).collect();
        let (one, two) = (Exchange::default(), Exchange::default());
        one.say(&demands);
        arrives(&one, 1, &two);
        let heard = two.heard.lock();
        let found: Vec<Demand> = heard.get(&1).iter().flat_map(|heard| heard.demands.values().copied()).collect();
        prop_assert_eq!(found, demands);
    }

    #[test]
    fn any_bytes_may_come(messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8)) {
        let exchange = Exchange::default();
        messages.iter().for_each(|message| exchange.hear(9, message));
    }
}
