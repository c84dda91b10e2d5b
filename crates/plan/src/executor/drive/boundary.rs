//! Between attempts: what the run was told, how long it waits, and when its time is up.

use std::time::Duration;

use macp_plan_core::journal::Body;
use macp_plan_core::machine::Machine;
use macp_wire::informational::Informational;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{Broken, Drive, Driven};
use crate::executor::Stopping;
use crate::executor::recovery::DUE;

/// The wait before the attempt that is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// Not begun.
    None,
    /// Begun before this process was; over at this time on the wall.
    Due(u64),
    Until(Instant),
}

/// When a run's time is up, if so much of it has passed already.
pub(super) fn deadline(machine: &Machine, spent_ms: u64) -> Option<Instant> {
    let left = machine.start().deadline_ms?.saturating_sub(spent_ms);
    // A time beyond what the clock can tell never comes.
    Instant::now().checked_add(Duration::from_millis(left))
}

impl Drive<'_> {
    /// Puts down what the run was told for its journal. That moves nothing on, so it may stand anywhere but at the end.
    pub(super) fn observe(&mut self) -> Driven<()> {
        if self.control.borrow().facts.is_empty() || self.machine.finished().is_some() {
            return Ok(());
        }
        for facts in self.shared.desk.take_facts(self.journal.run_id()) {
            self.note(Body::Observed { step_id: None, facts: Informational::new(facts) })?;
        }
        Ok(())
    }

    /// Heeds what the run was told, and its deadline. A pause lasts until there is something else to heed.
    pub(super) async fn heed(&mut self) -> Driven<()> {
        loop {
            if *self.stopping.borrow_and_update() != Stopping::No {
                self.flush().await?;
                return Err(Broken::Stopping);
            }
            let told = self.control.borrow_and_update().clone();
            if let Some(cancel) = told.cancel {
                return self.note(Body::CancelRequested { by: cancel.by, reason: cancel.reason });
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let limit_ms = self.machine.start().deadline_ms.unwrap_or_default();
                return self.note(Body::DeadlineReached { limit_ms });
            }
            if !told.paused {
                return Ok(());
            }
            self.flush().await?;
            // A place among the calls that are out is of no use to a run that rests; the call takes one again.
            self.permit = None;
            self.rest(None).await;
            self.observe()?;
        }
    }

    /// Waits before an attempt; says whether the wait is over. If not, there is something to heed first.
    pub(super) async fn wait(&mut self, planned: Duration) -> Driven<bool> {
        if planned.is_zero() {
            return Ok(true);
        }
        let now_ms = self.shared.runs.now_ms();
        let until = match self.wait {
            Wait::Until(until) => until,
            // The clock on the wall may have been moved meanwhile; it never makes a wait longer than it was.
            Wait::Due(due_ms) => Instant::now() + Duration::from_millis(due_ms.saturating_sub(now_ms)).min(planned),
            Wait::None => {
                let due_ms = now_ms.saturating_add(u64::try_from(planned.as_millis()).unwrap_or(u64::MAX));
                let facts = Map::from_iter([(DUE.to_owned(), Value::from(due_ms))]);
                self.note(Body::Observed { step_id: None, facts: Informational::new(facts) })?;
                Instant::now() + planned
            }
        };
        self.wait = Wait::Until(until);
        self.flush().await?;
        Ok(self.rest(Some(until)).await)
    }

    /// Rests until a time, or for good; says whether that time came before there was something to heed.
    pub(super) async fn rest(&mut self, until: Option<Instant>) -> bool {
        self.put_down();
        // Elsewhere a deadline that has passed cannot be heeded, and must not keep the run from resting.
        let deadline = self.deadline.filter(|_| self.machine.boundary());
        tokio::select! {
            biased;
            Ok(()) = self.stopping.changed() => false,
            Ok(()) = self.control.changed() => false,
            () = at(deadline) => false,
            () = at(until) => true,
        }
    }
}

pub(super) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
