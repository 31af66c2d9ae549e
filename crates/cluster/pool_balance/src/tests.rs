//! What is planned: rules one by one, then as properties of any state.

use proptest::prelude::*;

use super::*;

fn pool(pool: u32, owner: u8, load: u64) -> Pool<u32, u8> {
    Pool { pool, owner, load, home: Vec::new(), can: None, may_move: true }
}

fn applied(pools: &[Pool<u32, u8>], moves: &[Move<u32, u8>]) -> Vec<Pool<u32, u8>> {
    let mut pools = pools.to_vec();
    for step in moves {
        let pool = pools.iter_mut().find(|pool| pool.pool == step.pool).expect("a pool");
        assert_eq!(pool.owner, step.from);
        pool.owner = step.to;
    }
    pools
}

/// The weights of those nodes that take pools, heaviest first.
fn sorted(nodes: &[u8], pools: &[Pool<u32, u8>]) -> Vec<u64> {
    let weights = weights(nodes, pools);
    let mut sorted: Vec<u64> = nodes.iter().map(|node| weights[node]).collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted
}

#[test]
fn a_node_that_came_gets_its_share() {
    let pools: Vec<_> = (0..6).map(|n| pool(n, 1 + u8::try_from(n % 2).unwrap_or(0), 0)).collect();
    let moves = plan(&[1, 2, 3], &pools);
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert!(moves.iter().all(|step| step.to == 3 && step.why == Why::Load));
    assert_eq!(plan(&[1, 2, 3], &applied(&pools, &moves)), []);
}

#[test]
fn load_counts_more_than_number() {
    let pools = [pool(0, 1, 40_000), pool(1, 1, 30_000), pool(2, 2, 0), pool(3, 2, 0), pool(4, 2, 0)];
    let moves = plan(&[1, 2], &pools);
    assert_eq!(moves, [Move { pool: 1, from: 1, to: 2, why: Why::Load }]);
}

#[test]
fn what_is_not_worth_a_move_stays() {
    let nearly = [pool(0, 1, 10_000), pool(1, 1, 10_000), pool(2, 2, 9900), pool(3, 2, 9000)];
    assert_eq!(plan(&[1, 2], &nearly), [], "they differ by less than a tenth");
    assert_eq!(plan(&[1, 2], &[pool(0, 1, 50_000)]), [], "one pool is as heavy anywhere");
    let close = [pool(0, 1, 1000), pool(1, 1, 40), pool(2, 2, 1000)];
    assert_eq!(plan(&[1, 2], &close), []);
}

#[test]
fn the_next_heaviest_is_relieved_where_the_heaviest_cannot_be() {
    let pools = [pool(0, 1, 90_000), pool(1, 2, 500), pool(2, 2, 500), pool(3, 3, 0)];
    let moves = plan(&[1, 2, 3], &pools);
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].from, moves[0].to), (2, 3));
}

#[test]
fn pools_go_home_and_stay_there() {
    let at_home = |owner| Pool { home: vec![2, 3], ..pool(0, owner, 0) };
    let home = |to| vec![Move { pool: 0, from: 1, to, why: Why::Home }];
    assert_eq!(plan(&[1, 2, 3], &[at_home(1)]), home(2));
    assert_eq!(plan(&[1, 3], &[at_home(1)]), home(3), "the second choice");
    assert_eq!(plan(&[1, 4], &[at_home(1), pool(1, 1, 0), pool(2, 1, 0)]).len(), 1, "only what has no home");
    // Heavy as it is: it has been put there.
    let heavy = Pool { load: 50_000, ..at_home(2) };
    assert_eq!(plan(&[1, 2], &[heavy, Pool { home: vec![2], ..pool(1, 2, 9000) }]), []);
}

#[test]
fn what_may_not_move_counts_where_it_is() {
    let held = |n, load| Pool { may_move: false, ..pool(n, 1, load) };
    assert_eq!(plan(&[1, 2], &[held(0, 1000), held(1, 1000)]), []);
    let away = Pool { home: vec![2], ..held(0, 0) };
    assert_eq!(plan(&[1, 2], &[away]), [], "not even home");
    let moves = plan(&[1, 2], &[held(0, 500), pool(1, 1, 0), pool(2, 1, 0)]);
    assert_eq!(moves.len(), 2);
}

#[test]
fn a_pool_goes_only_where_its_disks_are_seen() {
    let local = |n| Pool { can: Some(vec![1]), ..pool(n, 1, 40_000) };
    assert_eq!(plan(&[1, 2], &[local(0), local(1)]), [], "nobody else can have them");
    let away = Pool { home: vec![2], ..local(0) };
    assert_eq!(plan(&[1, 2], std::slice::from_ref(&away)), [], "not even its home");
    let second = Pool { home: vec![2, 3], can: Some(vec![1, 3]), ..away };
    assert_eq!(plan(&[1, 2, 3], &[second]), [Move { pool: 0, from: 1, to: 3, why: Why::Home }]);
    // What can go goes, and to the lightest of those that can have it.
    let both = Pool { can: Some(vec![1, 3]), ..pool(1, 1, 40_000) };
    let there = Pool { can: Some(vec![3]), ..pool(2, 3, 500) };
    let moves = plan(&[1, 2, 3], &[local(0), both, there]);
    assert_eq!(moves, [Move { pool: 1, from: 1, to: 3, why: Why::Load }]);
}

#[test]
fn a_node_that_takes_none_gets_none_and_loses_none() {
    let pools = [pool(0, 3, 0), pool(1, 3, 0), pool(2, 3, 0), pool(3, 1, 0), pool(4, 1, 0)];
    let moves = plan(&[1, 2], &pools);
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].from, moves[0].to), (1, 2));
    assert_eq!(plan(&[], &pools), []);
}

/// The fewest moves by which numbers of pools become as equal as they can be.
fn fewest(nodes: &[u8], pools: &[Pool<u32, u8>]) -> usize {
    let mut counts: Vec<usize> =
        nodes.iter().map(|node| pools.iter().filter(|pool| pool.owner == *node).count()).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let (each, more) = (pools.len() / nodes.len(), pools.len() % nodes.len());
    counts
        .iter()
        .enumerate()
        .map(|(index, count)| count.saturating_sub(each + usize::from(index < more)))
        .sum()
}

proptest! {
    #[test]
    fn without_load_the_numbers_are_equal_after_the_fewest_moves(owners in prop::collection::vec(0..5_u8, 1..40)) {
        let nodes = [0, 1, 2, 3, 4];
        let pools: Vec<_> = (0..).zip(owners).map(|(n, owner)| pool(n, owner, 0)).collect();
        let moves = plan(&nodes, &pools);
        let after = sorted(&nodes, &applied(&pools, &moves));
        prop_assert!(after[0] - after[4] <= BASE, "{after:?}");
        prop_assert_eq!(moves.len(), fewest(&nodes, &pools));
    }

    #[test]
    fn each_plan_makes_it_better_until_there_is_none(
        pools in prop::collection::vec((0..4_u8, prop_oneof![0..200_u64, 0..100_000_u64], any::<bool>(), prop::option::of(0..5_u8)), 0..25),
        takes in prop::collection::vec(any::<bool>(), 4),
        shuffle in any::<u64>(),
    ) {
        let nodes: Vec<u8> = (0..4).filter(|node| takes[usize::from(*node)]).collect();
        let mut pools: Vec<_> = (0..)
            .zip(pools)
            .map(|(n, (owner, load, may_move, home))| Pool { home: home.into_iter().collect(), may_move, ..pool(n, owner, load) })
            .collect();
        let mut rounds = 0;
        loop {
            let moves = plan(&nodes, &pools);
            let mut other = pools.clone();
            if !other.is_empty() {
                let by = usize::try_from(shuffle % other.len() as u64).unwrap_or(0);
                other.rotate_left(by);
            }
            prop_assert_eq!(&plan(&nodes, &other), &moves, "the order of what is known does not matter");
            if moves.is_empty() {
                break;
            }
            for step in &moves {
                let moved = pools.iter().find(|pool| pool.pool == step.pool).expect("a pool");
                prop_assert!(moved.may_move && step.from != step.to && nodes.contains(&step.to));
                prop_assert!(moved.home.is_empty() || (step.why == Why::Home && moved.home.contains(&step.to)));
            }
            let once: std::collections::BTreeSet<u32> = moves.iter().map(|step| step.pool).collect();
            prop_assert_eq!(once.len(), moves.len(), "each pool once");
            let home: Vec<_> = moves.iter().filter(|step| step.why == Why::Home).cloned().collect();
            let after_home = applied(&pools, &home);
            let before = sorted(&nodes, &after_home);
            pools = applied(&pools, &moves);
            let after = sorted(&nodes, &pools);
            prop_assert!(moves.len() == home.len() || after < before, "{before:?} {after:?}");
            rounds += 1;
            prop_assert!(rounds < 10, "it comes to an end");
        }
    }
}
