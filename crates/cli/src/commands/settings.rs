//! `macp settings`: the reference of all settings, for the documents.

use crate::Finding;
use crate::output::Output;
use crate::settings::markdown;

/// Print the reference of all settings
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// As a Markdown table
    #[arg(long, required = true)]
    markdown: bool,
}

pub(crate) fn run(_args: Args, output: &Output) -> anyhow::Result<Finding> {
    output.bytes(markdown().as_bytes())?;
    Ok(Finding::Positive)
}
