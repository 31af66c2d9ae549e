//! A profile as XML: order and spacing as DiskSpd 2.2 writes them.

use super::{Lines, escape};
use crate::model::{
    Arrival, CacheMode, DistributionUnit, IoPriority, Profile, ResultFormat, Target, Throughput, TimeSpan,
    WriteContent,
};

/// The `<Profile>` element, whose lines begin `depth` levels in.
#[must_use]
pub fn write(profile: &Profile, depth: usize) -> String {
    let mut lines = Lines::at(depth);
    lines.inside("Profile", |lines| {
        lines.value("Progress", profile.progress);
        if profile.experiments != 0 {
            lines.value("ExperimentFlags", profile.experiments);
        }
        lines.value(
            "ResultFormat",
            match profile.format {
                ResultFormat::Text => "text",
                ResultFormat::Xml => "xml",
            },
        );
        lines.value("Verbose", profile.verbose);
        if profile.verbose_stats {
            lines.value("VerboseStats", true);
        }
        lines.inside("TimeSpans", |lines| profile.spans.iter().for_each(|each| span(lines, each)));
    });
    lines.out
}

fn span(lines: &mut Lines, span: &TimeSpan) {
    lines.inside("TimeSpan", |lines| {
        lines.value("CompletionRoutines", span.completion_routines);
        lines.value("MeasureLatency", span.latency);
        lines.value("CalculateIopsStdDev", span.iops_intervals);
        lines.value("DisableAffinity", span.no_affinity);
        lines.value("Duration", span.duration);
        lines.value("Warmup", span.warm_up);
        lines.value("Cooldown", span.cool_down);
        lines.value("ThreadCount", span.threads);
        lines.value("RequestCount", span.requests);
        lines.value("IoBucketDuration", span.interval_ms);
        lines.value("RandSeed", span.seed);
        if span.random_writes {
            lines.value("RandomWriteData", true);
        }
        if let Some((rate, arrival)) = span.rate {
            let arrival = match arrival {
                Arrival::Even => "even",
                Arrival::Poisson => "poisson",
            };
            lines.line(&format!("<Rate arrival=\"{arrival}\">{rate}</Rate>"));
        }
        if span.copy {
            lines.value("Copy", true);
        }
        if let Some(replay) = &span.replay {
            let timing = if replay.fast { "fast" } else { "kept" };
            let name = replay.name.as_ref().map(|name| format!(" Name=\"{}\"", escape(name)));
            lines.line(&format!(
                "<Replay Timing=\"{timing}\" Whole=\"{}\"{}>{}</Replay>",
                replay.whole,
                name.unwrap_or_default(),
                escape(&replay.path)
            ));
        }
        if !span.affinity.is_empty() {
            lines.inside("Affinity", |lines| {
                for each in &span.affinity {
                    lines.line(&format!(
                        "<AffinityGroupAssignment Group=\"{}\" Processor=\"{}\"/>",
                        each.group, each.cpu
                    ));
                }
            });
        }
        lines.inside("Targets", |lines| span.targets.iter().for_each(|each| target(lines, each)));
    });
}

fn target(lines: &mut Lines, target: &Target) {
    lines.inside("Target", |lines| {
        lines.value("Path", escape(&target.path));
        lines.value("BlockSize", target.block);
        if !target.mix.is_empty() {
            lines.inside("BlockMix", |lines| {
                for part in &target.mix {
                    lines.line(&format!(
                        "<Block Percent=\"{}\" WriteRatio=\"{}\">{}</Block>",
                        part.percent, part.write_percent, part.block
                    ));
                }
            });
        }
        lines.value("BaseFileOffset", target.base);
        lines.value("SequentialScan", target.hints.sequential);
        lines.value("RandomAccess", target.hints.random);
        lines.value("TemporaryFile", target.hints.temporary);
        lines.value("UseLargePages", target.large_pages);
        match target.cache {
            CacheMode::Cached => {}
            CacheMode::DisableLocalCache => lines.value("DisableLocalCache", true),
            CacheMode::DisableOsCache => lines.value("DisableOSCache", true),
        }
        if target.write_through {
            lines.value("WriteThrough", true);
        }
        if target.memory_mapped {
            lines.value("MemoryMappedIo", true);
        }
        if let Some(flush) = target.flush {
            lines.value("FlushType", flush);
        }
        lines.inside("WriteBufferContent", |lines| content(lines, &target.content));
        lines.value("ParallelAsyncIO", target.parallel);
        if let Some(burst) = target.burst {
            lines.value("BurstSize", burst);
        }
        if let Some(think) = target.think_ms {
            lines.value("ThinkTime", think);
        }
        if let Some(size) = target.create {
            lines.value("FileSize", size);
        }
        pattern(lines, target);
        lines.value("ThreadStride", target.thread_stride);
        lines.value("MaxFileSize", target.max);
        lines.value("RequestCount", target.requests);
        lines.value("WriteRatio", target.write_percent);
        match target.throughput {
            Some(Throughput::Iops(iops)) => {
                lines.line(&format!("<Throughput unit=\"IOPS\">{iops}</Throughput>"));
            }
            Some(Throughput::BytesPerMillisecond(bytes)) => lines.value("Throughput", bytes),
            None => lines.value("Throughput", 0),
        }
        lines.value("ThreadsPerFile", target.threads);
        lines.value(
            "IOPriority",
            match target.priority {
                IoPriority::VeryLow => 1,
                IoPriority::Low => 2,
                IoPriority::Normal => 3,
            },
        );
        lines.value("Weight", target.weight);
        if !target.thread_targets.is_empty() {
            lines.inside("ThreadTargets", |lines| {
                for (thread, weight) in &target.thread_targets {
                    lines.inside("ThreadTarget", |lines| {
                        lines.value("Thread", thread);
                        if *weight != 0 {
                            lines.value("Weight", weight);
                        }
                    });
                }
            });
        }
    });
}

fn content(lines: &mut Lines, content: &WriteContent) {
    match content {
        WriteContent::Zero => lines.value("Pattern", "zero"),
        WriteContent::Sequential => lines.value("Pattern", "sequential"),
        WriteContent::Source { size, file } => {
            lines.value("Pattern", "random");
            lines.inside("RandomDataSource", |lines| {
                lines.value("SizeInBytes", size);
                if let Some(file) = file {
                    lines.value("FilePath", escape(file));
                }
            });
        }
    }
}

fn pattern(lines: &mut Lines, target: &Target) {
    if target.random_percent == 0 {
        lines.value("StrideSize", target.step());
        lines.value("InterlockedSequential", target.interlocked);
        return;
    }
    lines.value("Random", target.step());
    if target.random_percent != 100 {
        lines.value("RandomRatio", target.random_percent);
    }
    if let Some(distribution) = &target.distribution {
        let unit = match distribution.unit {
            DistributionUnit::Percent => "Percent",
            DistributionUnit::Absolute => "Absolute",
        };
        lines.inside("Distribution", |lines| {
            lines.inside(unit, |lines| {
                for range in &distribution.ranges {
                    lines.line(&format!("<Range IO=\"{}\">{}</Range>", range.io_percent, range.span));
                }
            });
        });
    }
}
