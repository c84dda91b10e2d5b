//! `macp session`: sessions of a server, and of a data directory where reading is enough.

mod control;
mod list;
mod log;
mod send;
mod show;
mod start;
mod tail;

use macp_wire::v1::Ack;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote;
use crate::text::clean;
use crate::view::{ack_json, state_name};

/// Look at sessions, follow them, and take part in them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Show(show::Args),
    Log(log::Args),
    Tail(tail::Args),
    Start(start::Args),
    Send(send::Args),
    /// End an open session; one that has ended stays as it is
    Cancel(control::Args),
    /// Pause an open session; its deadline waits
    Suspend(control::Args),
    /// Let a suspended session go on
    Resume(control::Args),
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::List(args) => list::run(args, output).await,
            Command::Show(args) => show::run(args, output).await,
            Command::Log(args) => log::run(args, output).await,
            Command::Tail(args) => tail::run(args, output).await,
            Command::Start(args) => start::run(args, output).await,
            Command::Send(args) => send::run(args, output).await,
            Command::Cancel(args) => control::run(control::Verb::Cancel, args, output).await,
            Command::Suspend(args) => control::run(control::Verb::Suspend, args, output).await,
            Command::Resume(args) => control::run(control::Verb::Resume, args, output).await,
        }
    }
}

/// Shows what a server answered. A refusal is a negative finding, not a failure.
fn show_ack(ack: &Ack, output: &Output) -> anyhow::Result<Finding> {
    if output.is_json() {
        output.value(&ack_json(ack))?;
        return Ok(Finding::from_ok(ack.ok));
    }
    let (session, message) = (clean(&ack.session_id), clean(&ack.message_id));
    let state = state_name(ack.session_state());
    if let Some(error) = ack.error.as_ref().filter(|_| !ack.ok) {
        let word = output.paint(Paint::Bad, "refused");
        output.line(format!("{word} {}: {}", clean(&error.code), clean(&error.message)))?;
        if let Some(advice) = remote::advice(&error.code) {
            output.note(advice);
        }
    } else if ack.duplicate {
        let word = output.paint(Paint::Warn, "duplicate");
        output.line(format!("{word}: {session} had accepted {message} before; nothing happened ({state})"))?;
    } else {
        let message = if message.is_empty() { String::new() } else { format!(" {message}") };
        output.line(format!("{}: {session}{message} ({state})", output.paint(Paint::Good, "accepted")))?;
    }
    Ok(Finding::from_ok(ack.ok))
}
