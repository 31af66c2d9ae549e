//! Mixes of sizes, traces and copies, on real files.

use super::*;
use spd_profile::MixPart;
use spd_profile::trace::Replay;

#[test]
fn a_mix_counts_the_bytes_of_each_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target { create: Some(1 << 20), random_percent: 100, requests: 4, ..Target::new("") };
    let part = |block, percent, write_percent| MixPart { block, percent, write_percent };
    target.set_mix(vec![part(4096, 50, 0), part(65_536, 50, 100)]);
    let (outcome, _) = on_file(&dir, span(target));
    let (read, write) = outcome.sum();
    assert!(outcome.ended_early.is_none() && read.errors + write.errors == 0, "{outcome:?}");
    assert!(read.count > 0 && write.count > 0);
    assert_eq!((read.bytes, write.bytes), (read.count * 4096, write.count * 65_536));
}

/// Replays `trace` on a new file of a MiB; what is in the file afterwards comes with it.
fn replayed(trace: &str, fast: bool) -> Result<(SpanOutcome, Vec<u8>), EngineError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace").display().to_string();
    std::fs::write(&path, trace).unwrap();
    let target = Target {
        create: Some(1 << 20),
        requests: 4,
        content: WriteContent::Zero,
        path: dir.path().join("f").display().to_string(),
        ..Target::new("")
    };
    let mut span = span(target);
    span.replay = Some(Replay { path, name: None, fast, whole: true });
    prepare_replay(&mut span)?;
    let paths = vec![span.targets[0].path.clone()];
    prepare(&span.targets, &paths, Preparation::default(), &Yes)?;
    let backend = LocalBackend::open(&span.targets, &paths, false)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let outcome = run_span(&span, &backend, &System::default(), &clock, &Until(None), None)?;
    Ok((outcome, std::fs::read(&paths[0]).unwrap()))
}

#[test]
fn a_trace_is_replayed_to_its_end_and_no_further() {
    let mut trace = String::from("fio version 2 iolog\n/x add\n/x open\n");
    for number in 0..10_000u64 {
        trace.push_str(&format!("/x read {} 4096\n", number % 256 * 4096));
    }
    trace.push_str("/x write 8192 512\n/x write 65536 1024\n/x close\n");
    let (outcome, content) = replayed(&trace, true).unwrap();
    let (read, write) = outcome.sum();
    assert_eq!((read.count, write.count, outcome.ended_early.as_deref()), (10_000, 2, None));
    assert_eq!((read.bytes, write.bytes), (10_000 * 4096, 1536));
    assert!(outcome.open_loop.is_none());
    // Exactly these bytes became zeros, in a file of random ones.
    let zeros = |from: usize, len: usize| content[from..from + len].iter().all(|byte| *byte == 0);
    assert!(zeros(8192, 512) && zeros(65_536, 1024) && !zeros(8704, 512) && !zeros(66_560, 512));
}

#[test]
fn a_trace_keeps_its_times() {
    let trace = "fio version 3 iolog\n5 /x open\n10 /x read 0 4096\n300010 /x read 4096 4096\n";
    let (outcome, _) = replayed(trace, false).unwrap();
    assert_eq!(outcome.sum().0.count, 2);
    let open = outcome.open_loop.unwrap();
    assert_eq!((open.intended, open.late, open.never_begun), (2, 0, 0));
    // The second one was not begun before its time.
    assert!(outcome.seconds >= 0.3, "{}", outcome.seconds);
}

#[test]
fn traces_that_cannot_be_replayed_say_why() {
    for (trace, part) in [
        ("", "has no read and no write"),
        ("nonsense", "line 1 of the trace: it is neither"),
        ("fio version 2 iolog\n/x trim 0 4096\n", "1 other operations are not replayed"),
        ("fio version 2 iolog\n/x read 1048576 4096\n", "reaches to byte 1052672"),
        (&"x".repeat(10_000), "a line has more than 8192 bytes"),
    ] {
        let why = replayed(trace, true).unwrap_err();
        assert!(why.0.contains(part), "{why}");
    }
}
