//! `macp session tail`.

use std::time::Duration;

use anyhow::bail;
use macp_client::{Client, Error};
use macp_wire::v1::Envelope;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::table::{Cell, Column, Table, left, right};
use crate::text::clean;
use crate::view::{envelope_detail, envelope_json};

const COLUMNS: &[Column] = &[right("ORDINAL", 7), left("TYPE", 13), left("SENDER", 12), left("WHAT", 4)];

/// How long to wait before connecting again: short at first, since most restarts are.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Follow a session as it happens, until Ctrl-C
///
/// Prints the accepted messages so far and then new ones as they are accepted. When the server goes away, the command
/// waits for it and goes on where it stopped, without gap or repetition.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    /// Start after this many accepted messages
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let client = args.server.connect().await?;
    check_position(&client, &args).await?;
    if !output.is_json() {
        output.line(Table::new(COLUMNS).header(output))?;
        output.flush()?;
    }
    tokio::select! {
        ended = follow(&client, &args, output) => ended.map(|()| Finding::Positive),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Ok(Finding::Positive)
        }
    }
}

/// A position beyond the end could not be counted from. Every accepted message is an entry, and the runtime's own
/// entries come last, so the entry with that sequence is the message with that position.
async fn check_position(client: &Client, args: &Args) -> anyhow::Result<()> {
    let Some(before) = args.after.checked_sub(1) else {
        client.get_session(&args.session).await?;
        return Ok(());
    };
    let page = client.session_log(&args.session, before, 1).await?;
    let there = page.entries.iter().filter_map(|logged| logged.entry.as_ref()).any(|entry| entry.ordinal == args.after);
    if !there {
        bail!("session {:?} has not accepted {} messages yet", args.session, args.after);
    }
    Ok(())
}

/// Follows over as many connections as it takes.
async fn follow(client: &Client, args: &Args, output: &Output) -> anyhow::Result<()> {
    let mut position = args.after;
    let mut retry = RETRY_MIN;
    loop {
        let before = position;
        let lost = match follow_once(client, args, &mut position, output).await {
            Ok(()) => "the server ended the stream".to_owned(),
            Err(Stop::Lost(error)) if error.is_disconnected() || error.code() == Some("STREAM_LAGGED") => {
                error.to_string()
            }
            Err(Stop::Lost(error)) => return Err(error.into()),
            Err(Stop::Output(error)) => return Err(error.into()),
        };
        retry = if position > before { RETRY_MIN } else { (retry * 2).min(RETRY_MAX) };
        output.note(format!("{}; trying again after message {position}", clean(&lost)));
        tokio::time::sleep(retry).await;
    }
}

/// Why one connection ended.
enum Stop {
    Lost(Error),
    Output(std::io::Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Lost(error)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Output(error)
    }
}

async fn follow_once(client: &Client, args: &Args, position: &mut u64, output: &Output) -> Result<(), Stop> {
    let table = Table::new(COLUMNS);
    let mut envelopes = client.subscribe(&args.session, *position).await?;
    while let Some(envelope) = envelopes.next().await? {
        show(*position + 1, &envelope, &table, output)?;
        *position += 1;
    }
    Ok(())
}

fn show(position: u64, envelope: &Envelope, table: &Table, output: &Output) -> std::io::Result<()> {
    if output.is_json() {
        output.value(&envelope_json(position, envelope))?;
    } else {
        let cells = [
            position.to_string().into(),
            Cell::painted(Paint::Bold, clean(&envelope.message_type)),
            Cell::painted(Paint::Name, clean(&envelope.sender)),
            envelope_detail(envelope).into(),
        ];
        output.line(table.row(output, &cells))?;
    }
    output.flush()
}
