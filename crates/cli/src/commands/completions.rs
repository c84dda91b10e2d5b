//! `macp completions`: words for the Tab key.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::output::Output;
use crate::{Cli, Finding};

/// Print shell completions
///
/// Write them where your shell looks for them, for example:
/// macp completions bash > ~/.local/share/bash-completion/completions/macp
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "macp", &mut script);
    output.bytes(&script)?;
    Ok(Finding::Positive)
}
