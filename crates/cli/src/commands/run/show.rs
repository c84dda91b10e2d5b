//! `macp run show`.

use super::result;
use super::source::{Place, RunArgs, read_result};
use crate::Finding;
use crate::output::Output;

/// Show a run on one screen: its steps, why it stopped and what to do
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Print what every step returned as well
    #[arg(long)]
    outputs: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let told = match args.run.place() {
        Place::Server { server, run_id } => {
            let answer = server.connect().await?.get_run(&run_id).await?;
            read_result(&answer.result_json)?
        }
        place => place.load().await?.result(),
    };
    result::show(&told, output)?;
    if args.outputs && !output.is_json() {
        result::show_outputs(&told, output)?;
    }
    Ok(Finding::Positive)
}
