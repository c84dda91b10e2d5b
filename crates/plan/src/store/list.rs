//! Lists of runs, newest first. Ids made by [`RunId`](super::RunId) sort that way, so a page is one short read of the
//! index, and stays one however many runs there are. A run that was imported under an id of another make stands where
//! its id sorts.
//!
//! A run whose row cannot be read is in no list, and the log says so: it is not to hide those behind it. Whoever asks for
//! it by its id hears what is wrong with it.

use macp_ledger::{Filter, Store};
use macp_plan_core::journal::RunMode;

use super::error::StoreError;
use super::summary::{Status, Summary};

/// Longest page.
pub const PAGE_RUNS_MAX: usize = 1_000;
/// Index rows read at once.
const ROWS_AT_ONCE: usize = 256;
/// Most index rows looked at for one page: a filter that hardly anything passes gives short pages, not long waits.
const ROWS_PER_PAGE_MAX: usize = 4_096;

/// Which runs to list; what is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub session_id: Option<String>,
    pub plan_id: Option<String>,
    pub agent_id: Option<String>,
    pub status: Option<Status>,
    pub final_code: Option<String>,
    pub mode: Option<RunMode>,
    /// Only runs that are a replay or a retry of this one.
    pub of_run_id: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub runs: Vec<Summary>,
    /// Where the next page begins, none at the end. A page may be short, even empty, and still have a next one.
    pub next: Option<String>,
}

impl Query {
    fn admits(&self, summary: &Summary) -> bool {
        let matches =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|wanted| found == Some(wanted));
        matches(&self.session_id, summary.session_id.as_deref())
            && matches(&self.plan_id, Some(&summary.plan_id))
            && matches(&self.agent_id, Some(&summary.agent_id))
            && matches(&self.final_code, summary.final_code.as_deref())
            && self.status.is_none_or(|status| status == summary.status)
            && self.mode.is_none_or(|mode| mode == summary.mode)
            && (matches(&self.of_run_id, summary.original_run_id.as_deref())
                || matches(&self.of_run_id, summary.parent_run_id.as_deref()))
    }
}

/// The runs after a cursor that the query admits: at most `limit` of them.
pub fn list(store: &dyn Store, query: &Query, after: Option<&str>, limit: usize) -> Result<Page, StoreError> {
    let limit = limit.clamp(1, PAGE_RUNS_MAX);
    // Running runs have an index of their own, and are few.
    let filter = if query.status == Some(Status::Running) { Filter::Open } else { Filter::All };
    let mut runs = Vec::new();
    let mut next = after.map(str::to_owned);
    let mut rows = 0;
    while rows < ROWS_PER_PAGE_MAX {
        // One row more than wanted shows whether the list goes on.
        let wanted = (limit - runs.len() + 1).min(ROWS_AT_ONCE);
        let heads = store.list(next.as_deref(), wanted, filter)?;
        let is_last = heads.len() < wanted;
        rows += heads.len();
        for head in heads {
            if runs.len() == limit {
                return Ok(Page { runs, next });
            }
            next = Some(head.session_id.to_string());
            match Summary::of_head(&head) {
                Ok(summary) if query.admits(&summary) => runs.push(summary),
                Ok(_not_asked_for) => {}
                Err(error) => {
                    let run = &*head.session_id;
                    tracing::warn!(run, %error, "the index row of a run cannot be read, so that it is in no list");
                }
            }
        }
        if is_last {
            return Ok(Page { runs, next: None });
        }
    }
    Ok(Page { runs, next })
}
