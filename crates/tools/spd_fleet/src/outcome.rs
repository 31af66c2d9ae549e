//! What was measured, as bytes: nothing is rounded, so that merging it elsewhere gives what merging it here would.

use byte_codec::{DecodeError, Reader, Writer};
use spd_engine::Progress;
use spd_profile::limits;
use spd_report::{
    CpuPlace, CpuTime, EffectiveRange, HISTOGRAM_BUCKETS, Histogram, HistogramParts, Interval, OpenLoop,
    Operations, System, TargetOutcome, VerifyOutcome, WaitStatistics,
};

/// Most processors of a machine.
const CPUS: usize = 4096;
/// Most findings of a verification that are told.
const FINDINGS: usize = 64;

/// The end of a time span: what belongs to none of its threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct End {
    pub(crate) seconds: f64,
    pub(crate) cpus: Vec<CpuTime>,
    pub(crate) ended_early: Option<String>,
    pub(crate) open_loop: Option<OpenLoop>,
    pub(crate) verify: Option<VerifyOutcome>,
}

fn put_f64(out: &mut Writer, value: f64) {
    out.u64(value.to_bits());
}

/// A number that a measurement can have.
fn finite(from: &mut Reader<'_>) -> Result<f64, DecodeError> {
    let value = f64::from_bits(from.u64()?);
    if value.is_finite() { Ok(value) } else { Err(DecodeError::Invalid("number")) }
}

fn put_u128(out: &mut Writer, value: u128) {
    out.raw(&value.to_le_bytes());
}

fn u128_of(from: &mut Reader<'_>) -> Result<u128, DecodeError> {
    from.guid().map(u128::from_le_bytes)
}

/// A count of things that follow, at most `most`.
fn count(from: &mut Reader<'_>, most: usize, what: &'static str) -> Result<usize, DecodeError> {
    let count = from.u32()? as usize;
    if count > most { Err(DecodeError::Invalid(what)) } else { Ok(count) }
}

fn put_option<T>(out: &mut Writer, value: Option<&T>, put: impl FnOnce(&mut Writer, &T)) {
    out.u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn option<T>(
    from: &mut Reader<'_>,
    take: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    match from.u8()? {
        0 => Ok(None),
        1 => take(from).map(Some),
        _ => Err(DecodeError::Invalid("flag")),
    }
}

pub(crate) fn put_system(out: &mut Writer, system: &System) {
    out.text(&system.computer);
    out.text(&system.version);
    out.text(&system.version_date);
    out.u64(system.start);
    out.text(&system.power_scheme);
    let cpus = system.cpus.get(..CPUS).unwrap_or(&system.cpus);
    out.u32(cpus.len() as u32);
    for cpu in cpus {
        [cpu.id, cpu.socket, cpu.node, cpu.core].into_iter().for_each(|value| out.u32(value));
    }
}

pub(crate) fn system(from: &mut Reader<'_>) -> Result<System, DecodeError> {
    let (computer, version, version_date) = (from.text()?, from.text()?, from.text()?);
    let (start, power_scheme) = (from.u64()?, from.text()?);
    let number = count(from, CPUS, "number of processors")?;
    let cpus = (0..number)
        .map(|_| Ok(CpuPlace { id: from.u32()?, socket: from.u32()?, node: from.u32()?, core: from.u32()? }));
    let cpus = cpus.collect::<Result<_, DecodeError>>()?;
    Ok(System { computer, version, version_date, start, cpus, power_scheme })
}

pub(crate) fn put_progress(out: &mut Writer, progress: &Progress) {
    for value in
        [progress.elapsed, progress.whole, progress.iops, progress.bytes_per_second, progress.latency_ms]
    {
        put_f64(out, value);
    }
    out.u8(u8::from(progress.measuring));
    out.u64(progress.operations.iter().sum());
}

pub(crate) fn progress(from: &mut Reader<'_>) -> Result<Progress, DecodeError> {
    Ok(Progress {
        elapsed: finite(from)?,
        whole: finite(from)?,
        iops: finite(from)?,
        bytes_per_second: finite(from)?,
        latency_ms: finite(from)?,
        measuring: from.u8()? == 1,
        operations: vec![from.u64()?],
    })
}

fn put_operations(out: &mut Writer, operations: &Operations) {
    out.u64(operations.bytes);
    out.u64(operations.count);
    out.u64(operations.errors);
    put_option(out, operations.first_error.as_ref(), |out, (at, what)| {
        put_f64(out, *at);
        out.text(what);
    });
    let parts = operations.latency.parts();
    out.u32(parts.counts.len() as u32);
    for (index, count) in &parts.counts {
        out.u16(*index as u16);
        out.u64(*count);
    }
    put_u128(out, parts.sum);
    put_u128(out, parts.sum_squares);
    out.u64(parts.min);
    out.u64(parts.max);
    out.u32(operations.intervals.len() as u32);
    for each in &operations.intervals {
        out.u64(each.count);
        put_f64(out, each.sum_us);
        put_f64(out, each.sum_squares_us);
        out.u64(each.min_ns);
        out.u64(each.max_ns);
    }
}

fn operations(from: &mut Reader<'_>) -> Result<Operations, DecodeError> {
    let (bytes, operations, errors) = (from.u64()?, from.u64()?, from.u64()?);
    let first_error = option(from, |from| Ok((finite(from)?, from.text()?)))?;
    let buckets = count(from, HISTOGRAM_BUCKETS, "number of buckets")?;
    let counts = (0..buckets).map(|_| Ok((u32::from(from.u16()?), from.u64()?)));
    let counts = counts.collect::<Result<_, DecodeError>>()?;
    let parts = HistogramParts {
        counts,
        sum: u128_of(from)?,
        sum_squares: u128_of(from)?,
        min: from.u64()?,
        max: from.u64()?,
    };
    let latency = Histogram::from_parts(&parts).ok_or(DecodeError::Invalid("histogram"))?;
    let number = count(from, limits::INTERVALS as usize, "number of intervals")?;
    let intervals = (0..number).map(|_| {
        Ok(Interval {
            count: from.u64()?,
            sum_us: finite(from)?,
            sum_squares_us: finite(from)?,
            min_ns: from.u64()?,
            max_ns: from.u64()?,
        })
    });
    let intervals = intervals.collect::<Result<_, DecodeError>>()?;
    Ok(Operations { bytes, count: operations, errors, first_error, latency, intervals })
}

pub(crate) fn put_target(out: &mut Writer, target: &TargetOutcome) {
    out.text(&target.path);
    out.u64(target.size);
    put_operations(out, &target.read);
    put_operations(out, &target.write);
    out.u32(target.distribution.len() as u32);
    for range in &target.distribution {
        out.u32(range.io_percent);
        out.u64(range.start);
        out.u64(range.length);
    }
}

pub(crate) fn target(from: &mut Reader<'_>) -> Result<TargetOutcome, DecodeError> {
    let (path, size) = (from.text()?, from.u64()?);
    let (read, write) = (operations(from)?, operations(from)?);
    let ranges = count(from, limits::RANGES, "number of ranges")?;
    let distribution = (0..ranges)
        .map(|_| Ok(EffectiveRange { io_percent: from.u32()?, start: from.u64()?, length: from.u64()? }));
    let distribution = distribution.collect::<Result<_, DecodeError>>()?;
    Ok(TargetOutcome { path, size, read, write, distribution })
}

pub(crate) fn put_waits(out: &mut Writer, waits: &WaitStatistics) {
    [waits.waits, waits.throttle_waits, waits.throttle_sleeps, waits.lookasides]
        .iter()
        .chain(&waits.found)
        .for_each(|value| out.u64(*value));
}

pub(crate) fn waits(from: &mut Reader<'_>) -> Result<WaitStatistics, DecodeError> {
    let mut waits = WaitStatistics {
        waits: from.u64()?,
        throttle_waits: from.u64()?,
        throttle_sleeps: from.u64()?,
        lookasides: from.u64()?,
        found: [0; 8],
    };
    for found in &mut waits.found {
        *found = from.u64()?;
    }
    Ok(waits)
}

pub(crate) fn put_end(out: &mut Writer, end: &End) {
    put_f64(out, end.seconds);
    let cpus = end.cpus.get(..CPUS).unwrap_or(&end.cpus);
    out.u32(cpus.len() as u32);
    for cpu in cpus {
        [cpu.user, cpu.kernel, cpu.idle].into_iter().for_each(|value| put_f64(out, value));
    }
    put_option(out, end.ended_early.as_ref(), |out, why| out.text(why));
    put_option(out, end.open_loop.as_ref(), |out, open| {
        put_f64(out, open.rate);
        [open.intended, open.late, open.never_begun].into_iter().for_each(|value| out.u64(value));
    });
    put_option(out, end.verify.as_ref(), |out, verify| {
        [verify.checked, verify.stale, verify.lost, verify.misplaced, verify.torn]
            .into_iter()
            .for_each(|value| out.u64(value));
        put_f64(out, verify.longest_stall_ms);
        let findings = verify.findings.get(..FINDINGS).unwrap_or(&verify.findings);
        out.u32(findings.len() as u32);
        findings.iter().for_each(|finding| out.text(finding));
    });
}

pub(crate) fn end(from: &mut Reader<'_>) -> Result<End, DecodeError> {
    let seconds = finite(from)?;
    if seconds < 0.0 {
        return Err(DecodeError::Invalid("duration"));
    }
    let number = count(from, CPUS, "number of processors")?;
    let cpus = (0..number)
        .map(|_| Ok(CpuTime { user: finite(from)?, kernel: finite(from)?, idle: finite(from)? }))
        .collect::<Result<_, DecodeError>>()?;
    let ended_early = option(from, |from| from.text())?;
    let open_loop = option(from, |from| {
        Ok(OpenLoop {
            rate: finite(from)?,
            intended: from.u64()?,
            late: from.u64()?,
            never_begun: from.u64()?,
        })
    })?;
    let verify = option(from, |from| {
        let mut verify = VerifyOutcome {
            checked: from.u64()?,
            stale: from.u64()?,
            lost: from.u64()?,
            misplaced: from.u64()?,
            torn: from.u64()?,
            longest_stall_ms: finite(from)?,
            findings: Vec::new(),
        };
        for _ in 0..count(from, FINDINGS, "number of findings")? {
            verify.findings.push(from.text()?);
        }
        Ok(verify)
    })?;
    Ok(End { seconds, cpus, ended_early, open_loop, verify })
}
