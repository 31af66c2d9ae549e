//! A profile from XML: DiskSpd's schema, unknown elements refused.

use super::tree::{self, Element};
use crate::distribution;
use crate::error::{ProfileError, refuse};
use crate::limits;
use crate::model::{
    Affinity, Arrival, CacheMode, Distribution, DistributionUnit, IoPriority, MixPart, Profile, Range,
    ResultFormat, Target, Throughput, TimeSpan, WriteContent,
};
use crate::trace::Replay;

/// Reads a `<Profile>`. What it means together is checked by `validate`.
///
/// # Errors
/// Where and why the text is no profile.
pub fn read(text: &str) -> Result<Profile, ProfileError> {
    let root = tree::parse(text)?;
    if root.name != "Profile" {
        return refuse(format!("an XML profile begins with <Profile>, not <{}>", root.name));
    }
    let mut profile = Profile::default();
    once(&root)?;
    for child in &root.children {
        match child.name.as_str() {
            "Progress" => profile.progress = number(child)?,
            "ExperimentFlags" => profile.experiments = number(child)?,
            "Verbose" => profile.verbose = boolean(child)?,
            "VerboseStats" => profile.verbose_stats = boolean(child)?,
            "ResultFormat" => {
                profile.format = match child.text.as_str() {
                    "text" => ResultFormat::Text,
                    "xml" => ResultFormat::Xml,
                    _ => return wrong(child, "text or xml"),
                };
            }
            "ETW" => profile.etw = true,
            "PrecreateFiles" => {
                return refuse(
                    "<PrecreateFiles> is not offered: each time span makes its own files with <FileSize>",
                );
            }
            "TimeSpans" => {
                if child.children.len() > limits::TIME_SPANS {
                    return refuse(format!("at most {} time spans", limits::TIME_SPANS));
                }
                for each in &child.children {
                    named(each, "TimeSpan")?;
                    profile.spans.push(span(each)?);
                }
            }
            _ => return unknown(child, &root),
        }
    }
    Ok(profile)
}

fn span(element: &Element) -> Result<TimeSpan, ProfileError> {
    once(element)?;
    let mut span = TimeSpan::default();
    for child in &element.children {
        match child.name.as_str() {
            "CompletionRoutines" => span.completion_routines = boolean(child)?,
            "MeasureLatency" => span.latency = boolean(child)?,
            "CalculateIopsStdDev" => span.iops_intervals = boolean(child)?,
            "DisableAffinity" => span.no_affinity = boolean(child)?,
            // All threads are spread over all processors by default, which is what it asks for.
            "GroupAffinity" => drop(boolean(child)?),
            "Duration" => span.duration = number(child)?,
            "Warmup" => span.warm_up = number(child)?,
            "Cooldown" => span.cool_down = number(child)?,
            "ThreadCount" => span.threads = number(child)?,
            "RequestCount" => span.requests = number(child)?,
            "IoBucketDuration" => span.interval_ms = number(child)?,
            "RandSeed" => span.seed = number(child)?,
            "RandomWriteData" => span.random_writes = boolean(child)?,
            "Rate" => span.rate = Some(rate(child)?),
            "Copy" => span.copy = boolean(child)?,
            "Replay" => span.replay = Some(replay(child)?),
            "Affinity" => affinity(child, &mut span.affinity)?,
            "Targets" => {
                if child.children.len() > limits::TARGETS {
                    return refuse(format!("at most {} targets", limits::TARGETS));
                }
                for each in &child.children {
                    named(each, "Target")?;
                    span.targets.push(target(each)?);
                }
            }
            _ => return unknown(child, element),
        }
    }
    Ok(span)
}

fn rate(element: &Element) -> Result<(f64, Arrival), ProfileError> {
    let arrival = match element.attribute("arrival").unwrap_or("even") {
        "even" => Arrival::Even,
        "poisson" => Arrival::Poisson,
        _ => return wrong(element, "an attribute arrival that is even or poisson"),
    };
    match element.text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok((rate, arrival)),
        _ => wrong(element, "operations per second above 0"),
    }
}

fn replay(element: &Element) -> Result<Replay, ProfileError> {
    let flag = |name: &str, no: &str, yes: &str| match element.attribute(name) {
        None => Ok(false),
        Some(value) if value == no => Ok(false),
        Some(value) if value == yes => Ok(true),
        Some(_) => wrong(element, &format!("with {name} {no} or {yes}")),
    };
    Ok(Replay {
        path: element.text.clone(),
        name: element.attribute("Name").map(str::to_owned),
        fast: flag("Timing", "kept", "fast")?,
        whole: flag("Whole", "false", "true")?,
    })
}

fn affinity(element: &Element, list: &mut Vec<Affinity>) -> Result<(), ProfileError> {
    for child in &element.children {
        if list.len() >= limits::THREADS as usize {
            return refuse("<Affinity> names too many processors");
        }
        let attribute = |name: &str| child.attribute(name).and_then(|value| value.parse::<u16>().ok());
        let assigned = match child.name.as_str() {
            "AffinityAssignment" => child.text.parse().ok().map(|cpu| Affinity { group: 0, cpu }),
            "AffinityGroupAssignment" => {
                attribute("Group").zip(attribute("Processor")).map(|(group, cpu)| Affinity { group, cpu })
            }
            _ => return unknown(child, element),
        };
        match assigned {
            Some(assigned) => list.push(assigned),
            None => return wrong(child, "a group and a processor"),
        }
    }
    Ok(())
}

fn target(element: &Element) -> Result<Target, ProfileError> {
    once(element)?;
    let mut target = Target::new("");
    let (mut stride, mut random, mut mix) = (None, None, Vec::new());
    for child in &element.children {
        match child.name.as_str() {
            "Path" => target.path.clone_from(&child.text),
            "BlockSize" => target.block = number(child)?,
            "BlockMix" => mix = mix_of(child)?,
            "StrideSize" => stride = Some(long(child)?),
            "InterlockedSequential" => target.interlocked = boolean(child)?,
            "BaseFileOffset" => target.base = long(child)?,
            "SequentialScan" => target.hints.sequential = boolean(child)?,
            "RandomAccess" => target.hints.random = boolean(child)?,
            "TemporaryFile" => target.hints.temporary = boolean(child)?,
            "UseLargePages" => target.large_pages = boolean(child)?,
            "RequestCount" => target.requests = number(child)?,
            "Random" => random = Some(long(child)?),
            "RandomRatio" => match number(child)? {
                percent @ 1..=99 => target.random_percent = percent,
                _ => return wrong(child, "between 1 and 99"),
            },
            "DisableAllCache" if boolean(child)? => {
                target.cache = CacheMode::DisableOsCache;
                target.write_through = true;
            }
            "DisableLocalCache" if boolean(child)? => target.cache = CacheMode::DisableLocalCache,
            "DisableOSCache" if boolean(child)? => target.cache = CacheMode::DisableOsCache,
            "DisableAllCache" | "DisableLocalCache" | "DisableOSCache" => {}
            "WriteThrough" => target.write_through |= boolean(child)?,
            "MemoryMappedIo" => target.memory_mapped = boolean(child)?,
            "FlushType" => {
                let known = ["ViewOfFile", "NonVolatileMemory", "NonVolatileMemoryNoDrain"];
                target.flush = known.into_iter().find(|name| *name == child.text);
                if target.flush.is_none() {
                    return wrong(child, "ViewOfFile, NonVolatileMemory or NonVolatileMemoryNoDrain");
                }
            }
            "WriteBufferContent" => target.content = content(child)?,
            "BurstSize" => target.burst = Some(number(child)?).filter(|burst| *burst > 0),
            "ThinkTime" => target.think_ms = Some(number(child)?).filter(|think| *think > 0),
            "Throughput" => target.throughput = throughput(child)?,
            "ThreadsPerFile" => target.threads = number(child)?,
            "FileSize" => target.create = Some(long(child)?),
            "MaxFileSize" => target.max = long(child)?,
            "WriteRatio" => match number(child)? {
                percent @ 0..=100 => target.write_percent = percent,
                _ => return wrong(child, "between 0 and 100"),
            },
            "ParallelAsyncIO" => target.parallel = boolean(child)?,
            "ThreadStride" => target.thread_stride = long(child)?,
            "IOPriority" => {
                target.priority = match number(child)? {
                    0 | 3 => IoPriority::Normal,
                    1 => IoPriority::VeryLow,
                    2 => IoPriority::Low,
                    _ => return wrong(child, "between 0 and 3"),
                };
            }
            "Weight" => target.weight = number(child)?,
            "ThreadTargets" => thread_targets(child, &mut target.thread_targets)?,
            "Distribution" => target.distribution = Some(distribution_of(child)?),
            _ => return unknown(child, element),
        }
    }
    // <StrideSize> is without meaning beside <Random>.
    if let Some(alignment) = random {
        target.alignment = Some(alignment);
        if target.random_percent == 0 {
            target.random_percent = 100;
        }
    } else {
        if target.random_percent > 0 {
            return refuse("<RandomRatio> needs <Random>");
        }
        target.alignment = stride;
    }
    if !mix.is_empty() {
        target.set_mix(mix);
        // What a profile without an alignment says of it is the default of a mix.
        if random.or(stride) == Some(u64::from(target.smallest_block())) {
            target.alignment = None;
        }
    }
    Ok(target)
}

fn mix_of(element: &Element) -> Result<Vec<MixPart>, ProfileError> {
    if element.children.len() > limits::MIX {
        return refuse(format!("<BlockMix> has at most {} block sizes", limits::MIX));
    }
    let parts = element.children.iter().map(|each| {
        named(each, "Block")?;
        let percent =
            |name: &str| each.attribute(name).and_then(|value| value.parse().ok()).filter(|p| *p <= 100u32);
        match percent("Percent").zip(percent("WriteRatio")) {
            Some((percent, write_percent)) => Ok(MixPart { block: number(each)?, percent, write_percent }),
            None => wrong(each, "a size with attributes Percent and WriteRatio between 0 and 100"),
        }
    });
    parts.collect()
}

fn content(element: &Element) -> Result<WriteContent, ProfileError> {
    once(element)?;
    let child = |name: &str| element.children.iter().find(|child| child.name == name);
    let Some(pattern) = child("Pattern") else { return refuse("<WriteBufferContent> has no <Pattern>") };
    match pattern.text.as_str() {
        "sequential" => Ok(WriteContent::Sequential),
        "zero" => Ok(WriteContent::Zero),
        "random" => {
            let Some(source) = child("RandomDataSource") else {
                return refuse("<Pattern>random</Pattern> needs <RandomDataSource>");
            };
            let inner = |name: &str| source.children.iter().find(|child| child.name == name);
            let Some(size) = inner("SizeInBytes") else {
                return refuse("<RandomDataSource> has no <SizeInBytes>");
            };
            let size = long(size)?;
            if size == 0 {
                return refuse("<SizeInBytes> must be above 0");
            }
            Ok(WriteContent::Source { size, file: inner("FilePath").map(|path| path.text.clone()) })
        }
        _ => wrong(pattern, "sequential, zero or random"),
    }
}

fn throughput(element: &Element) -> Result<Option<Throughput>, ProfileError> {
    let value: u32 = number(element)?;
    match element.attribute("unit").unwrap_or("BPMS") {
        _ if value == 0 => Ok(None),
        "IOPS" => Ok(Some(Throughput::Iops(value))),
        "BPMS" => Ok(Some(Throughput::BytesPerMillisecond(value))),
        _ => wrong(element, "an attribute unit that is IOPS or BPMS"),
    }
}

fn thread_targets(element: &Element, list: &mut Vec<(u32, u32)>) -> Result<(), ProfileError> {
    if element.children.len() > limits::THREADS as usize {
        return refuse("<ThreadTargets> names too many threads");
    }
    for each in &element.children {
        named(each, "ThreadTarget")?;
        once(each)?;
        let (mut thread, mut weight) = (None, 0);
        for child in &each.children {
            match child.name.as_str() {
                "Thread" => thread = Some(number(child)?),
                "Weight" => weight = number(child)?,
                _ => return unknown(child, each),
            }
        }
        match thread {
            Some(thread) => list.push((thread, weight)),
            None => return refuse("<ThreadTarget> has no <Thread>"),
        }
    }
    Ok(())
}

fn distribution_of(element: &Element) -> Result<Distribution, ProfileError> {
    let [kind] = element.children.as_slice() else {
        return refuse("<Distribution> has one <Percent> or <Absolute>");
    };
    let unit = match kind.name.as_str() {
        "Percent" => DistributionUnit::Percent,
        "Absolute" => DistributionUnit::Absolute,
        _ => return unknown(kind, element),
    };
    if kind.children.len() > limits::RANGES {
        return refuse(format!("a <Distribution> has at most {} ranges", limits::RANGES));
    }
    let mut ranges = Vec::new();
    for each in &kind.children {
        named(each, "Range")?;
        let io = each.attribute("IO").and_then(|io| io.parse().ok()).filter(|io: &u32| *io <= 100);
        let Some(io_percent) = io else { return wrong(each, "an attribute IO between 0 and 100") };
        ranges.push(Range { io_percent, span: long(each)? });
    }
    Ok(distribution::complete(unit, ranges))
}

/// No element may have the same child twice, except in lists, which do not come here.
fn once(element: &Element) -> Result<(), ProfileError> {
    let mut names: Vec<&str> = element.children.iter().map(|child| child.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => refuse(format!(
            "<{}> appears twice in <{}> of the XML profile",
            pair.first().copied().unwrap_or_default(),
            element.name
        )),
        None => Ok(()),
    }
}

fn named(element: &Element, name: &str) -> Result<(), ProfileError> {
    if element.name == name {
        Ok(())
    } else {
        refuse(format!("<{}> stands where <{name}> is expected in the XML profile", element.name))
    }
}

fn unknown<T>(element: &Element, parent: &Element) -> Result<T, ProfileError> {
    refuse(format!("<{}> in <{}> of the XML profile is not known", element.name, parent.name))
}

fn wrong<T>(element: &Element, expected: &str) -> Result<T, ProfileError> {
    refuse(format!("<{}> of the XML profile must be {expected}, not '{}'", element.name, element.text))
}

fn number(element: &Element) -> Result<u32, ProfileError> {
    element.text.parse().or_else(|_| wrong(element, "a whole number below 4294967296"))
}

fn long(element: &Element) -> Result<u64, ProfileError> {
    element.text.parse().or_else(|_| wrong(element, "a whole number"))
}

fn boolean(element: &Element) -> Result<bool, ProfileError> {
    match element.text.as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => wrong(element, "true or false"),
    }
}
