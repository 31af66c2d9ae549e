//! `holdfast perf`: counters of a node as rates, live on a terminal, as samples for a file, or of the past.

mod csv;
mod names;
mod past;
pub(crate) mod rates;
mod view;
mod when;

use std::io::IsTerminal;
use std::time::Duration;

use clap::ValueEnum;
use control_api::{CounterKind, Counters, ObjectCounters, name_matches};
use control_client::ClientError;
use serde_json::json;
use shard_runtime::{Clock, SystemClock};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use rates::{Rates, between, totals};
use when::When;

/// Longest time between two looks: a day.
const MAX_INTERVAL_SECONDS: f64 = 86_400.0;
/// Shortest: what a person or a chart can follow, and nothing for the node.
const MIN_INTERVAL_SECONDS: f64 = 0.1;

/// Live counters: operations, bytes, latency and queues of disks, spaces, volumes, LUNs, shares, sessions, and, if asked for, of QoS policies and
/// flows with their limits; processors.
///
/// On a terminal a table that is drawn anew with each sample, the busiest first. Elsewhere one sample as a table, or what --csv,
/// --json and --samples ask for. With --from what was then: each second is kept for an hour, each minute for 30 days.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only things of this kind; may be given several times. Policies and flows of QoS are shown only if asked for.
    #[arg(long, value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Only things whose names match; `*` stands for anything. `_Total` is the sum of all of a kind.
    #[arg(long, value_name = "PATTERN")]
    object: Option<String>,
    /// Seconds from one sample to the next.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    /// End after so many samples.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Comma-separated, with the header that typeperf and Get-Counter write; the time is UTC. The columns are the things that
    /// are there at the start.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Look back: from this moment on. 90s, 15m, 2h or 3d for so long ago, 13:45 for today, or 2026-11-27 13:45:10; in UTC.
    #[arg(long, value_name = "WHEN", value_parser = when::parse, conflicts_with_all = ["interval", "samples"])]
    from: Option<When>,
    /// Until this moment.
    #[arg(long, value_name = "WHEN", value_parser = when::parse, requires = "from", default_value = "now")]
    to: When,
    /// Seconds of a step of the past; if not given as many steps as fit a chart.
    #[arg(long, value_name = "SECONDS", requires = "from", value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
    step: Option<u64>,
    /// Lines of the table at most.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Session,
    Share,
    Lun,
    Volume,
    Space,
    Disk,
    Processor,
    Pool,
    Policy,
    Flow,
}

impl Kind {
    fn is(self, kind: CounterKind) -> bool {
        match kind {
            CounterKind::SmbSession | CounterKind::IscsiSession => self == Self::Session,
            CounterKind::Share => self == Self::Share,
            CounterKind::Lun => self == Self::Lun,
            CounterKind::Volume => self == Self::Volume,
            CounterKind::Space => self == Self::Space,
            CounterKind::Disk => self == Self::Disk,
            CounterKind::Processor => self == Self::Processor,
            CounterKind::Pool => self == Self::Pool,
            CounterKind::QosPolicy => self == Self::Policy,
            CounterKind::QosFlow => self == Self::Flow,
        }
    }

    fn is_of_qos(self) -> bool {
        self.is(CounterKind::QosPolicy) || self.is(CounterKind::QosFlow)
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (MIN_INTERVAL_SECONDS..=MAX_INTERVAL_SECONDS).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("seconds from {MIN_INTERVAL_SECONDS} to {MAX_INTERVAL_SECONDS} are needed")),
    }
}

/// What one look gave.
struct Sample {
    /// Nanoseconds since 1970.
    wall_ns: u64,
    node: String,
    /// Seconds that the rates are over; 0 when there are none.
    seconds: f64,
    rates: Vec<Rates>,
    /// Why there are no rates.
    problem: Option<String>,
}

impl Args {
    fn wants(&self, object: &ObjectCounters) -> bool {
        self.kind.is_empty() || self.kind.iter().any(|kind| kind.is(object.kind))
    }

    /// Policies and flows are many, and to describe them is the work of a node that has thousands: only who asks for them has them. What they do
    /// their LUNs and shares do, too.
    fn wants_flows(&self) -> bool {
        self.kind.iter().any(|kind| kind.is_of_qos())
    }

    fn wants_name(&self, name: &str) -> bool {
        self.object.as_ref().is_none_or(|pattern| name_matches(pattern, name))
    }

    async fn look(&self, context: &Context) -> Result<Counters, ClientError> {
        let question = if self.wants_flows() { "/counters?flows=true" } else { "/counters" };
        let mut counters: Counters = context.client.get(question).await?;
        counters.items.retain(|object| self.wants(object));
        Ok(counters)
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> CliResult {
    let clock = SystemClock::new();
    if let Some(from) = args.from {
        let span = past::Span { from, to: args.to, step: args.step };
        return past::run(&args, &span, clock.wall().0 / 1_000_000_000, context).await;
    }
    let live = std::io::stdout().is_terminal() && !args.csv && !context.json;
    let once = !live && !args.csv && !context.json;
    let samples = args.samples.or(once.then_some(1));
    let first = args.look(context).await?;
    let columns = args.csv.then(|| csv::Columns::of(&first, |name| args.wants_name(name)));
    if let Some(columns) = &columns {
        if columns.is_empty() {
            return Err(CliError::here(
                "nothing that is counted matches --kind and --object: there would be no column. `holdfast perf` shows what there is.",
            ));
        }
        outln!("{}", columns.header());
    }
    let mut node = first.node.clone();
    let mut before = Some(first);
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first one is at once.
    ticks.tick().await;
    let mut taken = 0;
    while samples.is_none_or(|samples| taken < samples) {
        ticks.tick().await;
        taken += 1;
        let look = args.look(context).await;
        let mut sample = Sample {
            wall_ns: clock.wall().0,
            node: node.clone(),
            seconds: 0.0,
            rates: Vec::new(),
            problem: None,
        };
        match (look, before.take()) {
            (Ok(now), Some(earlier)) => {
                match between(&earlier, &now) {
                    Some((seconds, mut rates)) => {
                        // Sums are of all things of a kind, whichever of them are shown.
                        rates.extend(totals(&rates));
                        rates.retain(|rates| args.wants_name(&rates.name));
                        (sample.seconds, sample.rates) = (seconds, rates);
                    }
                    None => sample.problem = Some("the node has started anew".to_owned()),
                }
                node.clone_from(&now.node);
                before = Some(now);
            }
            (Ok(now), None) => {
                sample.problem = Some("the node answers again".to_owned());
                before = Some(now);
            }
            // A node that restarts is worth waiting for; rates begin anew then.
            (Err(error), _) => sample.problem = Some(error.to_string()),
        }
        match &columns {
            Some(columns) => outln!("{}", columns.row(sample.wall_ns, &sample.rates)),
            None if context.json => outln!("{}", as_json(&sample)),
            None => view::show(&sample, taken, args.top, live),
        }
    }
    Ok(())
}

/// A sample in one line.
fn as_json(sample: &Sample) -> serde_json::Value {
    let object = |rates: &Rates| {
        let counters = names::counters(rates.kind).iter();
        let values: serde_json::Map<_, _> =
            counters.map(|(name, value)| ((*name).to_owned(), json!(value(rates)))).collect();
        json!({ "kind": rates.kind, "set": names::set(rates.kind), "name": rates.name, "counters": values })
    };
    json!({
        "time_unix_ms": sample.wall_ns / 1_000_000,
        "node": sample.node,
        "seconds": sample.seconds,
        "problem": sample.problem,
        "items": sample.rates.iter().map(object).collect::<Vec<_>>(),
    })
}
