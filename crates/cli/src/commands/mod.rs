//! One file per command.

mod accept_loss;
mod completions;
mod conform;
mod damage;
mod demo;
mod doctor;
mod export;
mod import;
mod mode;
mod plan;
mod policy;
mod receipt;
mod replay;
mod replay_trace;
mod replay_what_if;
mod run;
mod serve;
mod session;
mod settings;
mod verify;

use std::fs::File;
use std::io;

pub(crate) use self::run::RUNS_DIRECTORY;

use crate::Finding;
use crate::output::Output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    #[command(subcommand)]
    Session(session::Command),
    Replay(replay::Args),
    Verify(verify::Args),
    Export(export::Args),
    Import(import::Args),
    #[command(subcommand)]
    Plan(plan::Command),
    #[command(subcommand)]
    Run(run::Command),
    #[command(subcommand)]
    Receipt(receipt::Command),
    #[command(subcommand)]
    Policy(policy::Command),
    #[command(subcommand)]
    Mode(mode::Command),
    Doctor(doctor::Args),
    AcceptLoss(accept_loss::Args),
    Completions(completions::Args),
    Conform(conform::Args),
    #[command(hide = true)]
    Settings(settings::Args),
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::Serve(args) => serve::run(args, output).await,
            Command::Demo(args) => demo::run(args, output).await,
            Command::Session(command) => command.run(output).await,
            Command::Replay(args) => replay::run(args, output).await,
            Command::Verify(args) => verify::run(args, output).await,
            Command::Export(args) => export::run(args, output).await,
            Command::Import(args) => import::run(args, output),
            Command::Plan(command) => failed(command.run(output).await, output),
            Command::Run(command) => failed(command.run(output).await, output),
            Command::Receipt(command) => command.run(output).await,
            Command::Policy(command) => command.run(output).await,
            Command::Mode(command) => command.run(output).await,
            Command::Doctor(args) => doctor::run(args, output),
            Command::AcceptLoss(args) => accept_loss::run(&args, output),
            Command::Completions(args) => completions::run(args, output),
            Command::Conform(args) => conform::run(args, output).await,
            Command::Settings(args) => settings::run(args, output),
        }
    }
}

/// The verbs of plans leave exit code 2 to wrong usage: whatever else goes wrong is 1 (AOS-96).
fn failed(found: anyhow::Result<Finding>, output: &Output) -> anyhow::Result<Finding> {
    tell(found, Finding::Negative, output)
}

/// As [`failed`], for what cannot be asked for.
fn misused(error: anyhow::Error, output: &Output) -> anyhow::Result<Finding> {
    tell(Err(error), Finding::Misused, output)
}

/// Tells of a failure, which then counts as a finding. There is nobody to tell if the output is not read any more.
fn tell(found: anyhow::Result<Finding>, told: Finding, output: &Output) -> anyhow::Result<Finding> {
    match found {
        Err(error) if !output.is_unread() => {
            output.flush()?;
            output.failure(&error);
            Ok(told)
        }
        found => found,
    }
}

/// What a command writes is an ordinary file; temporary ones are for their owner alone.
#[cfg(unix)]
fn set_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_readable(_file: &File) -> io::Result<()> {
    Ok(())
}
