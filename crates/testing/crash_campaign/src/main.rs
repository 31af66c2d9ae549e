//! The campaign from the command line.

use clap::Parser;
use crash_campaign::{Case, Layout, Sabotage, Subject, run};

/// Cuts the power of simulated disks under pools, again and again.
#[derive(Parser)]
struct Arguments {
    /// How many seeds for each subject and layout.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    #[arg(long, value_enum)]
    subject: Option<Subject>,
    #[arg(long, value_enum, default_value = "none")]
    sabotage: Sabotage,
    /// Say what happens.
    #[arg(long)]
    trace: bool,
}

fn main() {
    let a = Arguments::parse();
    let mut broken = 0;
    for layout in Layout::ALL.into_iter().filter(|l| a.layout.is_none_or(|w| w == *l)) {
        let mut total = crash_campaign::Stats::default();
        for seed in a.from..a.from + a.seeds {
            let case = Case { sabotage: a.sabotage, trace: a.trace, ..Case::new(a.subject.unwrap_or(Subject::Pool), layout, seed) };
            let out = run(&case);
            total += out.stats;
            if let Some(b) = out.broken {
                broken += 1;
                println!("{case}: {b}");
            }
        }
        println!("{layout}: {total:?}");
    }
    println!("{broken} broken");
    std::process::exit(i32::from(broken > 0));
}
