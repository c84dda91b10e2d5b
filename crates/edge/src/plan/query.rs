//! Query: one question about a run as of an entry of its journal. The answer follows from the plan and the journal up
//! to there, so that it is the same whenever it is asked.

use macp_plan::store::Run;
use macp_plan_core::behavior::{Behavior, StepBehavior};
use macp_plan_core::journal::Body;
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::{budget, cost, taxonomy};
use macp_wire::canonical::INTEGER_MAX;
use macp_wire::plan::v1::{QueryRequest, QueryResponse, Question};
use serde_json::{Value, json};
use tonic::Status;

use super::start::plan_of;
use super::{Plan, refusal};
use crate::access::Access;
use crate::status;

pub(super) async fn query(service: &Plan, access: &Access, request: QueryRequest) -> Result<QueryResponse, Status> {
    let question = request.question();
    if question == Question::Unspecified {
        return Err(status::invalid_request("question is none that can be answered"));
    }
    let _turn = service.reader(access).await?;
    let plans = &service.plans;
    let run = plans.runs().load(&request.run_id).await.map_err(|error| refusal::of_store(&error))?;
    let run = run.ok_or_else(|| refusal::run_not_found(&request.run_id))?;
    let last = run.entries.last().map_or(0, |sealed| sealed.seq());
    let as_of_seq = request.as_of_seq.unwrap_or(last);
    if as_of_seq > last {
        return Err(status::invalid_request(format!(
            "the journal ends with entry {last}, so that nothing is known of {as_of_seq}"
        )));
    }
    let plan = plan_of(plans, &run.summary).await?;
    let answering = tokio::task::spawn_blocking(move || answer(&plan, &run, as_of_seq, question));
    let answer = answering.await.unwrap_or_else(|panic| Err(status::internal(panic.to_string())))?;
    Ok(QueryResponse { answer_json: answer.to_string(), as_of_seq })
}

fn answer(plan: &FrozenPlan, run: &Run, as_of_seq: u64, question: Question) -> Result<Value, Status> {
    let entries = run.entries.iter().map(|sealed| &sealed.entry).take_while(|entry| entry.seq <= as_of_seq);
    let behavior = Behavior::of(entries);
    Ok(match question {
        Question::Unspecified => return Err(status::invalid_request("question is none that can be answered")),
        Question::RemainingBudget => remaining_budget(plan, &behavior),
        Question::TriedSoFar => json!({ "steps": behavior.steps.iter().map(tried).collect::<Vec<_>>() }),
        Question::AllowedSkills => allowed_skills(plan),
        Question::LastOutcome => last_outcome(&behavior),
        Question::WhyStopped => why_stopped(&behavior, run),
    })
}

/// What attempts were charged is what was spent, whether or not anybody could go on with the run.
fn remaining_budget(plan: &FrozenPlan, behavior: &Behavior) -> Value {
    let context = &plan.plan.context;
    let charges = behavior.steps.iter().flat_map(|step| &step.attempts).map(|attempt| attempt.cost_microcents);
    let spent = charges.fold(0, u64::saturating_add).min(INTEGER_MAX);
    json!({
        "budget_microcents": cost::microcents(context.budget_cents),
        "spent_microcents": spent,
        "remaining_microcents": budget::remaining(context.budget_cents, spent),
        "hard_limit": context.budget_policy.hard_limit,
    })
}

fn tried(step: &StepBehavior) -> Value {
    let attempts = step.attempts.iter().map(|attempt| {
        json!({
            "attempt": attempt.attempt,
            "code": attempt.code,
            "cost_microcents": attempt.cost_microcents,
            "retry": attempt.retry,
            "backoff_ms": attempt.backoff_ms,
        })
    });
    let effects = step.effects.iter().map(|effect| {
        json!({ "attempt": effect.attempt, "type": effect.effect_type, "target": effect.target, "effect_key": effect.effect_key })
    });
    json!({
        "step_id": step.step_id,
        "attempts": attempts.collect::<Vec<_>>(),
        "effects": effects.collect::<Vec<_>>(),
        "code": step.finished.as_ref().map(|finished| &finished.code),
    })
}

/// What the plan allows and what of it the plan uses, in exactly which version.
fn allowed_skills(plan: &FrozenPlan) -> Value {
    let mut used: Vec<String> = plan.plan.steps.iter().map(|step| step.skill_key()).collect();
    used.sort();
    used.dedup();
    json!({ "allowed_skills": plan.plan.context.allowed_skills, "used": used })
}

fn last_outcome(behavior: &Behavior) -> Value {
    let finished = behavior.steps.iter().rev().find_map(|step| step.finished.as_ref());
    match finished {
        None => Value::Null,
        Some(finished) => json!({
            "step_id": finished.step_id,
            "status": finished.status,
            "code": finished.code,
            "retryable": finished.retryable,
            "backend_retries": finished.backend_retries,
            "total_attempts": finished.total_attempts,
            "cost_microcents": finished.cost_microcents,
            "details": finished.details,
        }),
    }
}

fn why_stopped(behavior: &Behavior, run: &Run) -> Value {
    let Some(finished) = &behavior.finished else {
        return json!({ "stopped": false });
    };
    let Some(stop) = &finished.stop else {
        return json!({ "stopped": false, "status": finished.status, "final_code": finished.final_code });
    };
    let step = stop.step_id.as_ref().and_then(|step_id| behavior.steps.iter().find(|step| step.step_id == *step_id));
    let explained = taxonomy::explain(&stop.code);
    // A run that was not admitted has no step to tell why.
    let findings = run.bodies().find_map(|body| match body {
        Body::Admission(admission) if !admission.admitted => Some(&admission.findings),
        _ => None,
    });
    json!({
        "stopped": true,
        "status": finished.status,
        "final_code": finished.final_code,
        "reason": stop.reason,
        "step_id": stop.step_id,
        "code": stop.code,
        "meaning": explained.as_ref().map(|explained| explained.meaning),
        "what_to_do": explained.as_ref().map(|explained| explained.action),
        "attempt_codes": step.and_then(|step| step.finished.as_ref()).map(|finished| &finished.attempt_codes),
        "details": step.and_then(|step| step.finished.as_ref()).map(|finished| &finished.details),
        "findings": findings,
        "not_reached": finished.not_reached,
    })
}
