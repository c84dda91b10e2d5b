//! StartRun: of a frozen plan, of what a session committed to, or of what another run left undone.

use macp_kernel::ID_BYTES_MAX;
use macp_plan::executor::{Start, StartMode, Started};
use macp_plan::session::StartFromSession;
use macp_plan::store::{StoreError, Summary};
use macp_plan_core::journal::SessionLink;
use macp_plan_core::plan::{FrozenPlan, PlanError};
use macp_wire::canonical;
use macp_wire::codes::Code;
use macp_wire::plan::v1::start_run_request::Source;
use macp_wire::plan::v1::{StartRunRequest, StartRunResponse};
use tonic::Status;

use super::{Plan, Plans, by, refusal};
use crate::access::{self, Access};
use crate::{runtime, status};

pub(super) async fn start(
    service: &Plan,
    access: &Access,
    mut request: StartRunRequest,
) -> Result<StartRunResponse, Status> {
    check_request_id(&request.request_id)?;
    refusal::check_remark("reason", &request.reason)?;
    check_exact("epoch", request.epoch)?;
    check_exact("deadline_ms", request.deadline_ms)?;
    let source = request.source.take();
    if !request.from_step_id.is_empty() && !matches!(source, Some(Source::RetryRunId(_))) {
        return Err(status::invalid_request("from_step_id belongs to retry_run_id"));
    }
    let started = match source {
        None => {
            return Err(status::invalid_request("name what to run: plan_json, session_id or retry_run_id"));
        }
        Some(Source::PlanJson(text)) => of_plan(&service.plans, access, &text, request).await?,
        Some(Source::SessionId(session_id)) => of_session(service, access, session_id, request).await?,
        Some(Source::RetryRunId(run_id)) => retry(service, access, run_id, request).await?,
    };
    Ok(StartRunResponse { run_id: started.run_id, existing: started.existing })
}

async fn of_plan(plans: &Plans, access: &Access, text: &str, request: StartRunRequest) -> Result<Started, Status> {
    let plan = read(text)?;
    check_agent(access, &plan.plan.agent_id)?;
    let epoch = request.epoch.max(1);
    if epoch > 1 && !may_repeat(access) {
        return Err(refusal::may_not_repeat("a further epoch repeats the plan's effects"));
    }
    let epoch_reason = given(request.reason.clone());
    let start = Start { epoch, epoch_reason, ..common(plan, StartMode::Execute, access, request) };
    plans.executor.start(start).await.map_err(|error| refusal::of_start(&error))
}

async fn of_session(
    service: &Plan,
    access: &Access,
    session_id: String,
    request: StartRunRequest,
) -> Result<Started, Status> {
    if request.deadline_ms != 0 {
        return Err(status::invalid_request(
            "deadline_ms does not go with session_id: what was committed runs to its end",
        ));
    }
    let session = runtime::readable(&service.ctx, access, &session_id).await?;
    access.check_act(&session)?;
    let request = StartFromSession {
        session_id,
        epoch: request.epoch.max(1),
        epoch_reason: given(request.reason),
        may_repeat: may_repeat(access),
        by: by(access),
        request_id: given(request.request_id),
    };
    service.plans.sessions.start_from_session(request).await.map_err(|error| refusal::of_session(&error))
}

async fn retry(service: &Plan, access: &Access, run_id: String, request: StartRunRequest) -> Result<Started, Status> {
    if request.epoch != 0 {
        return Err(status::invalid_request("epoch does not go with retry_run_id: a retry has the epoch of its run"));
    }
    let summary = service.controlled(access, &run_id).await?;
    let link = session_of(&service.plans, &summary).await.map_err(|error| refusal::of_store(&error))?;
    let plan = plan_of(&service.plans, &summary).await?;
    let mode = StartMode::Retry { parent_run_id: run_id, from_step: given(request.from_step_id.clone()) };
    let start = common(plan, mode, access, request);
    // What a session has taken back is not tried again.
    service.plans.sessions.start_beside(link, start).await.map_err(|error| refusal::of_session(&error))
}

/// The commitment that authorised a run, if one did.
pub(super) async fn session_of(plans: &Plans, summary: &Summary) -> Result<Option<SessionLink>, StoreError> {
    if summary.session_id.is_none() {
        return Ok(None);
    }
    let run = plans.runs().load(&summary.run_id).await?;
    Ok(run.and_then(|run| run.start().session.clone()))
}

fn common(plan: FrozenPlan, mode: StartMode, access: &Access, request: StartRunRequest) -> Start {
    Start {
        mode,
        request_id: given(request.request_id),
        deadline_ms: (request.deadline_ms > 0).then_some(request.deadline_ms),
        ..Start::execute(plan, &by(access))
    }
}

/// The plan a run executes.
pub(super) async fn plan_of(plans: &Plans, summary: &Summary) -> Result<FrozenPlan, Status> {
    let value = plans.runs().plans().get(summary.plan_hash.clone()).await.map_err(|error| refusal::of_store(&error))?;
    let value =
        value.ok_or_else(|| status::internal(format!("the plan {} is not kept any more", summary.plan_hash)))?;
    FrozenPlan::from_value(value).map_err(|error| refusal::ours(&error))
}

/// Only what was frozen has a digest that others can have agreed to, so nothing else runs.
fn read(text: &str) -> Result<FrozenPlan, Status> {
    FrozenPlan::parse(text.as_bytes()).map_err(|error| match error {
        PlanError::Findings(findings) => refusal::invalid_plan(
            "this is no frozen plan; freeze it first, such as with ValidatePlan, which answers with the frozen form",
            &findings,
        ),
        error => refusal::refused(Code::PlanInvalid, error.to_string()),
    })
}

/// A plan that no session committed to is started by the agent it names, or by a role that may cancel.
fn check_agent(access: &Access, agent_id: &str) -> Result<(), Status> {
    match access.identity() {
        _ if access.local || access.caller.scope.may_cancel => Ok(()),
        None => Err(access::unidentified()),
        Some(identity) if identity == agent_id => Ok(()),
        Some(identity) => Err(refusal::not_the_agent(identity, agent_id)),
    }
}

/// Numbers are kept in canonical JSON, which has none above this.
fn check_exact(field: &str, number: u64) -> Result<(), Status> {
    if number > canonical::INTEGER_MAX {
        let most = canonical::INTEGER_MAX;
        return Err(status::invalid_request(format!("{field} is {number}, and at most {most} can be kept")));
    }
    Ok(())
}

/// What a caller names a request by is kept, and so must not be long.
pub(super) fn check_request_id(request_id: &str) -> Result<(), Status> {
    if request_id.len() > ID_BYTES_MAX {
        return Err(status::invalid_request(format!("request_id has more than {ID_BYTES_MAX} bytes")));
    }
    Ok(())
}

pub(super) fn may_repeat(access: &Access) -> bool {
    access.local || access.may_repeat
}

pub(super) fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
