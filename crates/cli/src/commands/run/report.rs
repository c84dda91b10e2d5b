//! The report of a replay, as people read it.

use macp_plan_core::compare::{Aspect, InputChanged, Mismatch, Origin, Report, Verdict};
use macp_plan_core::journal::RunMode;
use serde_json::Value;

use crate::output::{Output, Paint};
use crate::text::{clean, count, cut};

/// Characters of a value shown beside its counterpart.
const VALUE_CHARACTERS_MAX: usize = 60;

pub(super) fn show(report: &Report, output: &Output) -> anyhow::Result<()> {
    headline(report, output)?;
    aspects(report, output)?;
    for substitution in &report.substitutions {
        let (pin, own, other) = (&substitution.pin, &substitution.original, &substitution.replay);
        output.line(format!("what if: {} is {} instead of {}", clean(pin), clean(other), clean(own)))?;
    }
    for violation in &report.pin_violations {
        let word = output.paint(Paint::Warn, "pin");
        output.line(format!(
            "{word} {} {}: {}",
            clean(&violation.kind),
            clean(&violation.subject),
            clean(&violation.why)
        ))?;
    }
    differ(&report.mismatches, true, output)?;
    report.inputs_changed.iter().try_for_each(|changed| input(changed, output))?;
    for skipped in &report.skipped {
        let what = skipped.aspect.map(Aspect::key).unwrap_or("everything");
        let step = skipped.step_id.as_deref().map(|step| format!(" of step {}", clean(step))).unwrap_or_default();
        output.line(output.paint(Paint::Faint, format!("not compared: {what}{step}: {}", clean(&skipped.why))))?;
    }
    Ok(())
}

fn headline(report: &Report, output: &Output) -> anyhow::Result<()> {
    let mode = match report.replay_mode {
        RunMode::MockReplay => "against its recording",
        RunMode::FullReplay => "against the live world",
        RunMode::Execute | RunMode::DryRun => "against another run",
    };
    let (word, paint, words) = match report.verdict {
        Verdict::Match => ("MATCH", Paint::Good, "every decision is the same"),
        Verdict::Explained => ("EXPLAINED", Paint::Warn, "it differs, and the world is why"),
        Verdict::Diverged if report.what_if => ("DIVERGED", Paint::Bad, "under these pins it decides differently"),
        Verdict::Diverged => ("DIVERGED", Paint::Bad, "it decides differently on the same facts"),
        Verdict::NotComparable if report.what_if && is_the_same(report) => {
            ("NOT COMPARABLE", Paint::Warn, "under these pins it decides the same, which is no proof of what happened")
        }
        Verdict::NotComparable => ("NOT COMPARABLE", Paint::Warn, "not everything could be compared"),
        Verdict::Estimate => ("ESTIMATE", Paint::Bold, "nothing was compared"),
    };
    let run = clean(&report.original_run_id);
    let steps = count(report.evaluated.steps as u64, "step", "steps");
    let attempts = count(report.evaluated.attempts as u64, "attempt", "attempts");
    let word = output.paint(paint, word);
    output.line(format!("{word}: {run} replayed {mode}, {steps}, {attempts}; {words}"))?;
    if report.replay_mode == RunMode::FullReplay {
        output.line(format!("the replay is the run {}", clean(&report.replay_run_id)))?;
    }
    if let Some(first) = &report.first_divergence {
        let step = first.step_id.as_deref().map(|step| format!(", step {}", clean(step))).unwrap_or_default();
        let attempt = first.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
        output.line(format!("the first difference is at entry {}{step}{attempt}", first.seq))?;
    }
    Ok(())
}

/// Whether everything was looked at and nothing differs. What was not looked at is not the same.
fn is_the_same(report: &Report) -> bool {
    report.mismatches.is_empty() && report.behavior_match.values().all(|matches| *matches == Some(true))
}

fn aspects(report: &Report, output: &Output) -> anyhow::Result<()> {
    let mut line = String::from(" ");
    for (aspect, matches) in &report.behavior_match {
        let mark = match matches {
            Some(true) => output.paint(Paint::Good, "✓"),
            Some(false) => output.paint(Paint::Bad, "✗"),
            None => output.paint(Paint::Faint, "–"),
        };
        line.push_str(&format!(" {mark} {}", aspect.key()));
    }
    if !report.behavior_match.is_empty() {
        output.line(line)?;
    }
    Ok(())
}

/// Differences one by one, and whose doing they are, where that is known.
pub(super) fn differ(mismatches: &[Mismatch], tell_whose: bool, output: &Output) -> anyhow::Result<()> {
    let mut told = "";
    for mismatch in mismatches {
        let place = place(mismatch.step_id.as_deref(), mismatch.attempt);
        let whose = match mismatch.cause {
            _ if !tell_whose => "",
            Origin::Runtime => " (the runtime)",
            Origin::External => " (the world)",
            Origin::Pin => " (a pin)",
            Origin::Recording => " (the recording)",
        };
        let (original, replay) = (value(&mismatch.original), value(&mismatch.replay));
        let mark = output.paint(Paint::Bad, "✗");
        let aspect = mismatch.aspect.key();
        output
            .line(format!("{mark} {aspect}, {place}{}: {original} became {replay}{whose}", clean(&mismatch.field)))?;
        // The facts come before the rule, and are often those of the line before.
        let (facts, rule) = mismatch.why.rsplit_once("; ").unwrap_or(("", &mismatch.why));
        let why = if facts == told { rule } else { &mismatch.why };
        told = facts;
        if !why.is_empty() {
            output.line(output.paint(Paint::Faint, format!("    {}", clean(why))))?;
        }
    }
    Ok(())
}

/// One fact from outside that is not the same.
pub(super) fn input(changed: &InputChanged, output: &Output) -> anyhow::Result<()> {
    let place = place(changed.step_id.as_deref(), changed.attempt);
    let (original, replay) = (value(&changed.original), value(&changed.replay));
    output.line(format!("  the world: {place}{}: {original}, then {replay}", clean(&changed.field)))?;
    Ok(())
}

fn place(step_id: Option<&str>, attempt: Option<u32>) -> String {
    match (step_id, attempt) {
        (Some(step), Some(attempt)) => format!("step {} attempt {attempt}, ", clean(step)),
        (Some(step), None) => format!("step {}, ", clean(step)),
        (None, _) => String::new(),
    }
}

fn value(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    };
    cut(&clean(&text), VALUE_CHARACTERS_MAX)
}
