//! The `macp` command: one binary to serve sessions, look at them, and prove what they decided.
//!
//! One file per command under `commands/`. Data goes to stdout, everything else to stderr; `--json` turns data into
//! one JSON value per line. Exit codes: 0 for success, 1 for a negative finding (a refused message, a divergence, a
//! damaged history), 2 when the command could not do its work. Replays of runs tell more: 10 diverged, 11 explained, 12
//! not comparable, and 1 when they could not do their work.

mod commands;
mod databases;
mod logging;
mod money;
mod output;
mod progress;
mod remote;
mod settings;
mod source;
mod table;
mod text;
mod time;
mod view;

use std::process::ExitCode;

use clap::Parser;
use macp_plan_core::compare::Verdict;

use crate::commands::Command;
use crate::output::Output;

/// Messages are allocated by one thread and freed by another on their way to the disk, which this allocator is made
/// for; docs/PERFORMANCE.md has the figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable, replayable runtime for the Multi-Agent Coordination Protocol.
///
/// Agents send envelopes; the server decides in one order which of them become history; anyone can replay that
/// history later and get the same decisions. Try `macp demo` first.
#[derive(Debug, Parser)]
#[command(name = "macp", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 success, 1 negative finding, 2 usage error or failure. \
    Of plan and run: 2 usage error alone, 1 whatever else went wrong; replays have more.")]
struct Cli {
    /// Print data as JSON, one value per line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// What a command found out, for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Positive,
    Negative,
    /// That it was called in a way that makes no sense.
    Misused,
    /// What a comparison of runs ended with.
    Verdict(Verdict),
}

impl Finding {
    fn from_ok(ok: bool) -> Finding {
        if ok { Finding::Positive } else { Finding::Negative }
    }

    fn exit_code(self) -> ExitCode {
        match self {
            Finding::Positive => ExitCode::SUCCESS,
            Finding::Negative => ExitCode::from(1),
            Finding::Misused => ExitCode::from(2),
            Finding::Verdict(verdict) => ExitCode::from(verdict.exit_code()),
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(cli.json);
    match run(cli.command, &output) {
        Ok(finding) => finding.exit_code(),
        Err(_) if output.is_unread() => ExitCode::SUCCESS,
        Err(error) => {
            output.failure(&error);
            ExitCode::from(2)
        }
    }
}

/// Says how a command is to be called. What was not understood may stand before `--json`, so that is looked for as it is.
fn usage(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && is_json {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        Output::new(true).failure(&anyhow::Error::msg(text.to_owned()));
        return ExitCode::from(2);
    }
    error.exit()
}

fn run(command: Command, output: &Output) -> anyhow::Result<Finding> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let finding = runtime.block_on(command.run(output));
    // A task that still waits for a peer must not keep the process.
    runtime.shutdown_background();
    // What was found before a failure is shown before it.
    let flushed = output.flush();
    let finding = finding?;
    match flushed {
        // Whoever has seen enough changes nothing about what was found.
        Err(_) if output.is_unread() => Ok(finding),
        flushed => Ok(flushed.map(|()| finding)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
