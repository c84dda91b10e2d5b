//! GetRun, ListRuns, CancelRun and ResolveInDoubt.

use std::collections::BTreeSet;

use macp_ledger::Store;
use macp_plan::result::RunResult;
use macp_plan::session;
use macp_plan::store::{Outcome, Query, Settlement, Status as Standing, Summary};
use macp_wire::plan::v1::{
    CancelRunRequest, CancelRunResponse, EffectOutcome, GetRunResponse, ListRunsRequest, ListRunsResponse,
    ResolveInDoubtRequest, ResolveInDoubtResponse, RunStatus, RunSummary,
};
use tonic::Status;

use super::validate::json;
use super::{Plan, Plans, refusal};
use crate::access::Access;
use crate::history::blocking;
use crate::readers::Turn;
use crate::runtime::{self, page_size};
use crate::status;

pub(super) async fn get(service: &Plan, access: &Access, summary: Summary) -> Result<GetRunResponse, Status> {
    let _turn = service.reader(access).await?;
    let plans = &service.plans;
    let mut result = result(plans, &summary.run_id).await?;
    // Asked again, so that the summary is not older than the result beside it; nor is the result, of a run that ended
    // between the two.
    let newer = plans.runs().summary(&summary.run_id).await.map_err(|error| refusal::of_store(&error))?;
    let summary = newer.unwrap_or(summary);
    if summary.finished_at_ms.is_some() && result.finished_at.is_none() {
        result = self::result(plans, &summary.run_id).await?;
    }
    if let Some(link) = result.session.clone().filter(|_| result.finished_at.is_some()) {
        // A commitment that came later is in no journal of this run, and keeps it from being tried again all the same.
        if let Err(session::Error::Refused(refusals)) = plans.sessions.check_superseded(&link).await {
            result.no_retry = refusals.into_iter().next().map(|refusal| refusal.message);
        }
    }
    Ok(GetRunResponse { result_json: json(&result)?, summary: Some(to_wire(summary)) })
}

async fn result(plans: &Plans, run_id: &str) -> Result<RunResult, Status> {
    let result = plans.executor.result(run_id).await.map_err(|error| refusal::of_store(&error))?;
    result.ok_or_else(|| refusal::run_not_found(run_id))
}

/// A page of runs. Those the caller may not see are left out, so that a page may be short and still have a next one.
pub(super) async fn list(
    service: &Plan,
    access: &Access,
    request: ListRunsRequest,
) -> Result<ListRunsResponse, Status> {
    let limit = page_size(&service.ctx, request.page_size)?;
    let caller = access.identity().unwrap_or_default();
    let after = service.ctx.page_tokens.read(caller, &request.page_token)?;
    let query = query(request)?;
    let turn = service.ctx.brief_readers.enter(access).await?;
    let page = service.plans.runs().list(query, after, limit).await.map_err(|error| refusal::of_store(&error))?;
    let readable = readable_sessions(service, access, &page.runs, turn).await?;
    let in_readable = |run: &Summary| run.session_id.as_ref().is_some_and(|id| readable.contains(id));
    let runs = page.runs.into_iter().filter(|run| access.sees_run(&run.started_by) || in_readable(run));
    let shown: Vec<RunSummary> = runs.map(to_wire).collect();
    let next_page_token = match page.next {
        None => String::new(),
        Some(id) => {
            let is_shown = shown.last().is_some_and(|last| last.run_id == id);
            service.ctx.page_tokens.write(caller, &id, is_shown)?
        }
    };
    Ok(ListRunsResponse { runs: shown, next_page_token })
}

/// Which sessions the caller may read, of those whose runs are not the caller's to see anyway. Many runs belong to few
/// sessions; each is looked up once, and none is loaded: a page can name a thousand.
async fn readable_sessions(
    service: &Plan,
    access: &Access,
    runs: &[Summary],
    turn: Turn,
) -> Result<BTreeSet<String>, Status> {
    let others = runs.iter().filter(|run| !access.sees_run(&run.started_by));
    let mut sessions: BTreeSet<String> = others.filter_map(|run| run.session_id.clone()).collect();
    if sessions.is_empty() {
        return Ok(sessions);
    }
    let access = access.clone();
    blocking(&service.ctx, move |store| {
        let _turn = turn;
        sessions.retain(|session_id| reads(store, &access, session_id));
        Ok(sessions)
    })
    .await
}

/// A session that cannot be read is not to keep the runs of all others from whoever asks.
fn reads(store: &dyn Store, access: &Access, session_id: &str) -> bool {
    runtime::may_read(store, access, session_id).unwrap_or_else(|error| {
        let error = error.message();
        tracing::warn!(
            session_id,
            error,
            "who may see the runs of a session cannot be told, so that they are in no list"
        );
        false
    })
}

fn query(request: ListRunsRequest) -> Result<Query, Status> {
    let given = |text: String| (!text.is_empty()).then_some(text);
    let status = match RunStatus::try_from(request.status) {
        Err(_unknown) => return Err(status::invalid_request(format!("{} is no status of a run", request.status))),
        Ok(status) => Standing::of_wire(status),
    };
    Ok(Query {
        session_id: given(request.session_id),
        plan_id: given(request.plan_id),
        agent_id: given(request.agent_id),
        status,
        final_code: given(request.final_code),
        mode: None,
        of_run_id: given(request.of_run_id),
    })
}

pub(super) async fn cancel(plans: &Plans, by: &str, request: &CancelRunRequest) -> Result<CancelRunResponse, Status> {
    refusal::check_remark("reason", &request.reason)?;
    let cancelled = plans.executor.cancel(&request.run_id, by, &request.reason).await;
    cancelled.map(|()| CancelRunResponse {}).map_err(|error| refusal::of_control(&error))
}

pub(super) async fn resolve(
    plans: &Plans,
    by: &str,
    request: &ResolveInDoubtRequest,
) -> Result<ResolveInDoubtResponse, Status> {
    refusal::check_remark("note", &request.note)?;
    // The first word stands, so it is no use later without what it rests on.
    let said = plans.runs().settlements().get(&request.run_id, &request.step_id).await;
    let said = said.map_err(|error| refusal::of_store(&error))?;
    if said.is_none() && request.note.trim().is_empty() {
        return Err(status::invalid_request("note is empty; say how you know what became of the effect"));
    }
    let outcome = match request.outcome() {
        EffectOutcome::Success => Outcome::Success,
        EffectOutcome::Failure => Outcome::Failure,
        EffectOutcome::Unspecified => {
            return Err(status::invalid_request("say what became of the effect: success or failure"));
        }
    };
    let settled = plans.executor.settle(&request.run_id, &request.step_id, outcome, &request.note, by).await;
    let earlier = settled.map_err(|error| refusal::of_store(&error))?;
    let existing = earlier.is_some();
    let (outcome, note, by) = match earlier {
        Some(Settlement { outcome, note, by, .. }) => (outcome, note, by),
        None => (outcome, request.note.clone(), by.to_owned()),
    };
    let outcome = match outcome {
        Outcome::Success => EffectOutcome::Success,
        Outcome::Failure => EffectOutcome::Failure,
    };
    Ok(ResolveInDoubtResponse { existing, outcome: outcome.into(), note, by })
}

fn to_wire(run: Summary) -> RunSummary {
    let time = |unix_ms: u64| i64::try_from(unix_ms).unwrap_or(i64::MAX);
    RunSummary {
        run_id: run.run_id,
        plan_id: run.plan_id,
        plan_hash: run.plan_hash.to_string(),
        agent_id: run.agent_id,
        mode: run.mode.as_str().to_owned(),
        status: RunStatus::from(run.status).into(),
        final_code: run.final_code.unwrap_or_default(),
        session_id: run.session_id.unwrap_or_default(),
        commitment_hash: run.commitment_hash.unwrap_or_default(),
        epoch: run.epoch,
        original_run_id: run.original_run_id.unwrap_or_default(),
        parent_run_id: run.parent_run_id.unwrap_or_default(),
        started_unix_ms: time(run.started_at_ms),
        finished_unix_ms: run.finished_at_ms.map(time).unwrap_or_default(),
        retry_count: run.retry_count,
        cost_microcents: run.cost_microcents,
        steps_done: run.steps_done,
        steps_total: run.steps_total,
        started_by: run.started_by,
    }
}
