//! Buffers against plain vectors.

use super::*;

#[test]
fn fresh_buffers_are_aligned_and_recycled() {
    let mut a = IoBuf::zeroed(5000);
    let address = a.as_mut_ptr();
    assert_eq!(address as usize % ALIGNMENT, 0);
    assert_eq!(a.len(), 5000);
    drop(a);
    let mut b = IoBuf::new(8000);
    assert_eq!(b.as_mut_ptr(), address, "the same class comes from the free list");
}

#[test]
fn what_is_in_use_now_is_what_is_kept() {
    let many = |len: usize| (0..100).map(|_| IoBuf::new(len)).collect::<Vec<_>>();
    drop(many(1 << 20));
    drop(many(64 << 10));
    let small = many(64 << 10);
    let address = small.iter().map(|buf| buf.as_ptr()).min();
    drop(small);
    let again = many(64 << 10);
    assert_eq!(again.iter().map(|buf| buf.as_ptr()).min(), address, "megabytes made room for them");
    // A transfer and a page for headers before it is not twice the size.
    let whole = IoBuf::new((1 << 20) + 4096);
    let address = whole.as_ptr();
    drop(whole);
    assert_eq!(IoBuf::new((512 << 10) + 8192).as_ptr(), address);
}

#[test]
fn split_parts_join_in_order_only() {
    let mut rest = IoBuf::copy_from(b"abcdefgh");
    let mut a = rest.split_to(3);
    let b = rest.split_to(2);
    let rest = a.join(rest).expect_err("a gap is no neighbour");
    a.join(b).expect("neighbours");
    a.join(rest).expect("neighbours");
    assert_eq!(&a[..], b"abcdefgh");
}

#[test]
fn frozen_buffers_unfreeze_only_when_alone() {
    let shared = IoBuf::copy_from(b"hello").freeze();
    let part = shared.slice(1..99);
    assert_eq!(&part[..], b"ello");
    let shared = shared.try_unfreeze().expect_err("two handles");
    drop(part);
    let mut buf = shared.try_unfreeze().expect("one handle");
    buf[0] = b'j';
    assert_eq!(&buf[..], b"jello");
}

#[test]
fn huge_and_empty_lengths() {
    assert_eq!(IoBuf::zeroed(0).len(), 0);
    let big = IoBuf::zeroed(MAX_POOLED + 1);
    assert!(big.iter().all(|b| *b == 0));
}

/// Pages of this process that are in memory, of those that a range covers.
fn resident_pages(buf: &mut IoBuf) -> usize {
    let mut pages = vec![0_u8; buf.len().div_ceil(ALIGNMENT)];
    // SAFETY: the range is of one mapping that lives as long as `buf`, and there is a byte for each of its pages.
    let told = unsafe { libc::mincore(buf.as_mut_ptr().cast(), buf.len(), pages.as_mut_ptr()) };
    assert_eq!(told, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn pages_that_nobody_writes_cost_nothing_and_what_is_kept_can_be_given_back() {
    std::thread::spawn(|| {
        let mut large = IoBuf::new(MAX_POOLED - ALIGNMENT);
        large[..ALIGNMENT].fill(1);
        // The system may give some pages at once, in the extreme a huge one.
        assert!(resident_pages(&mut large) <= 512);
        assert!(large[ALIGNMENT..].iter().all(|byte| *byte == 0));
        drop(large);
        assert_eq!(IoBuf::new(MAX_POOLED)[..ALIGNMENT], [1; ALIGNMENT], "it was kept");
        let small = IoBuf::copy_from(&[2; ALIGNMENT]);
        drop(small);
        trim_thread_cache(1 << 20);
        assert_eq!(IoBuf::new(MAX_POOLED)[..ALIGNMENT], [0; ALIGNMENT], "it was given back");
        assert_eq!(IoBuf::new(ALIGNMENT)[..], [2; ALIGNMENT], "what is below the bound stays");
    })
    .join()
    .expect("no panic");
}

#[test]
fn footprints_are_what_blocks_take() {
    for len in [
        0,
        1,
        4096,
        4097,
        68 << 10,
        (68 << 10) + 1,
        1 << 20,
        (5 << 20) + 1,
        MAX_POOLED,
        MAX_POOLED + 1,
        32 << 20,
    ] {
        let buf = IoBuf::new(len);
        assert_eq!(IoBuf::footprint(len), buf.capacity());
        assert!(buf.capacity() >= len);
    }
}

#[test]
fn crosses_threads() {
    let shared = IoBuf::copy_from(&[7; 4096]).freeze();
    let clones: Vec<_> = (0..8).map(|_| shared.clone()).collect();
    let threads: Vec<_> = clones
        .into_iter()
        .map(|c| std::thread::spawn(move || c.iter().map(|b| u64::from(*b)).sum::<u64>()))
        .collect();
    for t in threads {
        assert_eq!(t.join().expect("no panic"), 7 * 4096);
    }
    assert!(shared.try_unfreeze().is_ok());
}

proptest::proptest! {
    #[test]
    fn any_split_joins_back(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..9000), cuts in proptest::collection::vec(0usize..9000, 0..6)) {
        let mut rest = IoBuf::copy_from(&bytes);
        let mut parts = Vec::new();
        for cut in cuts {
            parts.push(rest.split_to(cut));
        }
        parts.push(rest);
        let mut whole = IoBuf::new(0);
        for part in parts {
            whole.join(part).expect("in order");
        }
        proptest::prop_assert_eq!(&whole[..], &bytes[..]);
    }
}
