//! `macp plan`: plans before they run. Nearly everything here works without a server.

mod authored;
mod catalog;
mod dry_run;
mod explain;
mod findings;
mod freeze;
mod hash;
mod keep;
mod lint;
mod skill_diff;
mod skills;
mod taxonomy;

pub(crate) use authored::frozen_text;
pub(crate) use catalog::CatalogArgs;

use crate::Finding;
use crate::output::Output;

/// Check, freeze and estimate plans
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Lint(lint::Args),
    Freeze(freeze::Args),
    Hash(hash::Args),
    Explain(explain::Args),
    DryRun(dry_run::Args),
    Keep(keep::Args),
    Taxonomy(taxonomy::Args),
    Code(taxonomy::CodeArgs),
    Skills(skills::Args),
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::Lint(args) => lint::run(&args, output),
            Command::Freeze(args) => freeze::run(&args, output).await,
            Command::Hash(args) => hash::run(&args, output),
            Command::Explain(args) => explain::run(&args, output),
            Command::DryRun(args) => dry_run::run(args, output).await,
            Command::Keep(args) => keep::run(args, output).await,
            Command::Taxonomy(args) => taxonomy::run(&args, output),
            Command::Code(args) => taxonomy::explain(&args, output),
            Command::Skills(args) => skills::run(&args, output).await,
        }
    }
}
