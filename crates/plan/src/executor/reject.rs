//! A run that is rejected before anybody is at work on it: whoever knows that its plan may not run puts that down, and
//! the journal has its whole life at once.

use std::sync::Arc;

use macp_plan_core::journal::{Admission, Body};
use macp_plan_core::machine::{Machine, Next, Pinned};

use super::{Executor, Start, StartError, Started};
use crate::store::JournalError;

impl Executor {
    /// Writes down a run that may not begin, with why. It has called nothing, holds nothing and takes no place, and once
    /// this returns it has ended. Under a name that was chosen before, so that it is written once.
    pub async fn reject_as(&self, run_id: String, start: Start, admission: Admission) -> Result<Started, StartError> {
        let shared = &self.shared;
        if shared.is_stopping() {
            return Err(StartError::Stopping);
        }
        if shared.runs.summary(&run_id).await?.is_some() {
            return Ok(Started { run_id, existing: true });
        }
        shared.runs.plans().keep(start.plan.value.clone()).await?;
        let first = shared.first(&run_id, &start, None);
        let mut machine = Machine::new(Arc::new(start.plan), shared.catalog(), Arc::new(Pinned), first.clone());
        let mut bodies = vec![Body::RunStarted(Box::new(first)), Body::Admission(admission)];
        for body in &bodies {
            machine.apply(body, None)?;
        }
        while let Next::Decide(body) = machine.next() {
            machine.apply(&body, None)?;
            bodies.push(*body);
        }
        match shared.runs.create(bodies).await {
            Ok(_) => {
                if let Some(finished) = machine.finished() {
                    shared.observer.run_finished(machine.start(), finished);
                }
                Ok(Started { run_id, existing: false })
            }
            Err(JournalError::Exists(run_id)) => Ok(Started { run_id, existing: true }),
            Err(error) => Err(error.into()),
        }
    }
}
