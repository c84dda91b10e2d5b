//! A mock replay on this side, of a run that is at hand. There is no client in it that could call anything.

use std::sync::Arc;

use macp_plan::store::RunId;
use macp_plan_core::compare::Report;
use macp_plan_core::replay::{Mock, Options, WhatIf, mock_replay};
use macp_plan_core::skill::Catalog;

use super::source::Recorded;
use crate::time::now_ms;

pub(super) fn mock(recorded: &Recorded, what_if: WhatIf, catalog: &Arc<dyn Catalog>) -> anyhow::Result<Report> {
    let replay_run_id = RunId::new(u64::try_from(now_ms()).unwrap_or_default()).into_string();
    let options = Options { what_if, ..Options::new(replay_run_id) };
    let body = |digest: &_| recorded.body(digest);
    let Mock { report, .. } = mock_replay(&recorded.plan, &recorded.journal, &body, catalog, &options)?;
    Ok(report)
}
