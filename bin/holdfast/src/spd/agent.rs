//! `holdfast spd agent`, which generates load for a coordinator, and `--agents`, the coordinator.

use std::net::TcpListener;
use std::sync::Arc;

use clap::Parser as _;
use shard_runtime::{Clock, Entropy as _, SystemClock, SystemEntropy};
use spd_engine::{Confirm, Control, EngineError, Preparation, Progress};
use spd_fleet::{Job, Runner, Secret, Watch};
use spd_profile::windows_path::Drives;
use spd_profile::{Profile, Run, TimeSpan};
use spd_report::{Outcome, SpanOutcome, System};

use super::console::Console;
use super::{USAGE, VERSION, VERSION_DATE, said_yes, targets};

/// The variable that has the secret when no file is named.
const SECRET: &str = "HOLDFAST_SPD_SECRET";

/// Generates load for whoever has the same secret: `holdfast spd --agents this-machine ... target`.
#[derive(Debug, clap::Parser)]
#[command(name = "holdfast spd agent", no_binary_name = true)]
struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = format!("0.0.0.0:{}", spd_fleet::PORT))]
    listen: String,
    /// The file that the secret is in, of 16 bytes or more; also HOLDFAST_SPD_SECRET.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// What is there may be written over when the coordinator says --yes, too.
    #[arg(long)]
    yes: bool,
    /// Who logs in to servers; also HOLDFAST_SPD_USER.
    #[arg(long)]
    user: Option<String>,
    /// The file that the password is in; also HOLDFAST_SPD_PASSWORD.
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// Who logs in to the server of a copy's destination, where that is somebody else; also HOLDFAST_SPD_TO_USER.
    #[arg(long, value_name = "USER")]
    to_user: Option<String>,
    /// The file that this one's password is in; also HOLDFAST_SPD_TO_PASSWORD.
    #[arg(long, value_name = "FILE")]
    to_password_file: Option<String>,
    /// The data directory of this machine's node, for holdfast:// targets; also HOLDFAST_SPD_DATA.
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Where drives of Windows paths are; also HOLDFAST_SPD_DRIVES.
    #[arg(long, value_name = "X=/DIRECTORY")]
    drive: Vec<String>,
}

/// Runs the agent until a signal ends it.
pub(super) fn run(words: &[String], yes: bool) -> u8 {
    let words = words.iter().map(|word| if word == "-?" { "--help" } else { word });
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            // Help is an answer, everything else a complaint.
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 };
        }
    };
    let mut drives = Drives::default();
    if let Err(why) = args.drive.iter().try_for_each(|drive| drives.add(drive)) {
        return super::complain(&why, USAGE);
    }
    let secret = match secret(args.secret_file.as_deref()) {
        Ok(secret) => secret,
        Err(why) => return fail(&why),
    };
    let mut run = Run::default();
    (run.user, run.password_file, run.drives, run.data) = (args.user, args.password_file, drives, args.data);
    (run.to_user, run.to_password_file) = (args.to_user, args.to_password_file);
    let listener = match TcpListener::bind(&args.listen) {
        Ok(listener) => listener,
        Err(error) => return fail(&format!("cannot listen on {} (--listen): {error}", args.listen)),
    };
    let address = listener.local_addr().map_or(args.listen, |address| address.to_string());
    let console = Console::new(true, 0);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let machine = Machine { run, may_destroy: args.yes || yes || said_yes(), clock };
    outln!("agent listening on {address}");
    let say = |line: &str| eprintln!("{line}");
    let entropy = &SystemEntropy;
    match spd_fleet::serve(&listener, &secret, (&machine.clock, entropy), &machine, console.stopped(), &say) {
        Ok(()) => 0,
        Err(error) => fail(&format!("the agent cannot listen any longer: {error}")),
    }
}

fn fail(why: &str) -> u8 {
    eprintln!("ERROR: {why}");
    1
}

/// The secret from the file, or from the environment.
fn secret(file: Option<&str>) -> Result<Secret, String> {
    let text = match file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read '{path}' (--secret-file): {error}"))?,
        None => std::env::var(SECRET).map_err(|_| {
            format!("agents and coordinator share a secret: give --secret-file, or set {SECRET}")
        })?,
    };
    Secret::new(&text).map_err(|why| why.0)
}

/// What runs jobs on this machine.
struct Machine {
    /// What the agent was told for itself.
    run: Run,
    may_destroy: bool,
    clock: Arc<dyn Clock>,
}

/// Nobody is asked: coordinator and agent have both agreed to losses, or not.
struct Agreed<'a> {
    yes: bool,
    control: &'a dyn Control,
}

impl Confirm for Agreed<'_> {
    fn may_destroy(&self, _: &str) -> bool {
        self.yes
    }

    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        !self.control.stop()
    }
}

impl Runner for Machine {
    fn system(&self) -> System {
        spd_engine::system(self.clock.as_ref(), VERSION, VERSION_DATE)
    }

    fn run(&self, job: &Job, span: &TimeSpan, control: &dyn Control) -> Result<SpanOutcome, EngineError> {
        let mut span = span.clone();
        spd_engine::prepare_replay(&mut span)?;
        let span = &span;
        let mut run = self.run.clone();
        run.user = run.user.or_else(|| job.user.clone());
        let profile = Profile { spans: vec![span.clone()], ..Profile::default() };
        let places = super::places(&profile, &run).map_err(|why| EngineError(why.0))?.pop();
        let how = Preparation { sparse: job.sparse, verify: job.verify };
        let confirm = Agreed { yes: job.yes && self.may_destroy, control };
        let backend = targets::open(span, &places.unwrap_or_default(), how, &run, &confirm);
        let backend = backend.map_err(|why| {
            let more =
                if job.yes && !self.may_destroy { "; the agent must be started with --yes, too" } else { "" };
            EngineError(format!("{why}{more}"))
        })?;
        let verify = job.verify.then(|| SystemEntropy.next_u64());
        let measured =
            spd_engine::run_span(span, backend.as_ref(), &self.system(), &self.clock, control, verify);
        super::closed(backend.as_ref(), measured)
    }
}

impl Watch for Console {
    fn stop(&self) -> bool {
        Control::stop(self)
    }

    fn progress(&self, progress: &Progress) {
        Control::progress(self, progress);
    }

    fn note(&self, text: &str) {
        self.warn(text);
    }
}

/// Lets the agents of `run` do all of the profile.
pub(super) fn coordinate(
    console: &Console,
    run: &Run,
    clock: &Arc<dyn Clock>,
    profile: &Profile,
) -> (Outcome, Option<EngineError>) {
    let secret = match secret(run.secret_file.as_deref()) {
        Ok(secret) => secret,
        Err(why) => return (Outcome::default(), Some(EngineError(why))),
    };
    let job = Job {
        profile: profile.clone(),
        yes: run.yes,
        sparse: run.sparse,
        verify: run.verify,
        user: run.user.clone(),
    };
    let (outcome, failed) = spd_fleet::run(&run.agents, &secret, (clock, &SystemEntropy), &job, console);
    (outcome, failed.map(|why| EngineError(why.0)))
}
