//! Runs seeds and says how to run a failing one again.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use macp_engine::{Answer, Error};
use macp_kernel::Settled;
use macp_ledger::AppendError;

use crate::Bug;
use crate::healing::heal;
use crate::properties::{Property, Violation};
use crate::truth::{Cause, ControlKind};
use crate::world::World;

/// How to run seeds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Steps of live traffic before faults end.
    pub steps: u64,
    pub bug: Option<Bug>,
    /// Print every event to stderr.
    pub echo: bool,
}

/// Steps of live traffic where nobody says otherwise.
pub const STEPS_DEFAULT: u64 = 2_000;

impl Default for Settings {
    fn default() -> Self {
        Settings { steps: STEPS_DEFAULT, bug: None, echo: false }
    }
}

/// What happened in a run, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Equal for runs in which the same things happened in the same order.
    pub transcript: u64,
    pub sessions: u64,
    pub entries: u64,
    /// Durable suspensions and resumptions.
    pub pauses: u64,
    /// Durable messages that nobody sent.
    pub synthetic: u64,
    /// Sessions whose pause took too long.
    pub overslept: u64,
    pub accepted: u64,
    pub duplicates: u64,
    pub refused: u64,
    pub reads: u64,
    pub errors: u64,
    pub appends: u64,
    pub append_failures: u64,
    pub append_conflicts: u64,
    pub loads: u64,
    pub crashes: u64,
    /// Sessions that grew in a crash, by appends that had been reported as failed.
    pub revived: u64,
}

impl Summary {
    pub(crate) fn count_answer(&mut self, result: &Result<Answer, Error>) {
        let counter = match result {
            Err(_) => &mut self.errors,
            Ok(Answer::Read(_)) => &mut self.reads,
            Ok(Answer::Verdict(reply)) => match reply.settled {
                Settled::Accepted { .. } => &mut self.accepted,
                Settled::Duplicate { .. } | Settled::Unchanged => &mut self.duplicates,
                Settled::Rejected(_) => &mut self.refused,
            },
        };
        *counter += 1;
    }

    pub(crate) fn count_append<T>(&mut self, result: &Result<T, AppendError>) {
        self.appends += 1;
        match result {
            Ok(_) => {}
            Err(AppendError::Conflict { .. }) => self.append_conflicts += 1,
            Err(AppendError::Failed(_)) => self.append_failures += 1,
        }
    }

    /// Adds another run; transcripts are combined so that the order of runs does not matter.
    pub fn add(&mut self, other: &Summary) {
        self.transcript ^= other.transcript;
        self.sessions += other.sessions;
        self.entries += other.entries;
        self.pauses += other.pauses;
        self.synthetic += other.synthetic;
        self.overslept += other.overslept;
        self.accepted += other.accepted;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.reads += other.reads;
        self.errors += other.errors;
        self.appends += other.appends;
        self.append_failures += other.append_failures;
        self.append_conflicts += other.append_conflicts;
        self.loads += other.loads;
        self.crashes += other.crashes;
        self.revived += other.revived;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sessions, {} entries, of them {} pauses, {} synthetic, {} overslept; answers: {} accepted, {} duplicate, {} refused, {} reads, {} errors; \
             {} appends, {} failed, {} conflicts; {} loads, {} crashes, {} revived; transcript {:016x}",
            self.sessions,
            self.entries,
            self.pauses,
            self.synthetic,
            self.overslept,
            self.accepted,
            self.duplicates,
            self.refused,
            self.reads,
            self.errors,
            self.appends,
            self.append_failures,
            self.append_conflicts,
            self.loads,
            self.crashes,
            self.revived,
            self.transcript,
        )
    }
}

/// A seed that broke a property.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "seed {seed} at step {step}: {violation}\nreproduce with: \
     cargo run --release -p macp-sim -- --seeds 1 --start {seed} --steps {steps}{bug} --echo",
    steps = settings.steps,
    bug = settings.bug.map(|bug| format!(" --bug {bug}")).unwrap_or_default()
)]
pub struct Failure {
    pub seed: u64,
    pub step: u64,
    pub violation: Violation,
    pub settings: Settings,
}

/// Runs one seed to its end, or to the first property that does not hold.
pub fn run(seed: u64, settings: Settings) -> Result<Summary, Box<Failure>> {
    let mut world = World::new(seed, settings.bug, settings.echo);
    // The world is given up after a panic, so nothing half-changed is looked at.
    let ended = catch_unwind(AssertUnwindSafe(|| live(&mut world, settings.steps)));
    let outcome = ended.unwrap_or_else(|panic| Err(Property::Panic.violated(panic_text(&*panic))));
    match outcome {
        Ok(()) => {
            let mut summary = world.summary;
            summary.transcript = world.transcript.digest();
            summary.sessions = world.oracle.truth.sessions.len() as u64;
            let truth = &world.oracle.truth;
            summary.entries = truth.entries();
            summary.pauses = truth.count(|fact| {
                matches!(fact.cause, Cause::Control { kind: ControlKind::Suspend | ControlKind::Resume, .. })
            });
            summary.synthetic = truth.count(|fact| fact.cause == Cause::Message { synthetic: true });
            summary.overslept = truth.count(|fact| fact.cause == Cause::Expiry { paused: true });
            Ok(summary)
        }
        Err(violation) => Err(Box::new(Failure { seed, step: world.step, violation, settings })),
    }
}

fn live(world: &mut World, steps: u64) -> Result<(), Violation> {
    for _ in 0..steps {
        world.live_step()?;
    }
    heal(world)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text").to_owned()
}
