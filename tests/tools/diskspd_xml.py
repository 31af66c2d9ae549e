#!/usr/bin/env python3
"""Reads results of `diskspd -Rxml` with a parser that is not ours: which elements are there, and do they agree.

    diskspd_xml.py THREADS TARGETS BLOCK RESULT

TARGETS is how many each thread has. Prints what is wrong, and fails then.
"""

import sys
import xml.etree.ElementTree as ElementTree

threads, targets, block = (int(word) for word in sys.argv[1:4])
text = open(sys.argv[4], encoding="utf-8").read()
wrong = []


def expect(holds, what):
    if not holds:
        wrong.append(what)


# Scripts look for exactly this line.
expect(text.split("\n")[0] == "<Results>", "the first line is not <Results>")
root = ElementTree.fromstring(text)
PROFILE = "Progress ResultFormat Verbose TimeSpans".split()
SPAN = (
    "CompletionRoutines MeasureLatency CalculateIopsStdDev DisableAffinity Duration Warmup Cooldown ThreadCount "
    "RequestCount IoBucketDuration RandSeed Targets"
).split()
TARGET = (
    "Path BlockSize BaseFileOffset SequentialScan RandomAccess TemporaryFile UseLargePages WriteBufferContent "
    "ParallelAsyncIO ThreadStride MaxFileSize RequestCount WriteRatio Throughput ThreadsPerFile IOPriority Weight"
).split()
CPU = "Socket Node Group Core EfficiencyClass Id UsagePercent UserPercent KernelPercent IdlePercent".split()
OF_TARGET = (
    "Path BytesCount FileSize IOCount ReadBytes ReadCount WriteBytes WriteCount AverageLatencyMilliseconds "
    "LatencyStdev Iops/IopsStdDev Iops/Bucket"
).split()
# Where there were such operations.
SIDES = ("Read", "Write")


def has(path, names):
    found = root.findall(path)
    expect(found, f"no {path}")
    for element in found:
        missing = [name for name in names if element.find(name) is None]
        expect(not missing, f"{path} lacks {missing}")
    return found


has(".", ["System", "Profile", "TimeSpan"])
has("System", "ComputerName Tool/Version Tool/VersionDate RunTime PowerScheme ProcessorTopology".split())
has("System/ProcessorTopology", ["Group", "Node", "Socket", "Core"])
has("Profile", PROFILE)
has("Profile/TimeSpans/TimeSpan", SPAN)
has("Profile/TimeSpans/TimeSpan/Targets/Target", TARGET)
for target in root.findall("Profile/TimeSpans/TimeSpan/Targets/Target"):
    ways = [name for name in ("Random", "StrideSize") if target.find(name) is not None]
    expect(len(ways) == 1, f"a target's offsets are {ways}")
(span,) = has("TimeSpan", "TestTimeSeconds ThreadCount RequestCount ProcCount CpuUtilization Latency Iops Thread".split())
cpus = has("TimeSpan/CpuUtilization/CPU", CPU)
has("TimeSpan/CpuUtilization/Average", CPU[6:])
expect(len(cpus) == int(span.findtext("ProcCount")), "ProcCount is not the number of CPU elements")
(latency,) = has("TimeSpan/Latency", ["AverageTotalMilliseconds", "LatencyStdev"])
for side in SIDES:
    some = any(int(count.text) > 0 for count in root.iter(f"{side}Count"))
    for name in (f"Average{side}Milliseconds", f"{side}LatencyStdev"):
        expect((latency.find(name) is not None) == some, f"Latency/{name}")
points = [float(bucket.findtext("Percentile")) for bucket in has("TimeSpan/Latency/Bucket", ["TotalMilliseconds"])]
expect(set(range(101)) <= set(points) and points == sorted(points), "percentiles are not 0 to 100")
expect(99.9999999 in points, "no percentile of nine nines")
totals = [float(bucket.findtext("TotalMilliseconds")) for bucket in span.findall("Latency/Bucket")]
expect(totals == sorted(totals), "percentiles fall")
buckets = has("TimeSpan/Iops/Bucket", [])
expect(all(bucket.get(name) for bucket in buckets for name in ("SampleMillisecond", "Read", "Write", "Total")), "Iops")
rows = has("TimeSpan/Thread", ["Id", "Target"])
expect(len(rows) == threads == int(span.findtext("ThreadCount")), f"{len(rows)} threads instead of {threads}")
for row in has("TimeSpan/Thread/Target", OF_TARGET):
    number = {name: int(row.findtext(name)) for name in OF_TARGET[1:8]}
    expect(number["BytesCount"] == number["IOCount"] * block, "bytes are not blocks")
    for side in SIDES:
        for name in (f"Average{side}LatencyMilliseconds", f"{side}LatencyStdev"):
            expect((row.find(name) is not None) == (number[f"{side}Count"] > 0), f"Thread/Target/{name}")
    for kind in ("Bytes", "Count"):
        whole = number["BytesCount" if kind == "Bytes" else "IOCount"]
        expect(number[f"Read{kind}"] + number[f"Write{kind}"] == whole, "reads and writes are not all")
expect(len(root.findall("TimeSpan/Thread/Target")) == threads * targets, "another number of targets")
expect(sum(int(row.findtext("IOCount")) for row in root.iter("Target") if row.find("IOCount") is not None) > 0, "no I/O")
sys.exit("\n".join(wrong) if wrong else 0)
