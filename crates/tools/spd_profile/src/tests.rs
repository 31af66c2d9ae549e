//! Command lines of every kind, refusals with their words, and XML there and back.

mod workloads;

use proptest::prelude::*;

use crate::command_line::Surroundings;
use crate::*;

/// Files in memory, a clock that stands.
struct Files(Vec<(&'static str, String)>);

impl Surroundings for Files {
    fn read(&self, path: &str, _limit: usize) -> Result<String, String> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| "no such file".into())
    }
    fn ticks(&self) -> u32 {
        77
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn parse_line(line: &str) -> Result<Invocation, ProfileError> {
    parse("diskspd", &words(line), &Files(Vec::new()))
}

fn span_of(line: &str) -> TimeSpan {
    match parse_line(line) {
        Ok(mut invocation) => invocation.profile.spans.remove(0),
        Err(why) => panic!("{line}: {why}"),
    }
}

fn target_of(line: &str) -> Target {
    span_of(line).targets.remove(0)
}

#[test]
fn the_usual_options() {
    let span = span_of("-c1G -d10 -r -w30 -t8 -o16 -b8K -h -L -D500 -W2 -C1 -z9 a b");
    assert_eq!((span.duration, span.warm_up, span.cool_down, span.seed), (10, 2, 1, 9));
    assert!(span.latency && span.iops_intervals);
    assert_eq!(span.interval_ms, 500);
    assert_eq!(span.targets.len(), 2);
    let target = &span.targets[1];
    assert_eq!(target.path, "b");
    assert_eq!((target.block, target.threads, target.requests, target.write_percent), (8192, 8, 16, 30));
    assert_eq!((target.create, target.random_percent, target.step()), (Some(1 << 30), 100, 8192));
    assert_eq!((target.cache, target.write_through), (CacheMode::DisableOsCache, true));
}

#[test]
fn who_asks_how_it_is_used_is_told_that() {
    let is_asked = |line: &str| parse_line(line).is_ok_and(|invocation| invocation.usage);
    assert!(["-?", "--help", "-b8K a --help", "--nonsense -?"].into_iter().all(is_asked) && !is_asked("a"));
}

#[test]
fn defaults_are_those_of_the_help() {
    let span = span_of("a");
    let target = &span.targets[0];
    assert_eq!((span.duration, span.warm_up, span.cool_down, span.seed), (10, 5, 0, 0));
    assert_eq!((target.block, target.threads, target.requests), (65_536, 1, 2));
    assert_eq!((target.cache, target.write_through, target.random_percent), (CacheMode::Cached, false, 0));
}

#[test]
fn a_word_with_a_space_is_a_number() {
    // What a PowerShell variable "-o 8" becomes: one word.
    let line = ["-o 8", "-t 2", "-b8k", "x"].map(str::to_owned);
    let invocation = parse("diskspd", &line, &Files(Vec::new())).unwrap();
    let target = &invocation.profile.spans[0].targets[0];
    assert_eq!((target.requests, target.threads), (8, 2));
    assert_eq!(invocation.profile.command_line, "diskspd -o 8 -t 2 -b8k x");
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("512", 512),
        ("8k", 8192),
        ("8K", 8192),
        ("3M", 3 << 20),
        ("2G", 2 << 30),
        ("1T", 1 << 40),
        ("5b", 5 * 4096),
    ] {
        assert_eq!(parse_size(text, 4096), Ok(bytes), "{text}");
    }
    for (text, why) in [
        ("", "Invalid integer"),
        ("K", "Invalid integer"),
        ("-1", "Invalid integer"),
        ("1x", "Invalid size 'x'"),
        ("1KB", "Unrecognized characters"),
        ("16777216T", "Overflow applying multipler 'T'"),
        ("99999999999999999999", "Invalid integer"),
        ("18446744073709551615b", "Overflow applying multipler 'B'"),
    ] {
        let found = parse_size(text, 4096).unwrap_err().0;
        assert!(found.starts_with(why), "{text}: {found}");
    }
    for (bytes, text) in
        [(512, "512"), (65_536, "64KiB"), (1536, "1.50KiB"), (1000 << 30, "1000GiB"), (3 << 39, "1.50TiB")]
    {
        assert_eq!(display_size(bytes), text);
    }
}

#[test]
fn b_counts_blocks_wherever_the_block_is_given() {
    assert_eq!(target_of("-f8b -b4K a").max, 32_768);
    assert_eq!(target_of("-b4K -B2b:3b a").base, 8192);
    assert_eq!(target_of("-b4K -B2b:3b a").max, 20_480);
}

#[test]
fn caching() {
    use CacheMode::{Cached, DisableLocalCache, DisableOsCache};
    for (flags, cache, through) in [
        ("-S", DisableOsCache, false),
        ("-Su", DisableOsCache, false),
        ("-Sh", DisableOsCache, true),
        ("-Suw", DisableOsCache, true),
        ("-Swu", DisableOsCache, true),
        ("-Sw", Cached, true),
        ("-Sb", Cached, false),
        ("-Sbw", Cached, true),
        ("-Sr", DisableLocalCache, false),
        ("-Su -Sw", DisableOsCache, true),
        ("-h", DisableOsCache, true),
    ] {
        let target = target_of(&format!("{flags} a"));
        assert_eq!((target.cache, target.write_through), (cache, through), "{flags}");
    }
}

#[test]
fn distributions_are_completed() {
    let of = |line: &str| {
        let distribution = target_of(line).distribution.unwrap();
        distribution.ranges.iter().map(|range| (range.io_percent, range.span)).collect::<Vec<_>>()
    };
    assert_eq!(of("-r -rdpct90/10:0/10:5/20 a"), [(90, 10), (0, 10), (5, 20), (5, 60)]);
    assert_eq!(of("-r -rdabs90/1G:10/2G a"), [(90, 1 << 30), (10, 2 << 30)]);
    assert_eq!(of("-rs50 -rdabs90/1G a"), [(90, 1 << 30), (10, 0)]);
}

#[test]
fn affinity() {
    let of =
        |line: &str| span_of(line).affinity.iter().map(|each| (each.group, each.cpu)).collect::<Vec<_>>();
    assert_eq!(of("-a0,1,5 a"), [(0, 0), (0, 1), (0, 5)]);
    assert_eq!(of("-ag0,0,1,g1,3 a"), [(0, 0), (0, 1), (1, 3)]);
    assert_eq!(of("-ag a"), []);
    assert_eq!(of("-a0 -a2 a"), [(0, 0), (0, 2)]);
}

/// Lines that are refused, with the beginning of the reason.
const REFUSED: &[(&str, &str)] = &[
    ("", "need to provide at least one filename"),
    ("-b4K", "need to provide at least one filename"),
    ("a -b4K", "parameters (-b4K) must come before targets"),
    ("-bK a", "invalid block size passed to -b"),
    ("-b0 a", "invalid block size passed to -b"),
    ("-b4G a", "invalid block size passed to -b"),
    ("-q a", "invalid option: '-q'"),
    ("- a", "invalid option: '-'"),
    ("-t0 a", "incorrectly provided option: '-t0'"),
    ("-t8x a", "incorrectly provided option: '-t8x'"),
    ("-t-1 a", "incorrectly provided option: '-t-1'"),
    ("-t99999999999 a", "incorrectly provided option"),
    ("-o a", "incorrectly provided option: '-o'"),
    ("-w101 a", "write ratio passed to -w must be between 0 and 100"),
    ("-w-1 a", "write ratio passed to -w must be between 0 and 100"),
    ("-I4 a", "incorrectly provided option: '-I4'"),
    ("-Lx a", "incorrectly provided option: '-Lx'"),
    ("-c1X a", "invalid target size passed to -c"),
    ("-c99999999T a", "invalid target size passed to -c"),
    ("-F2 -t2 a", "-F and -t parameters cannot be used together"),
    ("-n -a0 a", "-n and -a parameters cannot be used together"),
    ("-r -T1M -t2 a", "-T conflicts with -r"),
    ("-r -p a", "-p conflicts with -r"),
    ("-si -rs50 a", "use -r to specify IO alignment"),
    ("-r -s a", "sequential IO (-s) conflicts with random IO"),
    ("-s -r a", "sequential IO (-s) conflicts with random IO"),
    ("-r -r a", "random IO (-r) specified multiple times"),
    ("-rs50 -rs60 a", "mixed random/sequential IO (-rs) specified multiple times"),
    ("-rs0 a", "random percentage passed to -rs"),
    ("-rs a", "no random percentage"),
    ("-r0 a", "invalid alignment passed to -r"),
    ("-si -T1M -t2 a", "-si conflicts with -T"),
    ("-si -p -t2 a", "-si conflicts with -p"),
    ("-T1M a", "-T has no effect unless multiple threads"),
    ("-rdpct10/10 a", "random distribution ranges (-rd) do not apply"),
    ("-r -rdpct60/10:50/10 a", "invalid random distribution IO% 50: can be at most 40"),
    ("-r -rdpct10/60:10/60 a", "invalid random distribution Target% 60"),
    ("-r -rdpct100/10 a", "invalid random distribution span: Target% (10%) must total 100%"),
    ("-r -rdpct50/100 a", "invalid random distribution: the target is covered with 50% IO left"),
    ("-r -rdpct10 a", "Expected / separator after 10"),
    ("-r -rdpct101/1 a", "Invalid IO% 101"),
    ("-r -rdfoo a", "Unrecognized random distribution type"),
    ("-r -rdpct10/0 a", "Invalid Target% 0"),
    ("-r -rdabs10/0 a", "Invalid zero length target range"),
    ("-r -rdabs10/1K:90/1M a", "invalid random distribution target range 1024"),
    (
        "-r -rdabs50/18446744073709551615:50/18446744073709551615 a",
        "invalid random distribution: the target ranges overflow",
    ),
    ("-i5 a", "need to specify -j<think time> with -i<burst size>"),
    ("-j5 a", "need to specify -j<think time> with -i<burst size>"),
    ("-F2 -O4 -g5 a", "-g throughput control cannot be used with -O"),
    ("-F2 -O4 -i1 -j5 a", "-j think time cannot be used with -O"),
    ("-F2 -O4 -p a", "-p parallel IO cannot be used with -O"),
    ("-O4 a", "-O outstanding requests per thread needs -F"),
    ("-x -g5 a", "-g throughput control cannot be used with -x"),
    ("-Sm -x a", "completion routines (-x) can't be used with memory mapped"),
    ("-Nv a", "memory mapped flush mode (-N) can only be specified with"),
    ("-Sum a", "-Sm conflicts with"),
    ("-Smu a", "-Su conflicts with"),
    ("-Sbu a", "-Su conflicts with"),
    ("-Sww a", "-Sw conflicts with"),
    ("-h -S a", "-S conflicts with"),
    ("-Su -h a", "-h conflicts with"),
    ("-Sq a", "unrecognized option provided to -S"),
    ("-B8K -f4K a", "maximum (-f) target offset must be greater than base"),
    ("-B8K:4K -f4K a", "maximum target offset (-Bbase:length or -fsize) can only be specified once"),
    ("-B8K: a", "-Bbase:length - no length provided"),
    ("-B8K;4 a", "unexpected characters after -Bbase"),
    ("-B1 -B2 a", "base target offset"),
    ("-fq a", "incorrectly provided option: '-fq'"),
    ("-g5x a", "incorrectly provided option: '-g5x'"),
    ("-Z1K a", "custom write buffer (-Z) is smaller than the block size"),
    ("-Z0 a", "invalid size passed to -Z"),
    ("-Rjson a", "invalid results format (-R): 'json'"),
    ("-R a", "unspecified results format -R"),
    ("-vx a", "invalid verbose mode (-v): 'x'"),
    ("-zx a", "invalid random seed value 'x'"),
    ("-z4294967296 a", "invalid random seed value"),
    ("-d-1 a", "invalid measured duration time (-d)"),
    ("-d99999999 a", "-d99999999 is longer than a year"),
    ("-agg a", "syntax error parsing affinity at highlighted character\n-agg\n   ^"),
    ("-a1,,2 a", "syntax error parsing affinity"),
    ("-a1, a", "incomplete affinity specification"),
    ("-ag0 a", "incomplete affinity specification"),
    ("-eFOO a", "incorrectly provided option: '-eFOO'"),
    ("-ysfoo a", "-y names a Windows event"),
    ("-Xnone a", "cannot read the XML profile 'none' (-X)"),
    ("-b4K -Xnone a", "invalid XML profile specification; parameter -b4K"),
    ("-Xa -Xb", "multiple XML profiles specified"),
    ("-D1 -d86400 a", "-D1 gives 86400000 intervals"),
    ("-t5000 a", "5000 threads are more than"),
    ("-o5000 a", "5000 requests outstanding"),
    ("-b256M -o4096 -t4096 a", "block size times outstanding requests"),
    ("*1", "template target '*1' was not substituted"),
    ("--rate=0 a", "--rate is a number"),
    ("--rate=5 -g5 a", "--rate is an open loop"),
    ("--arrival=even a", "--arrival says"),
    ("--wat a", "invalid option: '--wat'"),
    ("--layout=3 a", "--layout is 2.0 or 2.2"),
];

#[test]
fn refusals_say_why() {
    for (line, why) in REFUSED {
        match parse_line(line) {
            Ok(_) => panic!("{line} was taken"),
            Err(found) => assert!(found.0.starts_with(why), "{line}: {found}"),
        }
    }
}

#[test]
fn what_linux_cannot_do_is_refused_with_the_reason() {
    for (line, part) in [
        ("-ePROCESS a", "event tracing"),
        ("-x a", "completion routines"),
        ("-Sm a", "memory mapped"),
        ("-l a", "large pages"),
        ("-ft a", "TEMPORARY"),
        ("-Sr a", "remote targets"),
        ("-ag1,0 a", "system only has 1 groups"),
    ] {
        let invocation = parse_line(line).unwrap();
        let why = check_linux(&invocation.profile, |_| false).unwrap_err();
        assert!(why.0.contains(part), "{line}: {why}");
    }
    let remote = parse_line("-Sr a").unwrap();
    assert_eq!(check_linux(&remote.profile, |_| true), Ok(()));
}

#[test]
fn warnings() {
    for (line, warning) in [
        ("-t2 a", "target access pattern will not be sequential, consider -si"),
        ("-si a", "single-threaded test, -si ignored"),
        ("-p -o1 a", "-p does not have effect unless outstanding I/O count (-o) is > 1"),
    ] {
        assert_eq!(parse_line(line).unwrap().warnings, [warning], "{line}");
    }
    assert!(parse_line("-t2 -r a").unwrap().warnings.is_empty());
}

#[test]
fn a_profile_from_xml_with_overrides_and_templates() {
    let text = xml::write(&parse_line("-Rp -b4K -r -o32 -t2 -w30 -Su *1 *2").unwrap().profile, 0);
    let files = Files(vec![("p.xml", text)]);
    let invocation = parse("d", &words("-d60 -z3 -Rxml -Xp.xml first second"), &files).unwrap();
    let span = &invocation.profile.spans[0];
    assert_eq!((span.duration, span.seed, span.warm_up), (60, 3, 5));
    assert_eq!(invocation.profile.format, ResultFormat::Xml);
    assert_eq!([&span.targets[0].path, &span.targets[1].path], ["first", "second"]);
    let why = parse("d", &words("-Xp.xml first"), &files).unwrap_err();
    assert!(why.0.contains("'*2' was not substituted"), "{why}");
    let why = parse("d", &words("-Xp.xml a b c"), &files).unwrap_err();
    assert!(why.0.contains("no template target *3"), "{why}");
}

#[test]
fn xml_that_is_none() {
    let deep = "<a>".repeat(1000);
    for (text, part) in [
        ("", "there is no element"),
        ("x", "text outside"),
        ("<Results></Results>", "begins with <Profile>"),
        ("<Profile>", "<Profile> is not closed"),
        ("<Profile></Other>", "closes nothing"),
        ("<Profile/><Profile/>", "a second element"),
        ("<!DOCTYPE x><Profile/>", "neither DTDs"),
        ("<Profile><Verbose>&x;</Verbose></Profile>", "unknown entity"),
        ("<Profile><Verbose>maybe</Verbose></Profile>", "true or false"),
        ("<Profile><Verbose>true</Verbose><Verbose>true</Verbose></Profile>", "appears twice"),
        ("<Profile><Wat/></Profile>", "is not known"),
        ("<Profile a=1/>", "no quotes"),
        ("<Profile a='1' a='2'/>", "twice"),
        (deep.as_str(), "deeply nested"),
    ] {
        let why = xml::read(text).unwrap_err().0;
        assert!(why.contains(part), "{text:.40}: {why}");
    }
}

#[test]
fn windows_paths() {
    let mut drives = windows_path::Drives::default();
    drives.add_all("X=/mnt/x;C:=/tmp/").unwrap();
    drives.add("1=/dev/sdz").unwrap();
    assert_eq!(drives.resolve("X:\\TestFile.DAT").unwrap(), "/mnt/x/TestFile.DAT");
    assert_eq!(drives.resolve("x:\\a\\b").unwrap(), "/mnt/x/a/b");
    assert_eq!(drives.resolve("C:a").unwrap(), "/tmp/a");
    assert_eq!(drives.resolve("#1").unwrap(), "/dev/sdz");
    assert_eq!(drives.resolve("/dev/x").unwrap(), "/dev/x");
    assert_eq!(drives.resolve("\\\\s\\h\\f").unwrap(), "\\\\s\\h\\f");
    assert!(drives.resolve("E:\\a").unwrap_err().0.contains("--drive=E="));
    assert!(drives.resolve("X:\\..\\etc").unwrap_err().0.contains("leads out"));
    assert!(drives.add("XY=/a").is_err() && drives.add("X").is_err());
}

#[test]
fn sqlio_lines() {
    let none = |_: &str, _: usize| Err::<String, String>("none".into());
    let of = |line: &str| sqlio::parse(&words(line), &none);
    let run = of("-s10 -kR -frandom -b8 -t8 -o16 -LS -BN X:\\TestFile.DAT").unwrap();
    let span = &run.profile.spans[0];
    let target = &span.targets[0];
    assert_eq!((span.duration, span.warm_up), (10, 0));
    assert_eq!((target.block, target.threads, target.requests, target.random_percent), (8192, 8, 16, 100));
    assert_eq!((target.cache, target.write_through), (CacheMode::DisableOsCache, true));
    let run = of("-s10 -T100 -t4 -o16 -b512 -BN -LS -fsequential -dEFGHIJ testfile.dat").unwrap();
    let paths: Vec<_> = run.profile.spans[0].targets.iter().map(|target| target.path.as_str()).collect();
    assert_eq!(paths.len(), 6);
    assert_eq!(paths[5], "J:\\testfile.dat");
    assert_eq!((run.threads, run.write_percent), (24, 0));
    let run = of("-kW -f4 -S3 -b4 a").unwrap();
    let target = &run.profile.spans[0].targets[0];
    assert_eq!((target.step(), target.base, target.write_percent), (16_384, 12_288, 100));
    let file = |_: &str, _: usize| Ok("# files\n/a 2 0x3 100\n/b 1 0x0 50 # last\n".to_owned());
    let run = sqlio::parse(&words("-Fparam.txt -LS"), &file).unwrap();
    let span = &run.profile.spans[0];
    assert_eq!((span.targets[0].threads, span.targets[1].threads), (2, 1));
    assert_eq!((span.targets[1].create, run.sizes_mb[0]), (Some(50 << 20), Some(100)));
    assert_eq!(span.affinity.len(), 2);
    for (line, part) in [
        ("-kX a", "incorrectly provided"),
        ("-t257 a", "between 1 and 256"),
        ("-b0 a", "between 1 and"),
        ("-m a", "not offered"),
        ("-v1.1.1 a", "not offered"),
        ("-q a", "invalid option"),
        ("-Fx", "cannot read the parameter file"),
        ("-aX a", "mask of processors"),
        ("-LX a", "incorrectly provided"),
    ] {
        let why = of(line).unwrap_err();
        assert!(why.0.contains(part), "{line}: {why}");
    }
}

proptest! {
    /// What was parsed, written as XML and read is the same.
    #[test]
    fn xml_there_and_back(
        block in 1u32..1 << 20, threads in 1u32..64, requests in 1u32..64, write in 0u32..=100,
        random in 0u32..=100, cache in 0usize..6, size in proptest::option::of(1u64..1 << 50),
        rate in proptest::option::of(1u32..1_000_000), content in 0usize..4, priority in 1u32..4,
        path in "[ -~]{1,30}", affinity in proptest::collection::vec(0u16..64, 0..4),
    ) {
        let path = format!("x{path}");
        let mut line = vec![
            format!("-b{block}"), format!("-o{requests}"), format!("-w{write}"), format!("-I{priority}"),
            ["-Sb", "-Su", "-Sh", "-Sw", "-Sr", "-Sbw"][cache].to_owned(), "-L".into(), "-D100".into(), "-vs".into(),
        ];
        line.extend(size.map(|size| format!("-c{size}")));
        line.extend(rate.map(|rate| format!("--rate={rate}")));
        line.extend([vec![], vec!["-Z".to_owned()], vec![format!("-Z{}", 2 * block)], vec!["-Zr".to_owned(), format!("-Z{block},<f&\">")]][content].clone());
        if random > 0 {
            line.extend([format!("-rs{random}"), format!("-r{block}"), "-rdpct80/20".into(), format!("-t{threads}")]);
        } else {
            line.extend([format!("-F{threads}"), "-O3".into(), "-si".into()]);
        }
        if !affinity.is_empty() {
            line.push(format!("-ag0,{}", affinity.iter().map(u16::to_string).collect::<Vec<_>>().join(",")));
        }
        line.push(path);
        let invocation = parse("d", &line, &Files(Vec::new()));
        // Blocks times requests may be too much, and spaces at a path's end are not kept by XML readers.
        prop_assume!(invocation.is_ok());
        let mut profile = invocation.unwrap().profile;
        prop_assume!(profile.spans[0].targets[0].path.trim() == profile.spans[0].targets[0].path);
        let again = xml::read(&xml::write(&profile, 0)).unwrap();
        profile.command_line = String::new();
        if profile.spans[0].targets[0].alignment.is_none() {
            profile.spans[0].targets[0].alignment = Some(profile.spans[0].targets[0].step());
        }
        prop_assert_eq!(again, profile);
    }

    /// Nothing that anybody types or writes makes the parsers panic.
    #[test]
    fn any_words(line in proptest::collection::vec("(-|--)?[a-zA-Z:*]{0,2}[ -~é]{0,12}", 0..6)) {
        let _ = parse("d", &line, &Files(vec![("p", String::new())]));
        let _ = sqlio::parse(&line, &|_, _| Ok("a 1 0x1 x".to_owned()));
        let _ = xml::read(&line.join("<"));
    }
}

#[test]
fn sweeps() {
    let of = |line: &str| sweep::parse("spd sweep", &words(line), &Files(Vec::new()));
    let plan =
        of("--depths 4,1,2 --threads=1,2 --blocks 4K,64K --writes 0,30 --runs 3 -d1 -r -Su a").unwrap();
    assert_eq!((plan.points.len(), plan.runs), (24, 3));
    let depths: Vec<u32> = plan.points.iter().take(3).map(|point| point.depth).collect();
    assert_eq!(depths, [1, 2, 4]);
    let last = &plan.points[23];
    assert_eq!((last.threads, last.depth, last.block, last.write_percent), (2, 4, 65_536, 30));
    assert_eq!(last.invocation.profile.spans[0].targets[0].path, "a");
    let oltp = of("--preset oltp --depths 8 a").unwrap();
    assert_eq!((oltp.points[0].block, oltp.points[0].write_percent), (8192, 30));
    for (name, ..) in sweep::PRESETS {
        assert!(of(&format!("--preset={name} -c1G a")).is_ok(), "{name}");
    }
    for (line, part) in [
        ("--depths 0 a", "incorrectly provided option: '-o0'"),
        ("--depths x a", "--depths is a list"),
        ("--preset x a", "--preset is one of oltp"),
        ("--runs 0 a", "--runs is a number"),
        ("--csv", "--csv needs a value"),
        ("--runs 1000 --threads 1,2,3 --writes 1,2,3,4 a", "are more than 10000 runs"),
        ("-F2 a", "use -t instead of -F"),
        ("--depths 1", "need to provide at least one filename"),
    ] {
        let why = of(line).unwrap_err();
        assert!(why.0.contains(part), "{line}: {why}");
    }
}

/// The corpus, whole, cut anywhere, and with any byte changed.
#[test]
fn the_corpus_replays_damaged() {
    type Target = fn(&[u8]);
    for (name, target) in
        [("spd_profile", fuzz::profile as Target), ("spd_words", fuzz::words), ("spd_trace", fuzz::trace)]
    {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(name);
        for file in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            for at in 0..bytes.len() {
                target(&bytes[..at]);
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x11;
                target(&damaged);
            }
        }
    }
}
