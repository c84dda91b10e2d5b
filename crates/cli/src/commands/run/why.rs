//! Why a run stopped and what to do about it, in words.

use macp_plan::result::{AtWork, Cancelled, Doing, RunResult, Settled, StepResult};
use macp_plan::store::{Outcome, Status};
use macp_plan_core::journal::{BudgetAlert, RefusedCheck, RunMode, Stop, StopReason};
use macp_plan_core::plan::Aliases;
use macp_plan_core::taxonomy;
use serde_json::Value;

use super::doubt::{is_in_doubt_elsewhere, is_settled, is_unknown, step, unknown};
use super::retry_advice::retry;
use crate::money::{cents, span};
use crate::text::{count, spelt};

/// Steps named in one sentence; it is one screen, and `log` has them all.
const STEPS_TOLD_MAX: usize = 8;

/// A few sentences: what happened, and what an operator can do.
pub(super) fn explain(result: &RunResult) -> Vec<String> {
    let mut told = outcome(result);
    told.extend(warnings(result));
    told.extend(alerts(result));
    told.extend(in_doubt_besides(result));
    told.extend(result.settled.iter().map(said));
    told.extend(retry(result));
    told
}

fn outcome(result: &RunResult) -> Vec<String> {
    let run_id = &result.run_id;
    match (result.status, &result.stop) {
        (Status::Running, _) if result.stuck.is_some() => stuck(result),
        (Status::Running, _) => {
            let done = result.steps.len();
            let all = count((done + result.at_work.iter().len() + result.ahead.len()) as u64, "step", "steps");
            let mut told =
                vec![format!("The run is under way: {done} of {all} ended. Follow it with `macp run watch {run_id}`.")];
            match &result.held_up {
                Some(why) => told.push(format!(
                    "Nothing more is called before what there is to write down is written, and that fails for now: {why}."
                )),
                None => told.extend(result.at_work.as_ref().map(|step| at_work(step, &result.aliases))),
            }
            if let Some(cancelled) = &result.cancelled {
                told.push(format!("It was told to stop{}, which it does between two calls.", said_why(cancelled)));
            }
            told
        }
        (Status::Succeeded, _) => succeeded(result),
        (Status::Rejected, _) => rejected(result),
        (Status::Cancelled, stop) => cancelled(result, stop.as_ref()),
        (Status::InDoubt, Some(stop)) => in_doubt(result, stop),
        (Status::BudgetExceeded, Some(stop)) => budget(result, stop),
        (_, Some(stop)) => stopped(result, stop),
        (_, None) => vec!["The run ended, and its record does not say why.".to_owned()],
    }
}

/// What the step under way does.
fn at_work(at_work: &AtWork, aliases: &Aliases) -> String {
    let AtWork { step_id, attempt, attempt_codes, .. } = at_work;
    let after =
        attempt_codes.last().map(|code| format!(" after {}", spelt(code, Some(step_id), aliases))).unwrap_or_default();
    let to = at_work.target.as_ref().map(|target| format!(" to {target}")).unwrap_or_default();
    match at_work.doing {
        Doing::Calling => {
            let since = at_work.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
            format!("Step {step_id} is at work: the call of attempt {attempt}{to} is out{since}{after}.")
        }
        Doing::Waiting => {
            let until = at_work.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
            format!("Step {step_id} waits{until} before attempt {attempt}{after}.")
        }
        Doing::Preparing => format!("Step {step_id} is about to begin attempt {attempt}{after}."),
        Doing::AwaitingMemory => {
            let since = at_work.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
            format!(
                "Step {step_id} waits{since} for memory that other runs have reserved (run_max_memory_bytes){after}; it \
                 continues without help."
            )
        }
        Doing::Paused => {
            format!(
                "Step {step_id} waits before attempt {attempt}{after}: the session that reports the run is suspended."
            )
        }
    }
}

/// What an operator said of an effect.
fn said(settled: &Settled) -> String {
    let Settled { step_id, outcome, note, by } = settled;
    let word = match outcome {
        Outcome::Success => "took place",
        Outcome::Failure => "did not take place",
    };
    let by = if by.is_empty() { "An operator" } else { by };
    format!("{by} said that the effect of step {step_id} {word}: {note}")
}

fn stuck(result: &RunResult) -> Vec<String> {
    let why = result.stuck.as_deref().unwrap_or_default();
    vec![
        format!("Nobody is at work on the run, because it cannot go on here: {why}."),
        "Bring back what is missing and start the server again, and it goes on where it is.".to_owned(),
        format!(
            "Or end it: `macp run cancel {} --reason TEXT`; what cannot be ended without what is missing ends once that \
             is back.",
            result.run_id
        ),
    ]
}

fn succeeded(result: &RunResult) -> Vec<String> {
    let mut told = vec!["Every step was reached, and nothing stopped the run.".to_owned()];
    let failed: Vec<&str> = result
        .steps
        .iter()
        .filter(|step| step.final_code.starts_with("ERR_"))
        .map(|step| step.step_id.as_str())
        .collect();
    if !failed.is_empty() {
        told.push(format!("The run went on past failures at {}, as the plan allows.", failed.join(", ")));
    }
    told
}

/// What was found of the plan when the run was admitted, and did not keep it from running.
fn warnings(result: &RunResult) -> Vec<String> {
    let findings = result.findings.iter().filter(|_| result.status != Status::Rejected);
    findings.map(|finding| format!("Warning: {}.", finding.explanation.trim_end_matches('.'))).collect()
}

fn rejected(result: &RunResult) -> Vec<String> {
    let mut told = vec!["Nothing was called: the plan cannot run here.".to_owned()];
    for finding in &result.findings {
        let step = finding.step_id.as_ref().map(|step| format!("step {step}: ")).unwrap_or_default();
        told.push(format!("- {step}{} [{}]", finding.explanation, finding.code));
    }
    // What an operator's settings do not allow they may allow later, and such a run was never admitted.
    let by_scope = result.findings.iter().any(|finding| SCOPE_REASONS.contains(&finding.reason.as_str()));
    if let Some(session) = result.session.as_ref().filter(|_| by_scope) {
        let session_id = &session.session_id;
        told.push(format!("Once the scope allows it, `macp run start --session {session_id}` starts it."));
    }
    told
}

/// Why a run was rejected that another scope would have let pass.
const SCOPE_REASONS: [&str; 3] = ["scope_unknown", "agent_outside_scope", "skill_outside_scope"];

fn cancelled(result: &RunResult, stop: Option<&Stop>) -> Vec<String> {
    let at = stop.and_then(|stop| stop.step_id.as_ref()).map(|step| format!(" before step {step}")).unwrap_or_default();
    vec![format!("The run was cancelled{at}{}.", result.cancelled.as_ref().map(said_why).unwrap_or_default())]
}

/// By whom, and why. Where callers have no names there is none to tell.
fn said_why(cancelled: &Cancelled) -> String {
    let by = if cancelled.by.is_empty() { String::new() } else { format!(" by {}", cancelled.by) };
    let why = if cancelled.reason.is_empty() { String::new() } else { format!(": {}", cancelled.reason) };
    format!("{by}{why}")
}

fn in_doubt(result: &RunResult, stop: &Stop) -> Vec<String> {
    let step_id = stop.step_id.as_deref().unwrap_or_default();
    let (target, key) = target(step(result, step_id));
    let lost = format!("The call of step {step_id}{target} was out when the process ended, and its answer is lost.");
    if is_settled(result, step_id) {
        return vec![lost];
    }
    let mut told = vec![
        lost,
        format!("Repeating it could do it twice, so nobody has: find out at the target whether it took place.{key}"),
    ];
    told.extend(settle(result, step_id));
    told
}

/// Steps that failed although their effect may have taken place, but for the one whose answer is lost, and for those of
/// which somebody has said what became of them.
fn in_doubt_besides(result: &RunResult) -> Vec<String> {
    let lost = result.stop.as_ref().filter(|_| result.status == Status::InDoubt).and_then(|stop| stop.step_id.as_ref());
    let steps = unknown(result).filter(|step| lost != Some(&step.step_id) && !is_settled(result, &step.step_id));
    let told = steps.flat_map(|step| {
        let (step_id, (target, key)) = (&step.step_id, target(Some(step)));
        let mut told = vec![
            format!(
                "The call of step {step_id}{target} may have taken effect all the same: nothing proves that it did not."
            ),
            format!(
                "Repeating it could do it twice, so nobody does: find out at the target whether it took place.{key}"
            ),
        ];
        told.extend(settle(result, step_id));
        told
    });
    told.collect()
}

/// How to say what became of an effect, and what follows from that.
fn settle(result: &RunResult, step_id: &str) -> Vec<String> {
    let run_id = &result.run_id;
    let resolve = format!("macp run resolve {run_id} --step {step_id} --as success|failure --note TEXT");
    match (result.mode, result.status) {
        // A replay is compared with its original and never tried again, nor is what another commitment took the place of.
        (RunMode::FullReplay, _) => vec![format!("Then you can put it down: `{resolve}`.")],
        _ if result.no_retry.is_some() => vec![format!("Then you can put it down: `{resolve}`.")],
        // The rest is done, so that only the step itself is left to be made again.
        (_, Status::Succeeded) => vec![
            format!("Then say so: `{resolve}`;"),
            format!("if it did not, `macp run retry {run_id} --from {step_id}` makes it again."),
        ],
        _ => vec![format!("Then say so: `{resolve}`,"), format!("and go on with `macp run retry {run_id}`.")],
    }
}

/// Where the last effect of a step went, and under which key.
fn target(step: Option<&StepResult>) -> (String, String) {
    match step.and_then(|step| step.outcome.side_effects.last()) {
        Some(effect) => (format!(" to {}", effect.target), format!(" Its key is {}.", effect.effect_key)),
        None => (String::new(), String::new()),
    }
}

fn budget(result: &RunResult, stop: &Stop) -> Vec<String> {
    let step_id = stop.step_id.as_deref().unwrap_or_default();
    let details = step(result, step_id).map(|step| &step.outcome.details);
    let fact = |name: &str| details.and_then(|details| details.get(name));
    let amount = |name: &str| fact(name).and_then(Value::as_u64).map(cents);
    let needs = amount("required").map(|required| format!(": it needs up to {required}")).unwrap_or_default();
    if fact("breach").and_then(Value::as_str) == Some("per_step") {
        let limit = amount("limit").map(|limit| format!(", and one step may cost {limit}")).unwrap_or_default();
        return vec![
            format!("The ceiling of a single step does not allow step {step_id}{needs}{limit}."),
            "Freeze a plan with a larger max_cost_cents for the step, or per_step_max_cents for all; a frozen plan keeps both."
                .to_owned(),
        ];
    }
    let remains = match fact("remaining").and_then(Value::as_i64) {
        Some(remaining @ ..0) => format!(", and the budget is overrun by {}", cents(remaining.unsigned_abs())),
        Some(remaining) => format!(", and {} remain", cents(remaining.unsigned_abs())),
        None => String::new(),
    };
    vec![
        format!("The budget does not allow step {step_id}{needs}{remains}."),
        "Freeze a plan with a larger budget_cents, or with cheaper steps; a frozen plan keeps its budget.".to_owned(),
    ]
}

/// What was to be heard of the budget while the run went on.
fn alerts(result: &RunResult) -> Vec<String> {
    let mut told = Vec::new();
    for BudgetAlert { threshold_percent, spent, .. } in result.alerts.iter().filter(|alert| alert.refused.is_none()) {
        told.push(format!("An alert was due at {threshold_percent} % of the budget: {} were spent.", cents(*spent)));
    }
    let refused: Vec<&RefusedCheck> = result.alerts.iter().filter_map(|alert| alert.refused.as_ref()).collect();
    let mut steps: Vec<&str> = refused.iter().map(|check| check.step_id.as_str()).collect();
    steps.dedup();
    if !steps.is_empty() {
        let checks = count(refused.len() as u64, "check", "checks");
        let more = steps.len().saturating_sub(STEPS_TOLD_MAX);
        let mut at = steps[..steps.len() - more].join(", ");
        if more > 0 {
            at.push_str(&format!(" and {more} more"));
        }
        told.push(format!(
            "The plan has no hard limit, so that {checks} the budget refused went on all the same, at {at}."
        ));
    }
    told
}

fn stopped(result: &RunResult, stop: &Stop) -> Vec<String> {
    let step_id = stop.step_id.as_deref().unwrap_or_default();
    if stop.reason == StopReason::Deadline {
        return vec![format!("The deadline of the run passed before step {step_id} was done.")];
    }
    let step = step(result, step_id);
    let attempts = step.map(|step| step.attempts.len() as u64).unwrap_or_default();
    let after = if attempts > 1 { format!(" after {attempts} attempts") } else { String::new() };
    let code = spelt(&stop.code, stop.step_id.as_deref(), &result.aliases);
    let mut told = vec![format!("Step {step_id} ended with {code}{after}, which stopped the run.")];
    let explanation = taxonomy::explain(&stop.code);
    told.extend(step.and_then(refused_for));
    // What the code means is told below, and may be all that is known.
    let meaning = explanation.as_ref().map(|explanation| explanation.meaning);
    let said = step.map(|step| step.outcome.message.as_str());
    told.extend(said.filter(|said| !said.is_empty() && meaning != Some(said)).map(str::to_owned));
    if let Some(explanation) = explanation.filter(|_| !step.is_some_and(is_in_doubt_elsewhere)) {
        // What to do about a code is not what to do about an effect that may have taken place, which is told apart.
        let action = if step.is_some_and(is_unknown) { "" } else { explanation.action };
        told.push(format!("{} {action}", explanation.meaning).trim_end().to_owned());
    }
    told
}

/// What of a step did not pass before it was called: its details name it.
fn refused_for(step: &StepResult) -> Option<String> {
    let fact = |name: &str| step.outcome.details.get(name).and_then(Value::as_str);
    let why = fact("why")?;
    Some(match fact("reference") {
        Some(reference) => format!("Its reference `{reference}` cannot be resolved: {why}."),
        None => format!("It was not called: {why}."),
    })
}

/// The attempts of a step on one line: `s1: ERR_HTTP_503, 120 ms later OK_HTTP_CALL`.
pub(super) fn narrate(step: &StepResult, aliases: &Aliases) -> String {
    let mut text = format!("{}: ", step.step_id);
    let mut waited = None;
    for attempt in &step.attempts {
        if let Some(waited) = waited {
            text.push_str(&format!(", {waited} later "));
        }
        text.push_str(&spelt(&attempt.code, Some(&step.step_id), aliases));
        waited = Some(wait(attempt.backoff_ms.unwrap_or_default(), attempt.retry_after_ms));
    }
    text
}

/// The wait before an attempt: by the plan's formula, or longer if the target asked for that.
pub(super) fn wait(backoff_ms: u64, asked_ms: Option<u64>) -> String {
    match asked_ms.filter(|asked_ms| *asked_ms > backoff_ms) {
        Some(asked_ms) => format!("{} ({} if its Retry-After may count)", span(backoff_ms), span(asked_ms)),
        None => span(backoff_ms),
    }
}
