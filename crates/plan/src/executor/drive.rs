//! Drives one run: the loop around the decision core.
//!
//! Entries are collected and written together, as late as the promise allows: everything decided so far is durable
//! before a call goes out and before a wait begins. A step that succeeds at once so costs one write.

mod attempt;
mod boundary;
mod claim;
mod memory;
mod question;
mod room;
mod spans;
mod told;
mod write;

use std::sync::Arc;

use macp_plan_core::journal::{Body, Output};
use macp_plan_core::machine::{Machine, Next, OutOfPlace, Size};
use tokio::sync::watch;
use tokio::time::Instant;

use super::control::Control;
use super::limiter::Permit;
use super::recovery::Recovered;
use super::reuse::Reuse;
use super::{Shared, Stopping};
use crate::memory::Claim;
use crate::patience::Patience;
use crate::store::{ClaimRequest, Done, Journal, JournalError, StoreError};
use boundary::Wait;
use question::Asked;
use room::Room;
use spans::Spans;
use told::Told;

pub(super) use claim::scope;
pub(super) use memory::{Inline, inline};
pub(super) use spans::of_run as run_span;

/// Entries written together at most, so that a plan of free steps does not collect without end.
const PENDING_MAX: usize = 256;

/// Why a run is not driven on, although it has not ended.
#[derive(Debug)]
pub(super) enum Broken {
    /// The executor stops; the journal says where to go on.
    Stopping,
    Journal(JournalError),
}

impl<E: Into<JournalError>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Journal(error.into())
    }
}

/// An entry of the machine's own that does not fit it.
fn invalid(error: OutOfPlace) -> JournalError {
    JournalError::Invalid(error.to_string())
}

type Driven<T> = Result<T, Broken>;

pub(super) struct Drive<'x> {
    shared: &'x Shared,
    machine: Machine,
    journal: Journal,
    /// Entries the machine has taken and the journal has not.
    pending: Vec<Body>,
    control: watch::Receiver<Control>,
    stopping: watch::Receiver<Stopping>,
    /// After which no further attempt begins.
    deadline: Option<Instant>,
    /// The call that is due may have been made by an earlier process, and must not be repeated.
    in_doubt: bool,
    wait: Wait,
    permit: Option<Permit>,
    /// The claim of the step under way.
    claim: Option<ClaimRequest>,
    /// What became of claims, to be said once the journal has it.
    settled: Vec<(ClaimRequest, Option<Done>)>,
    reuse: Option<Reuse>,
    /// Between looks at what keeps the run waiting.
    patience: Patience,
    told: Told,
    /// What the step under way has given.
    output: Output,
    spans: Spans,
    room: Room,
    /// What the run has reserved of the memory of all.
    memory: Arc<Claim>,
    inline: Inline,
}

impl<'x> Drive<'x> {
    /// A run that was just created.
    pub(super) fn begun(
        shared: &'x Shared,
        machine: Machine,
        journal: Journal,
        control: watch::Receiver<Control>,
    ) -> Self {
        let deadline = boundary::deadline(&machine, 0);
        let memory = memory::claim(shared, journal.run_id(), &machine.plan().plan.agent_id);
        Self {
            shared,
            machine,
            journal,
            pending: Vec::new(),
            control,
            stopping: shared.stopping.subscribe(),
            deadline,
            in_doubt: false,
            wait: Wait::None,
            permit: None,
            claim: None,
            settled: Vec::new(),
            reuse: None,
            patience: Patience::default(),
            told: Told::default(),
            output: Output::default(),
            spans: Spans::default(),
            room: Room(Some(0)),
            memory,
            inline: Inline::new(),
        }
    }

    /// A run that an earlier process was at work on, or an earlier task of this one.
    pub(super) fn recovered(
        shared: &'x Shared,
        recovered: Recovered,
        journal: Journal,
        control: watch::Receiver<Control>,
    ) -> Self {
        let Recovered { machine, due_unix_ms, claim, inline, .. } = recovered;
        // Time without a process can only be told by the clock on the wall.
        let spent_ms = shared.runs.now_ms().saturating_sub(journal.summary().started_at_ms);
        let deadline = boundary::deadline(&machine, spent_ms);
        let (in_doubt, wait) = (machine.in_doubt(), due_unix_ms.map_or(Wait::None, Wait::Due));
        let spans = machine.current().map(Spans::resumed).unwrap_or_default();
        Self {
            deadline,
            in_doubt,
            wait,
            claim,
            spans,
            room: Room(None),
            inline,
            ..Self::begun(shared, machine, journal, control)
        }
    }

    /// Drives the run until it has ended.
    pub(super) async fn run(mut self) -> Driven<()> {
        loop {
            self.observe()?;
            if self.machine.boundary() {
                self.heed().await?;
            }
            let asked = match self.machine.next() {
                Next::Decide(body) => {
                    self.note(*body)?;
                    // Never between a verdict and the intents it leads to, so that a journal which ends without
                    // intents tells of a call without effects.
                    if self.pending.len() >= PENDING_MAX && self.machine.boundary() {
                        self.flush().await?;
                    }
                    continue;
                }
                Next::Ask(question) => Asked::of(question, &self.machine),
                Next::Finished => {
                    self.flush().await?;
                    if let Some(finished) = self.machine.finished() {
                        self.shared.spent(self.journal.run_id(), finished.total_cost_microcents).await;
                        self.shared.observer.run_finished(self.machine.start(), finished);
                    }
                    return Ok(());
                }
            };
            // An answer that does not come leaves the question open: what stands in its way is heeded at the top.
            match asked {
                Asked::Admission => self.admit().await?,
                Asked::Limiter { step_id, attempt, wait } => {
                    if self.wait(wait).await? && self.reserve_call().await? {
                        self.limit(step_id, attempt).await?;
                    }
                }
                Asked::Dedupe { step_id, effect_key, request_digest } => {
                    if self.reserve_call().await? {
                        self.dedupe(step_id, effect_key, request_digest).await?;
                    }
                }
                Asked::Outputs => self.supply().await?,
                Asked::Dispatch { step_id, attempt, dispatch } => self.dispatch(step_id, attempt, dispatch).await?,
            }
        }
    }

    /// Takes an entry as it is: the machine moves on, and the journal gets it with the next write.
    fn note(&mut self, body: Body) -> Driven<()> {
        self.note_with(body, None)
    }

    /// The same for an entry that names an output kept apart.
    fn note_with(&mut self, body: Body, apart: Option<Size>) -> Driven<()> {
        self.machine.apply_sized(&body, apart).map_err(invalid)?;
        self.locate(&body, self.journal.next_seq() + self.pending.len() as u64);
        self.spans.note(&body);
        let observed = match &body {
            Body::StepFinished(finished) => {
                self.shared.observer.step_finished(self.machine.start(), finished);
                self.permit = None;
                self.memory.release();
                self.settle(finished);
                Some(std::mem::take(&mut self.told).observed(&finished.step_id, self.shared.runs.now_ms()))
            }
            _ => None,
        };
        self.pending.push(body);
        self.pending.extend(observed);
        Ok(())
    }

    /// Says that the store keeps the run waiting, and waits a little; whoever has something to say is heard at once.
    async fn trouble(&mut self, error: &StoreError, doing: &str) {
        tracing::error!(%error, doing, "the run waits for its store");
        self.held_up(Some(error.to_string()));
        let until = Instant::now() + self.patience.next();
        self.rest(Some(until)).await;
    }
}
