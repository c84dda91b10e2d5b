//! `macp-sim`: runs seeds of the simulation and prints the first that fails, with the command that runs it again.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use macp_sim::{Bug, Failure, STEPS_DEFAULT, Settings, Summary, run};

/// How often progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Runs engine and ledger under simulated faults, one run per seed.
///
/// Exit codes: 0 every seed passed, 1 a property was violated, 2 usage.
#[derive(Debug, Parser)]
#[command(name = "macp-sim", version)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Steps of live traffic per seed, before faults end and the system must heal.
    #[arg(long, default_value_t = STEPS_DEFAULT)]
    steps: u64,
    /// Plant a bug, to see it found.
    #[arg(long)]
    bug: Option<Bug>,
    /// Seeds run at once; 0 is one per processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Print every event to stderr; runs one seed at a time.
    #[arg(long)]
    echo: bool,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    end: u64,
    total: Mutex<Summary>,
    /// The failure with the lowest seed so far.
    failure: Mutex<Option<Box<Failure>>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let settings = Settings { steps: arguments.steps, bug: arguments.bug, echo: arguments.echo };
    let jobs = match (arguments.echo, arguments.jobs) {
        (true, _) => 1,
        (false, 0) => std::thread::available_parallelism().map_or(1, usize::from),
        (false, jobs) => jobs,
    };
    let end = arguments.start.saturating_add(arguments.seeds);
    let shared = Shared {
        next: AtomicU64::new(arguments.start),
        done: AtomicU64::new(0),
        end,
        total: Mutex::default(),
        failure: Mutex::default(),
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| work(&shared, settings))).collect();
        let mut shown = Instant::now();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if shown.elapsed() >= PROGRESS_EVERY {
                let done = shared.done.load(Ordering::Relaxed);
                let per_second = done as f64 / began.elapsed().as_secs_f64();
                eprintln!("{done} of {} seeds, {per_second:.0} per second", arguments.seeds);
                shown = Instant::now();
            }
        }
    });
    let total = shared.total.into_inner().expect("no worker panicked while counting");
    let failure = shared.failure.into_inner().expect("no worker panicked while reporting");
    let done = shared.done.into_inner();
    println!("{done} seeds passed in {:.1} s: {total}", began.elapsed().as_secs_f64());
    match failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("{failure}");
            ExitCode::from(1)
        }
    }
}

/// Takes seeds until there are no more, or one failed. Seeds are handed out in order and each is finished, so the
/// lowest failing seed is the same however many threads there are.
fn work(shared: &Shared, settings: Settings) {
    loop {
        if shared.failure.lock().expect("no worker panicked while reporting").is_some() {
            return;
        }
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        if seed >= shared.end {
            return;
        }
        match run(seed, settings) {
            Ok(summary) => {
                shared.total.lock().expect("no worker panicked while counting").add(&summary);
                shared.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                let mut first = shared.failure.lock().expect("no worker panicked while reporting");
                if first.as_ref().is_none_or(|first| failure.seed < first.seed) {
                    *first = Some(failure);
                }
            }
        }
    }
}
