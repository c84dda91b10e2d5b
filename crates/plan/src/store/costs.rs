//! What runs cost, read from the index: it changes in one step with the journals, so that no crash can make it count a
//! run twice or not at all.
//!
//! What is damaged of one run is in nobody else's way. A row that cannot be read says nothing of whose run it is, and
//! counts to nobody. A run whose plan cannot be read cannot be gone on with and calls nothing more, so that it counts
//! with what its row says it has cost.

use macp_ledger::{Filter, Head, Store};
use macp_plan_core::cost;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::RunMode;
use serde::Deserialize;

use super::documents::{PLANS, damaged, decode};
use super::error::StoreError;
use super::run_id;
use super::summary::{Status, Summary};

/// Index rows read at once.
const ROWS_AT_ONCE: usize = 1_024;

/// What a run counts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// It has ended, and cost so many microcents.
    Spent(u64),
    /// It is at work, and may still cost so many microcents in all.
    AtWork(u64),
}

/// What is read of a plan.
#[derive(Deserialize)]
struct Budgeted {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    budget_cents: u64,
}

/// Goes through the runs that were started here at or after a time. Ids sort by time, newest first, so that older runs
/// are not read. What a run that was imported cost was paid where it ran, and a full replay is booked to nobody (AOS-90).
pub(crate) fn since(store: &dyn Store, from_ms: u64, mut each: impl FnMut(&Summary, Cost)) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let heads = store.list(after.as_deref(), ROWS_AT_ONCE, Filter::All)?;
        for head in &heads {
            if run_id::started_at_ms(&head.session_id).is_some_and(|started| started < from_ms) {
                return Ok(());
            }
            let Some(summary) = readable(head) else { continue };
            let elsewhere = summary.imported || summary.mode == RunMode::FullReplay;
            if elsewhere || summary.started_at_ms < from_ms {
                continue;
            }
            let cost = match summary.status {
                Status::Running => Cost::AtWork(at_most(store, &summary)?),
                _ => Cost::Spent(summary.cost_microcents),
            };
            each(&summary, cost);
        }
        match heads.last() {
            Some(last) if heads.len() == ROWS_AT_ONCE => after = Some(last.session_id.to_string()),
            _ => return Ok(()),
        }
    }
}

fn readable(head: &Head) -> Option<Summary> {
    match Summary::of_head(head) {
        Ok(summary) => Some(summary),
        Err(error) => {
            let run = &*head.session_id;
            tracing::warn!(run, %error, "the index row of a run cannot be read, so that what it cost counts to no agent");
            None
        }
    }
}

/// What a run at work may cost, in microcents.
fn at_most(store: &dyn Store, run: &Summary) -> Result<u64, StoreError> {
    match budget_cents(store, &run.plan_hash) {
        Ok(cents) => Ok(cost::microcents(cents)),
        Err(error @ StoreError::Damaged { .. }) => {
            let run_id = &*run.run_id;
            tracing::warn!(run = run_id, %error, "the plan of a run cannot be read, so that its budget does not count");
            Ok(run.cost_microcents)
        }
        // The store itself fails, and then nobody's sums can be had.
        Err(error) => Err(error),
    }
}

fn budget_cents(store: &dyn Store, hash: &Digest) -> Result<u64, StoreError> {
    let bytes = store.document(PLANS, hash.as_str())?;
    let bytes = bytes.ok_or_else(|| damaged(PLANS, hash.as_str(), "it is not there, but a run of it is".to_owned()))?;
    let plan: Budgeted = decode(PLANS, hash.as_str(), &bytes)?;
    Ok(plan.context.budget_cents)
}
