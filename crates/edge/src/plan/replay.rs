//! Replay: progress first, the report last. A mock replay reads the recording; a full one is a run of its own, which
//! goes on if the caller leaves.

use macp_plan::executor::{Executor, ReplayError, Start, StartError, StartMode, Started};
use macp_plan::result;
use macp_plan::session;
use macp_plan::store::{StoreError, Summary};
use macp_plan_core::compare::Report;
use macp_plan_core::journal::Body;
use macp_plan_core::replay::WhatIf;
use macp_wire::canonical;
use macp_wire::plan::v1::replay_response::Event;
use macp_wire::plan::v1::{ReplayMode, ReplayProgress, ReplayRequest, ReplayResponse};
use tonic::Status;

use super::start::{check_request_id, given, plan_of, session_of};
use super::validate::json;
use super::{Plan, by, refusal};
use crate::access::Access;
use crate::outbound::{Outbound, Sink, produce};
use crate::status;

pub(super) async fn replay(
    service: &Plan,
    access: &Access,
    summary: &Summary,
    request: ReplayRequest,
) -> Result<Outbound<ReplayResponse>, Status> {
    let has_what_if = !request.what_if_skills.is_empty()
        || !request.what_if_taxonomy_version.is_empty()
        || !request.what_if_rate_card_json.is_empty();
    match request.mode() {
        ReplayMode::Unspecified => Err(status::invalid_request("mode is neither mock nor full")),
        ReplayMode::Mock if !request.allow_step_ids.is_empty() => {
            Err(status::invalid_request("allow_step_ids belongs to a full replay: a mock replay has no effects"))
        }
        ReplayMode::Full if has_what_if => Err(status::invalid_request(
            "a full replay runs under the plan's own pins; what-if belongs to a mock replay",
        )),
        ReplayMode::Mock => mock(service, access, summary, what_if(request)?).await,
        ReplayMode::Full => full(service, access, summary, request).await,
    }
}

async fn mock(
    service: &Plan,
    access: &Access,
    summary: &Summary,
    what_if: WhatIf,
) -> Result<Outbound<ReplayResponse>, Status> {
    if summary.finished_at_ms.is_none() {
        return Err(refusal::of_replay(&ReplayError::NotFinished(summary.run_id.clone())));
    }
    let turn = service.reader(access).await?;
    let (executor, run_id) = (service.plans.executor.clone(), summary.run_id.clone());
    let (steps_done, steps_total) = (summary.steps_done, summary.steps_total);
    Ok(produce(&access.memory.queued, |sink| async move {
        let _turn = turn;
        sink.send(progress(String::new(), 0, steps_total)).await?;
        let report = executor.mock_replay(&run_id, what_if).await.map_err(|error| refusal::of_replay(&error))?;
        sink.send(progress(report.replay_run_id.clone(), steps_done, steps_total)).await?;
        sink.send(reported(&report)?).await
    }))
}

async fn full(
    service: &Plan,
    access: &Access,
    summary: &Summary,
    request: ReplayRequest,
) -> Result<Outbound<ReplayResponse>, Status> {
    check_request_id(&request.request_id)?;
    let by = by(access);
    let memory = &access.memory.queued;
    let executor = service.plans.executor.clone();
    let original = summary.run_id.clone();
    let mode = StartMode::FullReplay { original_run_id: original.clone(), allow_steps: request.allow_step_ids };
    // It makes the calls of what a session committed to, so that has to hold still.
    let link = match session_of(&service.plans, summary).await {
        // Nothing is called: the start finds the same.
        Err(StoreError::Corruption(_)) => None,
        link => link.map_err(|error| refusal::of_store(&error))?,
    };
    let plan = plan_of(&service.plans, summary).await?;
    let start = Start { mode, request_id: given(request.request_id), ..Start::execute(plan, &by) };
    let started = match service.plans.sessions.start_beside(link, start).await {
        Ok(started) => started,
        // There is nothing to compare with, and so nothing to call: the report says where the record is broken.
        Err(session::Error::Executor(StartError::Store(StoreError::Corruption(_)))) => {
            return Ok(produce(memory, |sink| async move {
                let report = executor.full_replay(&original, Vec::new(), &by).await;
                sink.send(reported(&report.map_err(|error| refusal::of_replay(&error))?)?).await
            }));
        }
        Err(error) => return Err(refusal::of_session(&error)),
    };
    let Started { run_id, existing } = started;
    // A replay counts once, however often its report is asked for; and also if whoever asked first has left by its end.
    let counted = (!existing).then(|| tokio::spawn(counted(executor.clone(), original.clone(), run_id.clone())));
    let (drain, steps_total) = (service.ctx.drain.clone(), summary.steps_total);
    Ok(produce(memory, |sink| async move {
        let told = async {
            followed(&executor, &run_id, steps_total, &sink).await?;
            let report = match counted {
                Some(counted) => counted.await.map_err(|error| status::internal(error.to_string()))?,
                None => executor.compare(&original, &run_id).await,
            };
            sink.send(reported(&report.map_err(|error| refusal::of_replay(&error))?)?).await
        };
        tokio::select! {
            end = told => end,
            () = drain.begun() => Err(status::shutting_down()),
        }
    }))
}

/// Waits for the end of a full replay and counts it.
async fn counted(executor: Executor, original: String, run_id: String) -> Result<Report, ReplayError> {
    executor.wait(&run_id).await?;
    let report = executor.compare(&original, &run_id).await?;
    executor.count_replay(&report).await;
    Ok(report)
}

/// Tells of a full replay while it goes on.
async fn followed(
    executor: &Executor,
    run_id: &str,
    steps_total: u32,
    sink: &Sink<ReplayResponse>,
) -> Result<(), Status> {
    let watch = executor.runs().watch(run_id, 0).await.map_err(|error| refusal::of_store(&error))?;
    let mut watch = watch.ok_or_else(|| refusal::run_not_found(run_id))?;
    let mut done: u32 = 0;
    sink.send(progress(run_id.to_owned(), done, steps_total)).await?;
    while let Some(page) = watch.next().await.map_err(|error| refusal::of_store(&error))? {
        let ended = page.iter().filter(|sealed| matches!(sealed.body(), Body::StepFinished(_))).count();
        if ended > 0 {
            done = done.saturating_add(u32::try_from(ended).unwrap_or(u32::MAX));
            sink.send(progress(run_id.to_owned(), done, steps_total)).await?;
        }
    }
    Ok(())
}

fn progress(replay_run_id: String, steps_done: u32, steps_total: u32) -> ReplayResponse {
    ReplayResponse { event: Some(Event::Progress(ReplayProgress { replay_run_id, steps_done, steps_total })) }
}

fn reported(report: &Report) -> Result<ReplayResponse, Status> {
    Ok(ReplayResponse { event: Some(Event::ReportJson(json(&result::traced(report))?)) })
}

fn what_if(request: ReplayRequest) -> Result<WhatIf, Status> {
    let rate_card = given(request.what_if_rate_card_json)
        .map(|text| canonical::parse(text.as_bytes()))
        .transpose()
        .map_err(|error| status::invalid_request(format!("what_if_rate_card_json is no valid JSON: {error}")))?;
    Ok(WhatIf {
        skills: request.what_if_skills.into_iter().collect(),
        taxonomy_version: given(request.what_if_taxonomy_version),
        rate_card,
    })
}
