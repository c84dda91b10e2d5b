//! `macp run show`.

use macp_plan::result::{RunResult, StepResult};

use super::result::{self, Length};
use super::source::{Place, RunArgs, read_result};
use crate::Finding;
use crate::output::Output;

/// The detail that names an output which is kept apart.
const APART: &str = "output_ref";

/// Show a run on one screen: its steps, why it stopped and what to do
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Print every step, however many there are
    #[arg(long)]
    all: bool,
    /// Print what every step returned as well, whole
    #[arg(long)]
    outputs: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let place = args.run.place();
    let mut told = match &place {
        Place::Server { server, run_id } => {
            let answer = server.connect().await?.get_run(run_id).await?;
            read_result(&answer.result_json)?
        }
        place => place.load().await?.result(),
    };
    if args.outputs && told.steps.iter().any(is_apart) {
        complete(&mut told, place.load().await?.whole_result());
    }
    let length = if args.all { Length::Whole } else { Length::Screen };
    result::show(&told, length, output)?;
    if args.outputs && !output.is_json() {
        result::show_outputs(&told, output)?;
    }
    Ok(Finding::Positive)
}

/// Whether what a step returned is named, and not told.
fn is_apart(step: &StepResult) -> bool {
    step.outcome.details.contains_key(APART)
}

/// Puts outputs in the places of their digests. An export has all of them, however large.
fn complete(told: &mut RunResult, whole: RunResult) {
    for (step, mut whole) in told.steps.iter_mut().zip(whole.steps).filter(|(step, _)| is_apart(step)) {
        if let Some(returned) = whole.outcome.details.remove("output") {
            step.outcome.details.remove(APART);
            step.outcome.details.insert("output".to_owned(), returned);
        }
    }
}
