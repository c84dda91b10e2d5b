//! One file per command.

mod completions;
mod demo;
mod doctor;
mod export;
mod import;
mod replay;
mod replay_trace;
mod serve;
mod session;
mod settings;
mod verify;

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
    Doctor(doctor::Args),
    Completions(completions::Args),
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
            Command::Doctor(args) => doctor::run(args, output),
            Command::Completions(args) => completions::run(args, output),
            Command::Settings(args) => settings::run(args, output),
        }
    }
}
