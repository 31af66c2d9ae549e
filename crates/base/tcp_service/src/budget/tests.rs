//! Who waits for memory, who gets it, and who loses it.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use super::*;

const MIB: usize = 1 << 20;

fn on_shard<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Waits until the account may hold `total`.
async fn admitted(account: &mut Account, total: usize) -> Admission {
    poll_fn(|cx| {
        account.register(cx.waker());
        match account.admit(total) {
            Admission::Wait => Poll::Pending,
            other => Poll::Ready(other),
        }
    })
    .await
}

fn hold(budget: &Budget, bytes: usize) -> Account {
    let mut account = budget.account();
    assert_eq!(account.admit(bytes), Admission::Now);
    assert!(account.settle(bytes, false, 0));
    account
}

#[test]
fn small_requests_never_wait_and_large_ones_wait_as_a_whole() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let all = hold(&budget, MIN_BUDGET);
        let mut other = budget.account();
        assert_eq!(other.admit(ALLOWANCE), Admission::Now);
        assert!(other.settle(ALLOWANCE, false, 0));
        let before = budget.usage().used;
        assert_eq!(other.admit(8 * MIB), Admission::Wait);
        assert_eq!(budget.usage().used, before, "who waits has taken nothing");
        assert_eq!(other.admit(ALLOWANCE), Admission::Now, "and may still do small things");
        drop(all);
        assert_eq!(admitted(&mut other, 8 * MIB).await, Admission::Now);
        drop(other);
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}

#[test]
fn what_is_larger_than_all_there_is_goes_alone() {
    on_shard(async {
        let budget = Budget::new(1);
        let mut huge = budget.account();
        assert_eq!(huge.admit(4 * MIN_BUDGET), Admission::Now);
        let mut other = budget.account();
        assert_eq!(other.admit(MIB), Admission::Wait);
        assert!(huge.settle(0, false, 0));
        assert_eq!(other.admit(MIB), Admission::Now);
    });
}

#[test]
fn who_asks_first_is_served_first() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let all = hold(&budget, MIN_BUDGET);
        let (mut large, mut small) = (budget.account(), budget.account());
        assert_eq!(large.admit(48 * MIB), Admission::Wait);
        assert_eq!(small.admit(MIB), Admission::Wait);
        drop(all);
        assert_eq!(small.admit(MIB), Admission::Wait, "the large one comes first");
        assert_eq!(large.admit(48 * MIB), Admission::Now);
        assert_eq!(small.admit(MIB), Admission::Now);
        // Who gives its place up, or goes, holds nobody up.
        let mut third = budget.account();
        assert_eq!(third.admit(48 * MIB), Admission::Wait);
        let mut fourth = budget.account();
        assert_eq!(fourth.admit(2 * MIB), Admission::Wait);
        third.withdraw();
        assert_eq!(fourth.admit(2 * MIB), Admission::Now);
    });
}

#[test]
fn who_stands_still_makes_room_and_the_newest_first() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let mut accounts: Vec<Account> = (0..4).map(|_| hold(&budget, 13 * MIB)).collect();
        // The first works in the store, the second is sent to; the others have said that much will come.
        let mut moved = 0;
        let mut waiting = budget.account();
        let mut rounds = 0;
        let got = loop {
            for (number, account) in accounts.iter_mut().enumerate() {
                moved += MIN_PROGRESS;
                let (for_peer, moved) = if number == 1 { (true, moved) } else { (number > 1, 0) };
                let stays = account.settle(13 * MIB, for_peer, moved);
                assert!(stays || number == 3, "{number}");
            }
            if accounts.len() == 4 && !accounts[3].settle(13 * MIB, true, 0) {
                accounts.pop();
            }
            match waiting.admit(16 * MIB) {
                Admission::Wait => shard_runtime::sleep(Duration::from_millis(20)).await,
                other => break other,
            }
            rounds += 1;
        };
        assert!(rounds > 0);
        assert_eq!((got, accounts.len()), (Admission::Now, 3));
        assert_eq!(budget.usage().refused, 1);
    });
}

#[test]
fn connections_count_and_the_newest_is_refused() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let most = MIN_BUDGET / SEATS / CONNECTION;
        let mut accounts: Vec<Account> = (0..most).map(|_| budget.account()).collect();
        assert!(accounts.iter_mut().all(Account::log_in));
        assert_eq!(budget.usage().used, (MIN_BUDGET / SEATS) as u64);
        let mut late = budget.account();
        assert!(!late.log_in() && budget.usage().refused == 1);
        drop(late);
        assert!(budget.for_service().account().log_in(), "another service's clients are let in");
        // What is large has what is left, but for the reserve.
        let rest = MIN_BUDGET - MIN_BUDGET / SEATS - MIN_BUDGET / RESERVE;
        assert_eq!(accounts[0].admit(ALLOWANCE + rest / 2), Admission::Now);
        assert_eq!(accounts[1].admit(ALLOWANCE + rest / 2 + 1), Admission::Wait);
        assert_eq!(accounts[1].admit(ALLOWANCE + rest / 2), Admission::Now);
        accounts.pop();
        let mut late = budget.account();
        assert!(late.log_in() && late.log_in() && !budget.account().log_in());
        drop(late);
        accounts.clear();
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}

#[test]
fn what_is_small_counts_and_goes_when_it_is_too_much_in_all() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let mut accounts: Vec<Account> = (0..600).map(|_| budget.account()).collect();
        // The first works, the second is sent to, the third waits for somebody with next to nothing; the others hold halves.
        let settle = |account: &mut Account, number: usize, moved: u64| match number {
            0 => account.settle(ALLOWANCE, false, 0),
            1 => account.settle(ALLOWANCE, true, moved),
            2 => account.settle(SLACK, true, 0),
            _ => account.settle(ALLOWANCE, true, 0),
        };
        let mut moved = 0;
        for (number, account) in accounts.iter_mut().enumerate() {
            assert!(settle(account, number, moved));
        }
        let usage = budget.usage();
        assert_eq!(usage.used as usize, 600 * CONNECTION + 599 * (ALLOWANCE - SLACK));
        assert!(usage.used > usage.limit && usage.waiting == 0);
        while budget.usage().used > budget.usage().limit {
            moved += MIN_PROGRESS;
            let mut number = 0;
            accounts.retain_mut(|account| {
                number += 1;
                let stays = settle(account, number - 1, moved);
                assert!(stays || number > 3, "{number}");
                stays
            });
            shard_runtime::sleep(Duration::from_millis(10)).await;
        }
        let usage = budget.usage();
        let gone = 600 - accounts.len() as u64;
        assert!(
            usage.refused == gone && usage.used + 2 * (ALLOWANCE + CONNECTION) as u64 > usage.limit,
            "{usage:?}"
        );
    });
}

#[test]
fn many_small_ones_that_stand_still_make_room_for_a_large_one() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let halves = (MIN_BUDGET - MIN_BUDGET / RESERVE) / (ALLOWANCE + CONNECTION - SLACK) + 1;
        let mut accounts: Vec<Account> = (0..halves).map(|_| budget.account()).collect();
        assert!(accounts.iter_mut().all(|account| account.settle(ALLOWANCE, true, 0)));
        assert!(budget.usage().used < budget.usage().limit, "no more is charged than there is");
        let (mut first, mut second) = (budget.account(), budget.account());
        assert_eq!(first.admit(ALLOWANCE + MIB), Admission::Now, "one goes alone");
        while second.admit(ALLOWANCE + MIB) == Admission::Wait {
            accounts.retain_mut(|account| account.settle(ALLOWANCE, true, 0));
            shard_runtime::sleep(Duration::from_millis(10)).await;
        }
        assert!(!accounts.is_empty() && budget.usage().refused > 0);
    });
}

/// Many who hold some and ask for more: all come to their end, and nothing is left over.
#[test]
fn nobody_waits_for_ever() {
    on_shard(async {
        let budget = Budget::new(MIN_BUDGET);
        let done = Rc::new(std::cell::Cell::new(0));
        let mut tasks = Vec::new();
        for number in 0..200_usize {
            let (budget, done) = (budget.clone(), Rc::clone(&done));
            tasks.push(shard_runtime::spawn_local(async move {
                let mut account = budget.account();
                let mut moved = 0;
                for round in 0..20_usize {
                    let mut held = 0;
                    for part in 0..3 {
                        let more = (number * 7 + round * 13 + part * 5) % 16 * MIB / 2;
                        // Asking for more while holding some: what is held ends by itself meanwhile.
                        let may = futures_util::future::select(
                            Box::pin(admitted(&mut account, held + more)),
                            Box::pin(shard_runtime::sleep(Duration::from_millis(5))),
                        );
                        let now =
                            matches!(may.await, futures_util::future::Either::Left((Admission::Now, _)));
                        held = if now { held + more } else { 0 };
                        moved += 1 << 20;
                        if !account.settle(held, false, moved) {
                            return;
                        }
                        shard_runtime::yield_now().await;
                    }
                    assert!(account.settle(0, false, moved));
                    account.withdraw();
                }
                done.set(done.get() + 1);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(done.get(), 200);
        let usage = budget.usage();
        assert_eq!((usage.used, usage.waiting), (0, 0));
        assert!(usage.waits > 0, "it was tight");
    });
}

/// What is no connection's never takes the half that requests have, and nothing while somebody waits.
#[test]
fn what_is_beside_requests_takes_half_at_most() {
    let budget = Budget::new(MIN_BUDGET);
    let half = MIN_BUDGET / 2;
    assert!(budget.take(half) && !budget.take(1));
    assert_eq!((budget.usage().used, budget.usage().beside), (half as u64, half as u64));
    let mut account = budget.account();
    assert_eq!(account.admit(half / 2), Admission::Now);
    assert!(budget.is_tight(), "who has memory beside requests is to give it back");
    budget.give_back(half);
    assert_eq!(budget.usage().beside, 0);
    assert!(budget.take(half / 4) && !budget.take(half));
    budget.give_back(half / 4);
}
