//! `macp run cancel` and `macp run resolve`.

use macp_wire::plan::v1::{EffectOutcome, ResolveInDoubtRequest};
use serde_json::json;

use super::refused;
use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::text::clean;

/// Ask a run to stop at the next boundary
///
/// A call that is out is allowed to finish within its timeout; what has ended does not change.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Run id
    run: String,
    /// Why, for the journal
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Say what became of an effect that is in doubt
///
/// The first word stands. Afterwards `macp run retry` starts a run that takes it into account.
#[derive(Debug, clap::Args)]
pub(crate) struct ResolveArgs {
    /// Run id
    run: String,
    /// The step whose effect is in doubt
    #[arg(long)]
    step: String,
    /// Whether the effect took place
    #[arg(long = "as", value_enum)]
    outcome: OutcomeArg,
    /// How you know, for the record
    #[arg(long)]
    note: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OutcomeArg {
    Success,
    Failure,
}

pub(super) async fn cancel(args: &CancelArgs, output: &Output) -> anyhow::Result<Finding> {
    if let Err(error) = args.server.connect().await?.cancel_run(&args.run, &args.reason).await {
        return refused(error, output);
    }
    if output.is_json() {
        output.value(&json!({ "ok": true, "run_id": args.run }))?;
    } else {
        output.line(format!("{} {} is asked to stop", output.paint(Paint::Good, "OK"), clean(&args.run)))?;
    }
    Ok(Finding::Positive)
}

pub(super) async fn resolve(args: ResolveArgs, output: &Output) -> anyhow::Result<Finding> {
    let outcome = match args.outcome {
        OutcomeArg::Success => EffectOutcome::Success,
        OutcomeArg::Failure => EffectOutcome::Failure,
    };
    let client = args.server.connect().await?;
    let request = ResolveInDoubtRequest {
        run_id: args.run.clone(),
        step_id: args.step.clone(),
        outcome: outcome.into(),
        note: args.note,
    };
    let answer = match client.resolve_in_doubt(request).await {
        Ok(answer) => answer,
        Err(error) => return refused(error, output),
    };
    // The word that stands may be another one than the one just said.
    let stands = answer.outcome();
    let agrees = stands == outcome;
    let word = match stands {
        EffectOutcome::Success => "success",
        EffectOutcome::Failure => "failure",
        EffectOutcome::Unspecified => "unknown",
    };
    if output.is_json() {
        output.value(&json!({
            "ok": agrees, "run_id": args.run, "step_id": args.step, "existing": answer.existing, "as": word,
            "note": answer.note, "by": answer.by,
        }))?;
        return Ok(Finding::from_ok(agrees));
    }
    let (run, step) = (clean(&args.run), clean(&args.step));
    if answer.existing {
        let by = if answer.by.is_empty() { "an operator".to_owned() } else { clean(&answer.by) };
        let note = clean(&answer.note);
        let paint = if agrees { Paint::Warn } else { Paint::Bad };
        let before = output.paint(paint, "settled before");
        output.line(format!("{before}: step {step} of {run} counts as {word}, said {by}: {note}"))?;
    } else {
        let settled = output.paint(Paint::Good, "settled");
        output.line(format!("{settled}: step {step} of {run} counts as {word}; go on with `macp run retry {run}`"))?;
    }
    Ok(Finding::from_ok(agrees))
}
