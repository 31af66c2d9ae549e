//! An entry for fuzzing: what the two sides take from each other.

use crate::message::{Job, ToAgent, ToCoordinator};
use crate::outcome::End;

/// Bytes as a message in either direction: what is taken is written and taken again.
pub fn message(bytes: &[u8]) {
    if let Ok(message) = ToAgent::decode(bytes) {
        let _ = ToAgent::decode(&message.encode());
    }
    if let Ok(message) = ToCoordinator::decode(bytes) {
        assert!(ToCoordinator::decode(&message.encode()).is_ok(), "what was taken can be sent on");
    }
}

/// Valid messages, to begin with.
#[must_use]
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut profile = spd_profile::Profile::default();
    let span = spd_profile::TimeSpan {
        targets: vec![spd_profile::Target::new("smb://server/share/vm{agent}.dat")],
        ..spd_profile::TimeSpan::default()
    };
    profile.spans.push(span);
    let job = Job { profile, yes: true, user: Some("demo".into()), ..Job::default() };
    let mut target =
        spd_report::TargetOutcome { path: "file.dat".into(), size: 1 << 30, ..Default::default() };
    (0..100u64).for_each(|each| target.read.latency.record(each * each * 1000));
    target.write.first_error = Some((0.5, "no space left".into()));
    target.write.intervals = vec![spd_report::Interval::default(); 3];
    let end = End {
        seconds: 10.0,
        cpus: vec![spd_report::CpuTime::default(); 2],
        ended_early: Some("interrupted".into()),
        open_loop: Some(spd_report::OpenLoop::default()),
        verify: Some(spd_report::VerifyOutcome { findings: vec!["torn".into()], ..Default::default() }),
    };
    vec![
        ("job", ToAgent::Job(Box::new(job)).encode()),
        ("prepare", ToAgent::Prepare.encode()),
        ("start", ToAgent::Start(7).encode()),
        ("accepted", ToCoordinator::Accepted(Box::default()).encode()),
        ("progress", ToCoordinator::Progress(spd_engine::Progress::default()).encode()),
        ("part", ToCoordinator::Part(1, Box::new(target)).encode()),
        ("thread", ToCoordinator::Thread(1, Box::default()).encode()),
        ("end", ToCoordinator::End(Box::new(end)).encode()),
    ]
}
