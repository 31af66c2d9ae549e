//! Entries for fuzzing: profiles, command lines and parameter files come from whoever wrote them.

use crate::command_line::Surroundings;
use crate::{sqlio, sweep, trace, validate, windows_path, xml};

/// No files, and a clock that stands.
struct Nothing;

impl Surroundings for Nothing {
    fn read(&self, _: &str, _: usize) -> Result<String, String> {
        Err("no files".into())
    }
    fn ticks(&self) -> u32 {
        0
    }
}

/// An XML profile: what is taken is written and read as the same.
pub fn profile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(profile) = xml::read(&text)
        && validate(&profile, false).is_ok()
    {
        // What DiskSpd's XML cannot say is not compared: event tracing.
        let again = xml::read(&xml::write(&profile, 0)).map(|again| again.spans.len());
        assert_eq!(again.ok(), Some(profile.spans.len()), "a valid profile is written as one");
    }
}

/// Lines of a trace.
pub fn trace(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parser = trace::Parser::new(None);
    let mut last = 0;
    for line in text.lines() {
        match parser.line(line) {
            Ok(None) => {}
            Ok(Some(record)) => {
                assert!(record.at >= last && record.len > 0, "times do not go back");
                last = record.at;
            }
            Err(_) => break,
        }
    }
}

/// Words of a command line, separated by lines, to each of the parsers; and as a parameter file.
pub fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<String> = text.lines().take(64).map(str::to_owned).collect();
    if let Ok(invocation) = crate::parse("spd", &words, &Nothing) {
        let _ = xml::read(&xml::write(&invocation.profile, 0));
    }
    if words.len() < 8 {
        let _ = sweep::parse("sweep", &words, &Nothing);
    }
    let _ = sqlio::parse(&words, &|_, _| Ok(text.clone().into_owned()));
    let mut drives = windows_path::Drives::default();
    let _ = drives.add_all(&text);
    let _ = drives.resolve(&text);
}
