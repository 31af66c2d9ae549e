//! One report of what several agents measured: counts and histograms are added, nothing is averaged.

use spd_engine::Progress;
use spd_report::{
    AgentOutcome, CpuPlace, CpuTime, OpenLoop, Operations, Outcome, SpanOutcome, System, VerifyOutcome,
};

use crate::member::Agent;

/// Most findings of a verification in the merged report.
const FINDINGS: usize = 64;

/// The time span that all agents have ended; takes their results.
pub(crate) fn span(agents: &mut [Agent]) -> SpanOutcome {
    let first = agents.iter().filter_map(began).min();
    let mut merged = SpanOutcome::default();
    let mut ends: Vec<String> = Vec::new();
    for agent in agents.iter_mut() {
        let start_ms = began(agent).zip(first).map(|(began, first)| {
            let error = agent.trip.map_or(0.0, |(trip, _)| trip as f64 / 2e6);
            ((began - first) as f64 / 1e6, error)
        });
        let mut row = AgentOutcome {
            name: agent.name.clone(),
            computer: agent.system.as_ref().map(|system| system.computer.clone()).unwrap_or_default(),
            start_ms,
            seconds: 0.0,
            read: Operations::default(),
            write: Operations::default(),
            ended_early: agent.gone.clone(),
        };
        let cpus = agent.system.as_ref().map_or(0, |system| system.cpus.len());
        let mut used = Vec::new();
        if let Some(end) = agent.end.take() {
            row.seconds = end.seconds;
            row.ended_early = end.ended_early;
            merged.seconds = merged.seconds.max(end.seconds);
            used = end.cpus;
            open_loop(&mut merged.open_loop, end.open_loop);
            verify(&mut merged.verify, end.verify, &agent.name);
        }
        // A row for each processor that `system` names, also of an agent that said nothing of them.
        used.resize(cpus, CpuTime::default());
        merged.cpus.extend(used);
        for thread in std::mem::take(&mut agent.threads) {
            for target in &thread.targets {
                row.read.merge(&target.read);
                row.write.merge(&target.write);
            }
            merged.threads.push(thread);
        }
        if let Some(why) = &row.ended_early {
            let text =
                if why == "interrupted" { why.clone() } else { format!("agent {}: {why}", agent.name) };
            if !ends.contains(&text) {
                ends.push(text);
            }
        }
        merged.agents.push(row);
    }
    merged.ended_early = (!ends.is_empty()).then(|| ends.join("; "));
    merged
}

/// When it began, by the coordinator's clock.
fn began(agent: &Agent) -> Option<i128> {
    let (_, offset) = agent.trip?;
    Some(i128::from(agent.began?) - offset)
}

fn open_loop(sum: &mut Option<OpenLoop>, part: Option<OpenLoop>) {
    let Some(part) = part else { return };
    let sum = sum.get_or_insert_default();
    sum.rate += part.rate;
    sum.intended = sum.intended.saturating_add(part.intended);
    sum.late = sum.late.saturating_add(part.late);
    sum.never_begun = sum.never_begun.saturating_add(part.never_begun);
}

fn verify(sum: &mut Option<VerifyOutcome>, part: Option<VerifyOutcome>, name: &str) {
    let Some(part) = part else { return };
    let sum = sum.get_or_insert_default();
    for (mine, theirs) in [
        (&mut sum.checked, part.checked),
        (&mut sum.stale, part.stale),
        (&mut sum.lost, part.lost),
        (&mut sum.misplaced, part.misplaced),
        (&mut sum.torn, part.torn),
    ] {
        *mine = mine.saturating_add(theirs);
    }
    sum.longest_stall_ms = sum.longest_stall_ms.max(part.longest_stall_ms);
    let room = FINDINGS.saturating_sub(sum.findings.len());
    sum.findings.extend(part.findings.iter().take(room).map(|finding| format!("agent {name}: {finding}")));
}

/// The machines as one: their processors follow each other, with numbers that go through.
pub(crate) fn system(agents: &[Agent], outcome: &mut Outcome) {
    let systems: Vec<&System> = agents.iter().filter_map(|agent| agent.system.as_ref()).collect();
    let Some(first) = systems.first() else { return };
    let mut merged = System { cpus: Vec::new(), ..(*first).clone() };
    merged.computer = systems.iter().map(|system| system.computer.as_str()).collect::<Vec<_>>().join(", ");
    merged.start = systems.iter().map(|system| system.start).min().unwrap_or(0);
    let mut base = CpuPlace::default();
    for system in systems {
        let before = merged.cpus.len() as u32;
        let cpus = system.cpus.iter().enumerate().map(|(index, cpu)| CpuPlace {
            id: before + index as u32,
            socket: base.socket.saturating_add(cpu.socket),
            node: base.node.saturating_add(cpu.node),
            core: base.core.saturating_add(cpu.core),
        });
        merged.cpus.extend(cpus);
        let next = |property: fn(&CpuPlace) -> u32| {
            merged.cpus.iter().map(property).max().map_or(0, |most| most.saturating_add(1))
        };
        base = CpuPlace {
            id: 0,
            socket: next(|cpu| cpu.socket),
            node: next(|cpu| cpu.node),
            core: next(|cpu| cpu.core),
        };
    }
    outcome.system = merged;
}

/// Sums over all agents; `None` when none has told anything.
pub(crate) fn progress<'a>(all: impl Iterator<Item = &'a Progress>) -> Option<Progress> {
    let mut sum: Option<Progress> = None;
    let mut weighted = 0.0;
    for each in all {
        let sum = sum.get_or_insert_default();
        sum.elapsed = sum.elapsed.max(each.elapsed);
        sum.whole = sum.whole.max(each.whole);
        sum.measuring |= each.measuring;
        sum.iops += each.iops;
        sum.bytes_per_second += each.bytes_per_second;
        weighted += each.latency_ms * each.iops;
        sum.operations.extend(&each.operations);
    }
    sum.map(|mut sum| {
        sum.latency_ms = if sum.iops > 0.0 { weighted / sum.iops } else { 0.0 };
        sum
    })
}
