//! `macp run start` and `macp run retry`.

use std::path::PathBuf;
use std::time::Duration;

use macp_client::Client;
use macp_plan::store::Status;
use macp_wire::canonical::INTEGER_MAX;
use macp_wire::plan::v1::StartRunRequest;
use macp_wire::plan::v1::start_run_request::Source;
use serde_json::json;

use super::source::read_result;
use super::{follow, refused, result};
use crate::Finding;
use crate::commands::plan::frozen_text;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::text::{clean, duration};

/// Execute a frozen plan, or the plan a session committed to
///
/// Follows the run and prints its result; the exit code is 0 if it succeeded and 1 if it did not. The run goes on when
/// this command is interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the frozen plan, or - for stdin
    #[arg(required_unless_present = "session", conflicts_with = "session")]
    plan: Option<PathBuf>,
    /// Execute the plan this session committed to
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Which deliberate execution of the plan this is; another one than the first repeats effects
    #[arg(long, value_name = "N", requires = "reason", value_parser = clap::value_parser!(u64).range(1..=INTEGER_MAX))]
    new_epoch: Option<u64>,
    /// Why effects are to be repeated
    #[arg(long, value_name = "TEXT", requires = "new_epoch")]
    reason: Option<String>,
    #[command(flatten)]
    how: HowArgs,
}

/// Try again what a run left undone
///
/// Starts a new run; steps that were finished are taken over and not called again.
#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    /// Run id
    run: String,
    /// Do this step and those after it anew, but for effects that took place: those need a new epoch
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, clap::Args)]
struct HowArgs {
    /// Name of this request; the same name again answers with the same run
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Time after which no further attempt begins, such as 5m
    #[arg(long, value_parser = deadline)]
    deadline: Option<Duration>,
    /// Print nothing but the run id, and leave
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// No time at all would be none that is set.
fn deadline(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a run needs some time".to_owned()),
        deadline => Ok(deadline),
    }
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let source = match (&args.plan, args.session) {
        (Some(path), _) => Source::PlanJson(frozen_text(path)?),
        (None, Some(session)) => Source::SessionId(session),
        (None, None) => unreachable!("one of the two is required"),
    };
    let request = StartRunRequest {
        source: Some(source),
        epoch: args.new_epoch.unwrap_or_default(),
        reason: args.reason.unwrap_or_default(),
        ..StartRunRequest::default()
    };
    start(request, args.how, output).await
}

pub(super) async fn retry(args: RetryArgs, output: &Output) -> anyhow::Result<Finding> {
    let request = StartRunRequest {
        source: Some(Source::RetryRunId(args.run)),
        from_step_id: args.from.unwrap_or_default(),
        ..StartRunRequest::default()
    };
    start(request, args.how, output).await
}

async fn start(request: StartRunRequest, how: HowArgs, output: &Output) -> anyhow::Result<Finding> {
    let client = how.server.connect().await?;
    let deadline_ms = how.deadline.map(|deadline| u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
    let request = StartRunRequest {
        request_id: how.request_id.unwrap_or_default(),
        deadline_ms: deadline_ms.unwrap_or_default(),
        ..request
    };
    let started = match client.start_run(request).await {
        Ok(started) => started,
        Err(error) => return refused(error, output),
    };
    let run_id = &started.run_id;
    if output.is_json() {
        output.value(&json!({ "run_id": run_id, "existing": started.existing }))?;
    } else if how.detach {
        output.line(clean(run_id))?;
    } else if started.existing {
        output.line(format!("{} was started before", clean(run_id)))?;
    } else {
        output.line(format!("{} {}", output.paint(Paint::Good, "started"), clean(run_id)))?;
    }
    output.flush()?;
    if how.detach {
        return Ok(Finding::Positive);
    }
    tokio::select! {
        ended = to_the_end(&client, run_id, output) => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            output.note(format!("the run goes on; see `macp run watch {}`", clean(run_id)));
            Ok(Finding::Negative)
        }
    }
}

/// Follows a run and prints what came of it.
pub(super) async fn to_the_end(client: &Client, run_id: &str, output: &Output) -> anyhow::Result<Finding> {
    let begun = client.get_run(run_id).await?;
    let steps_total = begun.summary.map(|summary| summary.steps_total).unwrap_or_default();
    let aliases = read_result(&begun.result_json)?.aliases;
    let mut progress = follow::Progress::new(output, steps_total.into(), aliases);
    let followed = follow::follow(client, run_id, 0, &mut progress).await;
    progress.finish();
    followed?;
    let ended = follow::result(client, run_id).await?;
    result::show(&ended, result::Length::Screen, output)?;
    Ok(Finding::from_ok(ended.status == Status::Succeeded))
}
