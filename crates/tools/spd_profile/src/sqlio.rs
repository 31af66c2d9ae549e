//! SQLIO's command line and parameter files, as a [`Profile`] and what its report says of them.
//!
//! Sizes are in KB and blocks, `-f` is `random`, `sequential` or a stripe factor in blocks. `sqlio2` added `-T<percent>`,
//! the percentage of reads. Defaults are those of the tool's help: `-kR -t1 -s30 -f64 -b2 -i64 -BN testfile.dat`.

use crate::command_line::whole_number;
use crate::error::{ProfileError, refuse};
use crate::limits;
use crate::model::{Affinity, CacheMode, Profile, Target, TimeSpan};
use crate::windows_path::Drives;

/// Which caches `-B` leaves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// `-BN`: none.
    None,
    /// `-BY`: file and disk caches.
    All,
    /// `-BH`: the disk's.
    Hardware,
    /// `-BS`: the file cache, written through.
    Software,
}

/// How offsets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `-frandom`
    Random,
    /// `-fsequential`
    Sequential,
    /// `-f<n>`: every n-th block.
    Stripe(u32),
}

/// A SQLIO run.
#[derive(Clone, Debug)]
pub struct Sqlio {
    /// The same for the engine.
    pub profile: Profile,
    /// Percent of writes.
    pub write_percent: u32,
    /// KB of one I/O.
    pub block_kb: u32,
    /// Order of offsets.
    pub pattern: Pattern,
    /// Caches.
    pub buffering: Buffering,
    /// Requests outstanding per thread (`-o`); 1 when it was not given.
    pub outstanding: u32,
    /// Whether `-o` was given, which makes I/O asynchronous.
    pub asynchronous: bool,
    /// Whether latencies were asked for (`-L`).
    pub latency: bool,
    /// Seconds.
    pub seconds: u32,
    /// Threads over all files.
    pub threads: u32,
    /// Sizes in MB from a parameter file, in the order of the targets; none: the current size is used.
    pub sizes_mb: Vec<Option<u64>>,
    /// `--yes`, `--quiet`, `--drive`, `--json` of ours.
    pub yes: bool,
    /// No progress.
    pub quiet: bool,
    /// The result as JSON.
    pub json: bool,
    /// Where drives are.
    pub drives: Drives,
}

/// Usage, without the line that names the program.
pub const USAGE: &str = "\
[options] may include any of the following:
        -k<R|W>                 kind of IO (R=reads, W=writes)
        -t<threads>             number of threads
        -s<secs>                number of seconds to run
        -d<drv_A><drv_B>..      use same filename on each drive letter given
        -R<drv_A/0>,<drv_B/1>.. raw drive letters/number for I/O
        -f<stripe factor>       stripe size in blocks, random, or sequential
        -p[I]<cpu affinity>     cpu number for affinity (0 based)
        -a[R[I]]<cpu mask>      cpu mask for affinity (R=roundrobin)
        -o<#outstanding>        depth
        -b<io size(KB)>         IO block size in KB
        -i<#IOs/run>            number of IOs per IO run (taken; runs follow each other without a pause)
        -L<[S|P][i|]>           latencies
        -B<[N|Y|H|S]>           set buffering (N=none, Y=all, H=hdwr, S=sfwr)
        -S<#blocks>             start I/Os #blocks into file
        -T<percent>             percentage of reads (sqlio2)
        -F<paramfile>           read parameters from <paramfile>: lines `file [threads [mask [size in MB]]]`
Defaults:
        -kR -t1 -s30 -f64 -b2 -i64 -BN testfile.dat
Maximums:
        -t (threads):                   256
        no. of files, includes -d & -R: 256
        filename length:                256
Ours:
        --drive=X=/directory    where drive X: is; also HOLDFAST_SPD_DRIVES, separated by ;
        --yes  --quiet  --json
Not offered: -m (scatter/gather and copy within one request), -v1.1.1.
";

/// Most threads per file and most files, as the tool's help says.
const MAXIMUM: u32 = 256;

/// Parses a SQLIO command line without the program's name. `read` gives the content of a parameter file.
///
/// # Errors
/// The first word that makes no sense.
pub fn parse(
    words: &[String],
    read: &dyn Fn(&str, usize) -> Result<String, String>,
) -> Result<Sqlio, ProfileError> {
    let mut parsed = Parsed::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(option) = word.strip_prefix("--") {
            parsed.ours(option, &mut words)?;
        } else if let Some(option) = word.strip_prefix('-') {
            parsed.option(word, option)?;
        } else {
            parsed.file(word, None, None)?;
        }
    }
    if let Some(path) = parsed.parameters.take() {
        let text = read(&path, limits::XML_BYTES)
            .map_err(|why| ProfileError(format!("cannot read the parameter file '{path}' (-F): {why}")))?;
        parsed.parameter_file(&text)?;
    }
    parsed.finish()
}

struct Parsed {
    write_percent: u32,
    threads: u32,
    seconds: u32,
    drives_used: Vec<char>,
    raw: Vec<String>,
    pattern: Pattern,
    affinity: Vec<Affinity>,
    outstanding: Option<u32>,
    block_kb: u32,
    latency: bool,
    buffering: Buffering,
    start_blocks: u32,
    parameters: Option<String>,
    /// Path, threads of a parameter file, size of a parameter file.
    files: Vec<(String, Option<u32>, Option<u64>)>,
    yes: bool,
    quiet: bool,
    json: bool,
    drives: Drives,
}

impl Default for Parsed {
    fn default() -> Self {
        Self {
            write_percent: 0,
            threads: 1,
            seconds: 30,
            drives_used: Vec::new(),
            raw: Vec::new(),
            pattern: Pattern::Stripe(64),
            affinity: Vec::new(),
            outstanding: None,
            block_kb: 2,
            latency: false,
            buffering: Buffering::None,
            start_blocks: 0,
            parameters: None,
            files: Vec::new(),
            yes: false,
            quiet: false,
            json: false,
            drives: Drives::default(),
        }
    }
}

impl Parsed {
    fn ours<'a>(
        &mut self,
        option: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), ProfileError> {
        match option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value))) {
            ("yes", None) => self.yes = true,
            ("quiet", None) => self.quiet = true,
            ("json", None) => self.json = true,
            ("drive", value) => match value.or_else(|| words.next().map(String::as_str)) {
                Some(value) => self.drives.add(value)?,
                None => return refuse("--drive needs a value: --drive=X=/directory"),
            },
            _ => return refuse(format!("invalid option: '--{option}'")),
        }
        Ok(())
    }

    fn option(&mut self, word: &str, option: &str) -> Result<(), ProfileError> {
        let wrong = || refuse(format!("incorrectly provided option: '{word}'"));
        let mut chars = option.chars();
        let letter = chars.next();
        let argument = chars.as_str();
        let bounded = |low: u32, high: u32| {
            whole_number(argument)
                .filter(|number| (low..=high).contains(number))
                .ok_or_else(|| ProfileError(format!("'{word}': a number between {low} and {high}")))
        };
        match letter {
            Some('k') => match argument {
                "R" | "r" => self.write_percent = 0,
                "W" | "w" => self.write_percent = 100,
                _ => return wrong(),
            },
            Some('T') => self.write_percent = 100 - bounded(0, 100)?,
            Some('t') => self.threads = bounded(1, MAXIMUM)?,
            Some('s') => self.seconds = bounded(1, limits::SECONDS)?,
            Some('o') => self.outstanding = Some(bounded(1, limits::REQUESTS_PER_THREAD)?),
            Some('b') => self.block_kb = bounded(1, limits::BLOCK_BYTES / 1024)?,
            Some('i') => drop(bounded(1, u32::MAX)?),
            Some('S') => self.start_blocks = bounded(0, u32::MAX)?,
            Some('d') if argument.chars().all(|c| c.is_ascii_alphabetic()) && !argument.is_empty() => {
                self.drives_used.extend(argument.chars().map(|c| c.to_ascii_uppercase()));
            }
            Some('R') => {
                for drive in argument.split(',') {
                    self.raw.push(match drive.parse::<u32>() {
                        Ok(number) => format!("#{number}"),
                        Err(_) if drive.len() == 1 => format!("{drive}:"),
                        Err(_) => return wrong(),
                    });
                }
            }
            Some('f') => {
                self.pattern = match argument {
                    "random" => Pattern::Random,
                    "sequential" => Pattern::Sequential,
                    _ => Pattern::Stripe(bounded(1, 1 << 20)?),
                };
            }
            Some('p') => {
                let number = whole_number(argument.strip_prefix('I').unwrap_or(argument));
                match number.and_then(|number| u16::try_from(number).ok()) {
                    Some(cpu) => self.affinity = vec![Affinity { group: 0, cpu }],
                    None => return wrong(),
                }
            }
            Some('a') => {
                self.affinity = mask(argument.trim_start_matches(['R', 'I']))
                    .ok_or_else(|| ProfileError(format!("'{word}': a mask of processors, such as -a0x3")))?
            }
            Some('L') => match argument {
                "S" | "Si" | "P" | "Pi" => self.latency = true,
                _ => return wrong(),
            },
            Some('B') => {
                self.buffering = match argument {
                    "N" => Buffering::None,
                    "Y" => Buffering::All,
                    "H" => Buffering::Hardware,
                    "S" => Buffering::Software,
                    _ => return wrong(),
                };
            }
            Some('F') if !argument.is_empty() => self.parameters = Some(argument.to_owned()),
            Some('m') => {
                return refuse(
                    "-m (several blocks in one request, copied or scattered) is not offered: a larger -b moves the same bytes in one request",
                );
            }
            Some('v') => {
                return refuse("-v1.1.1 (all runs use the same blocks) is not offered: it measures a cache");
            }
            _ => return refuse(format!("invalid option: '{word}'")),
        }
        Ok(())
    }

    fn file(&mut self, path: &str, threads: Option<u32>, size: Option<u64>) -> Result<(), ProfileError> {
        if path.len() > 4096 {
            return refuse("a file name is longer than 4096 bytes");
        }
        if self.files.len() >= MAXIMUM as usize {
            return refuse(format!("more than {MAXIMUM} files"));
        }
        self.files.push((path.to_owned(), threads, size));
        Ok(())
    }

    /// Lines `file [threads [mask [size in MB]]]`; `#` begins a comment.
    fn parameter_file(&mut self, text: &str) -> Result<(), ProfileError> {
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut fields = line.split_whitespace();
            let Some(path) = fields.next() else { continue };
            let wrong =
                |what: &str| ProfileError(format!("line {} of the parameter file: {what}", number + 1));
            let threads = match fields.next() {
                None => None,
                Some(field) => Some(
                    whole_number(field)
                        .filter(|threads| (1..=MAXIMUM).contains(threads))
                        .ok_or_else(|| wrong("the number of threads is between 1 and 256"))?,
                ),
            };
            if let Some(field) = fields.next() {
                let cpus =
                    mask(field).ok_or_else(|| wrong("the mask of processors is a number such as 0x3"))?;
                // One list of processors serves all threads of a run; 0x0 means any.
                if !cpus.is_empty() && !self.affinity.is_empty() && self.affinity != cpus {
                    return Err(wrong("processors that differ between files are not offered"));
                }
                if !cpus.is_empty() {
                    self.affinity = cpus;
                }
            }
            let size = match fields.next() {
                None => None,
                Some(field) => Some(field.parse::<u64>().map_err(|_| wrong("the size is a number of MB"))?)
                    .filter(|size| *size > 0),
            };
            if size.is_some_and(|size| size > 1 << 40) {
                return Err(wrong("the size is above 1 EB"));
            }
            if fields.next().is_some() {
                return Err(wrong("more than file, threads, mask and size"));
            }
            self.file(path, threads, size)?;
        }
        if self.files.is_empty() {
            return refuse("the parameter file names no file");
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Sqlio, ProfileError> {
        if self.files.is_empty() && self.raw.is_empty() {
            self.files.push(("testfile.dat".into(), None, None));
        }
        let mut files = Vec::new();
        if self.drives_used.is_empty() {
            files = self.files;
        } else {
            for drive in &self.drives_used {
                files.extend(
                    self.files
                        .iter()
                        .map(|(path, threads, size)| (format!("{drive}:\\{path}"), *threads, *size)),
                );
            }
        }
        files.extend(self.raw.into_iter().map(|path| (path, None, None)));
        if files.len() > MAXIMUM as usize {
            return refuse(format!("more than {MAXIMUM} files (-d and -R included)"));
        }
        let block = self.block_kb * 1024;
        let outstanding = self.outstanding.unwrap_or(1);
        let mut span = TimeSpan {
            duration: self.seconds,
            warm_up: 0,
            latency: true,
            affinity: self.affinity,
            ..TimeSpan::default()
        };
        let mut sizes_mb = Vec::new();
        for (path, threads, size) in files {
            let (cache, write_through) = match self.buffering {
                Buffering::None => (CacheMode::DisableOsCache, true),
                Buffering::Hardware => (CacheMode::DisableOsCache, false),
                Buffering::Software => (CacheMode::Cached, true),
                Buffering::All => (CacheMode::Cached, false),
            };
            let alignment = match self.pattern {
                Pattern::Random | Pattern::Sequential => u64::from(block),
                Pattern::Stripe(blocks) => u64::from(block) * u64::from(blocks),
            };
            sizes_mb.push(size);
            let threads = threads.unwrap_or(self.threads);
            span.targets.push(Target {
                block,
                alignment: Some(alignment),
                random_percent: if self.pattern == Pattern::Random { 100 } else { 0 },
                // Threads of one file read it once together, as SQLIO's runs do.
                interlocked: self.pattern != Pattern::Random && threads > 1,
                base: u64::from(self.start_blocks) * u64::from(block),
                create: size.map(|size| size << 20),
                threads,
                requests: outstanding,
                write_percent: self.write_percent,
                cache,
                write_through,
                ..Target::new(path)
            });
        }
        let threads = span.targets.iter().map(|target| target.threads).sum();
        let profile = Profile { spans: vec![span], ..Profile::default() };
        crate::validate(&profile, true)?;
        Ok(Sqlio {
            profile,
            write_percent: self.write_percent,
            block_kb: self.block_kb,
            pattern: self.pattern,
            buffering: self.buffering,
            outstanding,
            asynchronous: self.outstanding.is_some(),
            latency: self.latency,
            seconds: self.seconds,
            threads,
            sizes_mb,
            yes: self.yes,
            quiet: self.quiet,
            json: self.json,
            drives: self.drives,
        })
    }
}

/// Processors of a mask in decimal or 0x hexadecimal; none for 0.
fn mask(text: &str) -> Option<Vec<Affinity>> {
    let mask = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some((0..64).filter(|bit| mask >> bit & 1 == 1).map(|cpu| Affinity { group: 0, cpu }).collect())
}
