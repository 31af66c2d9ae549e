//! Makes the golden image of a format's version that has none yet. An image that is there is never changed.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use format_images::{Fallible, Format};

/// Makes the golden image of the version that this release writes, where there is none yet.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// pool, volume, write_log or diff
    #[arg(value_parser = format)]
    format: Format,
}

fn format(name: &str) -> Result<Format, String> {
    Format::named(name).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.into_iter().map(Format::name).collect();
        format!("there is no format of that name; there are {}", names.join(", "))
    })
}

fn make(format: Format) -> Fallible<String> {
    let (version, path) = (format.current(), format.path(format.current()));
    if path.exists() {
        let why = format!(
            "{} is there already, and what a release has written never changes. A new version gets a new number: \
             `Format::current` in crates/testing/format_images/src/lib.rs and docs/formats/README.md",
            path.display()
        );
        return Err(why.into());
    }
    let image = format.make()?;
    format.check(version, &image)?;
    let title = format!(
        "{} {version}: made once, never changed; docs/formats/README.md says what it is.",
        format.name()
    );
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    file.write_all(image.to_text(&title).as_bytes())?;
    file.sync_all()?;
    Ok(format!("{} is made.", path.display()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match make(arguments.format) {
        Ok(made) => {
            println!("{made}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("format_images: {why}");
            ExitCode::FAILURE
        }
    }
}
