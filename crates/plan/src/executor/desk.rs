//! Which runs are at work here: one entry per run, from before it is created until its task has ended.
//!
//! Everything that must be exact under concurrency is decided here, under one lock: that a run has one task, how many
//! runs there may be, and how many an agent may have.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::watch;

use super::control::Control;
use crate::result::{AtWork as AtWorkResult, Doing, RunResult, stamp};

#[derive(Debug, Default)]
pub(super) struct Desk {
    runs: Mutex<BTreeMap<String, AtWork>>,
    /// Why runs were given up that had not ended, by their ids.
    stuck: Mutex<BTreeMap<String, String>>,
    /// Why runs must not go on by themselves, by their ids. None of them is forgotten while the process lives.
    held: Mutex<BTreeMap<String, String>>,
    /// Runs of an earlier process may be gone on with: what is known of them elsewhere has been looked at.
    opened: AtomicBool,
    /// Hears of every run that is created or goes.
    changed: watch::Sender<()>,
    /// Whoever lets a run wait or go on: what is kept of that and what the run is told must change together.
    pub(super) pausing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct AtWork {
    agent_id: String,
    /// It has passed admission, and counts among its agent's.
    admitted: bool,
    /// Since when a call of it is out, in time on the wall.
    calling_since_ms: Option<u64>,
    /// Why what came of it cannot be written down.
    held_up: Option<String>,
    /// Since when it waits for memory, in time on the wall.
    awaits_memory_since_ms: Option<u64>,
    control: watch::Sender<Control>,
}

/// A run's place; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    desk: Arc<Desk>,
    run_id: String,
    control: watch::Receiver<Control>,
}

/// Runs of which it is remembered why they were given up; of more than that the log tells it.
const STUCK_MAX: usize = 1_024;

/// As many runs are at work as there may be.
#[derive(Debug)]
pub(super) struct Full;

impl Desk {
    /// A place for a new run; none if it has one already.
    pub(super) fn enter(self: &Arc<Self>, run_id: &str, agent_id: &str, most: usize) -> Result<Option<Place>, Full> {
        self.take(run_id, agent_id, false, most)
    }

    /// A place for a run that was at work before; there is always room, since it was let in once.
    pub(super) fn enter_again(self: &Arc<Self>, run_id: &str, agent_id: &str) -> Option<Place> {
        self.take(run_id, agent_id, true, usize::MAX).ok().flatten()
    }

    fn take(
        self: &Arc<Self>,
        run_id: &str,
        agent_id: &str,
        admitted: bool,
        most: usize,
    ) -> Result<Option<Place>, Full> {
        let mut runs = self.runs();
        if runs.contains_key(run_id) {
            return Ok(None);
        }
        if runs.len() >= most {
            return Err(Full);
        }
        self.given_up().remove(run_id);
        let (sender, control) = watch::channel(Control::default());
        runs.insert(
            run_id.to_owned(),
            AtWork {
                agent_id: agent_id.to_owned(),
                admitted,
                calling_since_ms: None,
                held_up: None,
                awaits_memory_since_ms: None,
                control: sender,
            },
        );
        Ok(Some(Place { desk: Arc::clone(self), run_id: run_id.to_owned(), control }))
    }

    /// Lets a run of an agent begin, unless as many others of that agent have as may; says how many those are.
    pub(super) fn admit(&self, run_id: &str, agent_id: &str, most: usize) -> (bool, usize) {
        let mut runs = self.runs();
        let others = runs.iter().filter(|(id, run)| run.admitted && run.agent_id == agent_id && *id != run_id).count();
        let admitted = others < most;
        if let Some(run) = runs.get_mut(run_id) {
            run.admitted = admitted;
        }
        (admitted, others)
    }

    /// Takes the admission of a run back: something else was in its way.
    pub(super) fn withdraw(&self, run_id: &str) {
        if let Some(run) = self.runs().get_mut(run_id) {
            run.admitted = false;
        }
    }

    /// Whether a run is here and has not passed admission.
    pub(super) fn awaits_admission(&self, run_id: &str) -> bool {
        self.runs().get(run_id).is_some_and(|run| !run.admitted)
    }

    /// Tells a run something; says whether it hears, which it does not if nobody is at work on it.
    pub(super) fn tell(&self, run_id: &str, change: impl FnOnce(&mut Control)) -> bool {
        self.runs().get(run_id).map(|run| run.control.send_modify(change)).is_some()
    }

    /// A call of a run goes out, or has come back.
    pub(super) fn calls(&self, run_id: &str, since_ms: Option<u64>) {
        if let Some(run) = self.runs().get_mut(run_id) {
            run.calling_since_ms = since_ms;
        }
    }

    /// A run begins to wait for memory, or waits no longer.
    pub(super) fn awaits_memory(&self, run_id: &str, since_ms: Option<u64>) {
        if let Some(run) = self.runs().get_mut(run_id) {
            run.awaits_memory_since_ms = since_ms;
        }
    }

    /// What a run has to say cannot be written down, or can again.
    pub(super) fn hold_up(&self, run_id: &str, why: Option<String>) {
        if let Some(run) = self.runs().get_mut(run_id) {
            run.held_up = why;
        }
    }

    /// Puts into a result what only whoever is at work on the run knows.
    pub(super) fn complete(&self, run_id: &str, result: &mut RunResult) {
        let runs = self.runs();
        let Some(run) = runs.get(run_id) else { return };
        let control = run.control.borrow();
        result.held_up.clone_from(&run.held_up);
        if let Some(since_ms) = run.awaits_memory_since_ms {
            // It may wait before its next step has begun, to read the outputs that the step refers to.
            let next = result.ahead.first().map(|step_id| AtWorkResult::next(step_id));
            let at_work = result.at_work.take().or(next);
            result.at_work = at_work.map(|at_work| at_work.awaiting_memory(stamp(since_ms)));
            return;
        }
        let Some(at_work) = &mut result.at_work else { return };
        match at_work.doing {
            Doing::Calling => at_work.since = run.calling_since_ms.map(stamp),
            _ if control.paused => at_work.doing = Doing::Paused,
            Doing::Waiting | Doing::Preparing | Doing::Paused | Doing::AwaitingMemory => {}
        }
    }

    /// What is to be put into a run's journal, once.
    pub(super) fn take_facts(&self, run_id: &str) -> Vec<Map<String, Value>> {
        let mut taken = Vec::new();
        self.tell(run_id, |control| taken = std::mem::take(&mut control.facts));
        taken
    }

    /// Whether anybody is at work on a run.
    pub(super) fn has(&self, run_id: &str) -> bool {
        self.runs().contains_key(run_id)
    }

    /// Why a run was given up or is held, if nobody has been at work on it since.
    pub(super) fn why_stuck(&self, run_id: &str) -> Option<String> {
        self.given_up().get(run_id).or(self.held().get(run_id)).cloned()
    }

    /// Nobody goes on with the run, unless somebody tells it to stop.
    pub(super) fn hold(&self, run_id: &str, why: String) {
        self.held().insert(run_id.to_owned(), why);
    }

    /// From now on runs of an earlier process may be gone on with.
    pub(super) fn open(&self) {
        self.opened.store(true, Ordering::SeqCst);
    }

    /// Whether a run that nobody is at work on may be gone on with: it was at work here, or what is known of it elsewhere
    /// has been looked at.
    pub(super) fn may_go_on(&self, run_id: &str) -> bool {
        self.opened.load(Ordering::SeqCst) || self.given_up().contains_key(run_id)
    }

    pub(super) fn why_held(&self, run_id: &str) -> Option<String> {
        self.held().get(run_id).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.runs().len()
    }

    /// Hears of every run that is created or goes from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until a run is not at work.
    pub(super) async fn left(&self, run_id: &str) {
        let mut changes = self.changes();
        while self.has(run_id) && changes.changed().await.is_ok() {}
    }

    /// Waits until no run is at work.
    pub(super) async fn empty(&self) {
        let mut changes = self.changes();
        while self.len() > 0 {
            // The sender lives as long as the desk.
            let _ = changes.changed().await;
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given_up(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Nothing that panics happens under the lock.
    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, AtWork>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The run exists now: whoever waits for that is told.
    pub(super) fn created(&self) {
        self.desk.changed.send_replace(());
    }

    /// The run is given up, although it has not ended: says why to whoever asks.
    pub(super) fn stuck(&self, why: String) {
        let mut given_up = self.desk.given_up();
        if given_up.len() < STUCK_MAX {
            given_up.insert(self.run_id.clone(), why);
        }
    }

    /// What the run is told.
    pub(super) fn control(&self) -> watch::Receiver<Control> {
        self.control.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.desk.runs().remove(&self.run_id);
        self.desk.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_place_and_there_are_so_many() {
        let desk = Arc::new(Desk::default());
        let first = desk.enter("r1", "a", 2).unwrap().expect("there is room");
        assert!(desk.enter("r1", "a", 2).unwrap().is_none(), "it is at work already");
        let again = desk.enter_again("r2", "a").expect("there is always room for what was at work before");
        assert!(desk.enter("r3", "a", 2).is_err());
        assert!(desk.enter_again("r2", "a").is_none());
        drop(first);
        assert!(desk.enter("r3", "a", 2).unwrap().is_some());
        drop(again);
        assert_eq!(desk.len(), 0);
    }

    #[test]
    fn of_runs_that_begin_together_as_many_are_admitted_as_may_be() {
        let desk = Arc::new(Desk::default());
        let places: Vec<_> =
            (0..4).map(|number| desk.enter(&format!("r{number}"), "a", 10).unwrap().unwrap()).collect();
        let other = desk.enter("other", "b", 10).unwrap().unwrap();
        let admitted = places.iter().filter(|place| desk.admit(place.run_id(), "a", 2).0).count();
        assert_eq!(admitted, 2);
        assert_eq!(desk.admit(other.run_id(), "b", 1), (true, 0), "another agent's runs are not counted");
    }
}
