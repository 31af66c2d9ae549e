//! Workloads of ours: mixes of block sizes, traces, copies.

use super::*;

#[test]
fn mixes_of_block_sizes() {
    let target = target_of("--mix 8K:70,64K:30 -w40 -r a");
    assert_eq!((target.block, target.step(), target.write_percent), (65_536, 8192, 40));
    let target = target_of("--mix=8K:70:100,64K:30:0 a");
    assert_eq!(target.write_percent, 70);
    assert_eq!(target.mix[1], MixPart { block: 65_536, percent: 30, write_percent: 0 });
    let profile = parse_line("--mix=8K:70:100,64K:30:0 -r4K a").unwrap().profile;
    let again = xml::read(&xml::write(&profile, 0)).unwrap();
    assert_eq!(again.spans, profile.spans);
    for (line, part) in [
        ("--mix 8K:70,64K:20 a", "make 90, and must make 100"),
        ("--mix 8K a", "'8K' is neither"),
        ("--mix 8K:100:101 a", "'8K:100:101' is neither"),
        ("--mix 0:50,8K:50 a", "makes no sense"),
        ("--mix 8K:100 -b4K a", "leave out -b"),
        ("--mix 8K:100 -si -t2 a", "--mix conflicts with -si"),
        ("--mix 8K:100 -g100 a", "--mix conflicts with -g"),
    ] {
        let why = parse_line(line).unwrap_err();
        assert!(why.0.contains(part), "{line}: {why}");
    }
}

#[test]
fn copies() {
    let span = span_of("--copy -c1G a b");
    let [from, to] = span.targets.as_slice() else { panic!("two") };
    assert_eq!((from.block, from.requests, from.write_percent, to.write_percent), (1 << 20, 8, 0, 100));
    assert_eq!((span.warm_up, span.copy), (0, true));
    let span = span_of("--copy -b64K -o2 -d5 a b");
    assert_eq!((span.targets[1].block, span.targets[1].requests, span.duration), (65_536, 2, 5));
    let run = parse_line("--copy --user=me --to-user bob --to-password-file=f a b").unwrap().run;
    let to = (run.to_user.as_deref(), run.to_password_file.as_deref());
    assert_eq!((run.user.as_deref(), to), (Some("me"), (Some("bob"), Some("f"))));
    let profile = parse_line("--copy a b").unwrap().profile;
    let again = xml::read(&xml::write(&profile, 0)).unwrap();
    assert!(again.spans[0].copy && validate(&again, true).is_ok());
    for (line, part) in [
        ("--copy a", "--copy has two targets"),
        ("--copy a a", "the same file"),
        ("--copy -w1 a b", "leave out -w"),
        ("--copy -r a b", "leave out -r"),
        ("--copy -t2 a b", "leave out -t"),
        ("--copy -W1 a b", "leave out -W"),
        ("--copy -f1M a b", "leave out -B, -f"),
        ("--copy --rate 5 a b", "leave out --rate"),
        ("--to-user bob a", "give --copy too"),
        ("--to-password-file f a", "give --copy too"),
        ("--copy --agents x --to-user bob a b", "options of each `holdfast spd agent`"),
    ] {
        let why = parse_line(line).unwrap_err();
        assert!(why.0.contains(part), "{line}: {why}");
    }
}

#[test]
fn replays() {
    let span = span_of("--replay t.log -o64 a");
    let replay = span.replay.clone().unwrap();
    assert_eq!((replay.path.as_str(), replay.fast, replay.whole, span.warm_up), ("t.log", false, true, 0));
    let span = span_of("--replay=t.log --replay-timing=fast --replay-name 8,16 -d5 -W1 a");
    let replay = span.replay.clone().unwrap();
    assert_eq!(
        (replay.name.as_deref(), replay.fast, replay.whole, span.warm_up),
        (Some("8,16"), true, false, 1)
    );
    let profile = parse_line("--replay=t.log --replay-name 8,16 a").unwrap().profile;
    assert_eq!(xml::read(&xml::write(&profile, 0)).unwrap().spans[0].replay, profile.spans[0].replay);
    for (line, part) in [
        ("--replay-timing fast a", "give --replay too"),
        ("--replay t --replay-timing slow a", "kept or fast, not 'slow'"),
        ("--replay t a b", "one target"),
        ("--replay t -t2 a", "one thread"),
        ("--replay t -b4K a", "leave out -b, -r and -w"),
        ("--replay t -w10 a", "leave out -b, -r and -w"),
        ("--replay t --rate 5 a", "--rate"),
        ("--replay t --mix 8K:100 a", "--mix"),
    ] {
        let why = parse_line(line).unwrap_err();
        assert!(why.0.contains(part), "{line}: {why}");
    }
}
