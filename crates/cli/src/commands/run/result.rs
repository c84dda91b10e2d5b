//! The result of a run on one screen.

use macp_plan::result::{AtWork, Doing, RunResult, StepResult};
use macp_plan::session::execution_session_id;
use macp_plan_core::plan::{Aliases, StepStatus};

use super::fold::{Row, fold};
use super::summary::{status_paint, status_word};
use super::why::{explain, narrate};
use crate::money::{cents, span};
use crate::output::{Output, Paint};
use crate::table::{Cell, Column, Table, left, right};
use crate::text::{clean, spelt};

const COLUMNS: &[Column] = &[
    left("STEP", 8),
    left("STATUS", 7),
    left("CODE", 10),
    right("ATTEMPTS", 8),
    right("RETRIES", 7),
    right("COST", 4),
    right("TOOK", 4),
    left("EFFECTS", 7),
];

/// Steps whose attempts are told one by one.
const NARRATED_MAX: usize = 8;

/// How much of a long run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// One screen: steps that are all alike are counted.
    Screen,
    Whole,
}

pub(super) fn show(result: &RunResult, length: Length, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        output.value(result)?;
        return Ok(());
    }
    heading(result, output)?;
    let folded = steps(result, length, output)?;
    output.line("")?;
    for sentence in explain(result) {
        output.line(clean(&sentence))?;
    }
    let narrated = if length == Length::Whole { usize::MAX } else { NARRATED_MAX };
    let mut tried = result.steps.iter().filter(|step| step.attempts.len() > 1);
    for step in tried.by_ref().take(narrated) {
        output.line(output.paint(Paint::Faint, clean(&narrate(step, &result.aliases))))?;
    }
    if folded || tried.next().is_some() {
        let all = format!("`macp run show {} --all` has every step.", result.run_id);
        output.line(output.paint(Paint::Faint, clean(&all)))?;
    }
    Ok(())
}

/// The steps as a table; whether some are only counted.
fn steps(result: &RunResult, length: Length, output: &Output) -> anyhow::Result<bool> {
    let done = result.steps.iter().map(|step| (kind(step), row(step, &result.aliases)));
    let working = result.at_work.iter().map(|at_work_now| (Kind::Telling, at_work(at_work_now, &result.aliases)));
    let left_out = result.not_reached.iter().map(|step_id| (Kind::NotBegun, not_begun(step_id, "not reached")));
    let ahead = result.ahead.iter().map(|step_id| (Kind::NotBegun, not_begun(step_id, "to come")));
    let all: Vec<(Kind, Vec<Cell>)> = done.chain(working).chain(left_out).chain(ahead).collect();
    if all.is_empty() {
        return Ok(false);
    }
    let rows = match length {
        Length::Screen => fold(all, |(one, _), (other, _)| one == other && *one != Kind::Telling),
        Length::Whole => all.into_iter().map(Row::Whole).collect(),
    };
    let folded = rows.iter().any(|row| matches!(row, Row::Folded(_)));
    let rows: Vec<Vec<Cell>> = rows
        .into_iter()
        .map(|row| match row {
            Row::Whole((_, cells)) => cells,
            Row::Folded(count) => {
                vec![Cell::painted(Paint::Faint, "…"), Cell::painted(Paint::Faint, format!("{count} more"))]
            }
        })
        .collect();
    output.line("")?;
    let table = Table::fitted(COLUMNS, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    Ok(folded)
}

/// What a row says beyond the name of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It succeeded at the first attempt.
    Succeeded,
    NotBegun,
    Telling,
}

fn kind(step: &StepResult) -> Kind {
    let at_once = step.outcome.status == StepStatus::Success && step.attempts.len() <= 1;
    if at_once { Kind::Succeeded } else { Kind::Telling }
}

/// What every step returned, whole; as JSON the result has it anyway, or says that it is kept apart.
pub(super) fn show_outputs(result: &RunResult, output: &Output) -> anyhow::Result<()> {
    for step in &result.steps {
        let Some(returned) = step.outcome.details.get("output") else { continue };
        output.line("")?;
        output.line(format!("{} returned", output.paint(Paint::Bold, clean(&step.step_id))))?;
        // Line by line, so that nothing in it can steer the terminal and its own lines stay lines.
        for line in format!("{returned:#}").lines() {
            output.line(clean(line))?;
        }
    }
    Ok(())
}

fn heading(result: &RunResult, output: &Output) -> anyhow::Result<()> {
    line(output, "run", output.paint(Paint::Bold, clean(&result.run_id)))?;
    let of_step = result.stop.as_ref().and_then(|stop| stop.step_id.as_deref());
    let code = result.final_code.as_deref().map(|code| clean(&spelt(code, of_step, &result.aliases)));
    let code = code.map(|code| format!("  {code}")).unwrap_or_default();
    line(
        output,
        "status",
        format!("{}{code}", output.paint(status_paint(result.status), status_word(&result.status))),
    )?;
    line(output, "plan", format!("{}  {}", clean(&result.plan_id), result.plan_hash))?;
    line(output, "agent", clean(&result.agent_id))?;
    if let Some(session) = &result.session {
        line(
            output,
            "session",
            format!("{}, commitment {}", clean(&session.session_id), clean(&session.commitment_hash)),
        )?;
        line(output, "report", format!("session {}, where runs are reported", execution_session_id(&result.run_id)))?;
    }
    if let Some(original) = &result.original_run_id {
        line(output, "replay of", clean(original))?;
    }
    if let Some(parent) = &result.parent_run_id {
        line(output, "retry of", clean(parent))?;
    }
    if result.epoch != 1 {
        let reason = result.epoch_reason.as_ref().map(|reason| format!(", {}", clean(reason))).unwrap_or_default();
        line(output, "epoch", format!("{}{reason}", result.epoch))?;
    }
    let took = result.duration_ms.map(|ms| format!(", took {}", span(ms))).unwrap_or_default();
    line(output, "started", format!("{}{took}", clean(&result.started_at)))?;
    let spent = cents(result.total_cost_microcents);
    match &result.budget {
        Some(budget) => line(output, "cost", format!("{spent} of {}", cents(budget.budget))),
        None => line(output, "cost", spent),
    }
}

fn row(step: &StepResult, aliases: &Aliases) -> Vec<Cell> {
    let outcome = &step.outcome;
    let status = match outcome.status {
        StepStatus::Success => Cell::painted(Paint::Good, "success"),
        StepStatus::Partial => Cell::painted(Paint::Warn, "partial"),
        StepStatus::Skipped => Cell::painted(Paint::Faint, "skipped"),
        StepStatus::Failure => Cell::painted(Paint::Bad, "failure"),
    };
    vec![
        Cell::painted(Paint::Bold, clean(&step.step_id)),
        status,
        clean(&spelt(&step.final_code, Some(&step.step_id), aliases)).into(),
        step.attempts.len().to_string().into(),
        step.retry_count.to_string().into(),
        cents(outcome.cost_microcents).into(),
        span(outcome.latency_ms).into(),
        effects(step).into(),
    ]
}

/// The step under way: what is known of it so far.
fn at_work(at_work: &AtWork, aliases: &Aliases) -> Vec<Cell> {
    let doing = match at_work.doing {
        Doing::Calling => "calling",
        Doing::Waiting => "waiting",
        Doing::Preparing => "begun",
        Doing::Paused => "paused",
        Doing::AwaitingMemory => "awaits memory",
    };
    let out = usize::from(at_work.doing == Doing::Calling);
    let attempts = at_work.attempt_codes.len() + out;
    vec![
        Cell::painted(Paint::Bold, clean(&at_work.step_id)),
        Cell::painted(Paint::Name, doing),
        at_work
            .attempt_codes
            .last()
            .map_or_else(|| "-".to_owned(), |code| clean(&spelt(code, Some(&at_work.step_id), aliases)))
            .into(),
        attempts.to_string().into(),
        attempts.saturating_sub(1).to_string().into(),
        cents(at_work.cost_microcents).into(),
    ]
}

fn not_begun(step_id: &str, word: &str) -> Vec<Cell> {
    vec![Cell::painted(Paint::Faint, clean(step_id)), Cell::painted(Paint::Faint, word)]
}

/// Effects in order; repetitions of one target are counted.
fn effects(step: &StepResult) -> String {
    let mut told: Vec<(String, u32)> = Vec::new();
    for effect in &step.outcome.side_effects {
        let name = format!("{} {}", clean(&effect.kind), clean(&effect.target));
        match told.last_mut() {
            Some((last, times)) if *last == name => *times += 1,
            _ => told.push((name, 1)),
        }
    }
    let told = told.into_iter().map(|(name, times)| if times == 1 { name } else { format!("{name} ×{times}") });
    told.collect::<Vec<_>>().join(", ")
}

fn line(output: &Output, name: &str, value: impl std::fmt::Display) -> anyhow::Result<()> {
    let gap = 10_usize.saturating_sub(name.chars().count());
    output.line(format!("{}{:gap$} {value}", output.paint(Paint::Faint, name), ""))?;
    Ok(())
}
