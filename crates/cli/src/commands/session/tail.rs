//! `macp session tail`.

use std::time::Duration;

use anyhow::bail;
use macp_client::{Client, Error};
use macp_wire::history::v1::Entry;
use macp_wire::v1::{Envelope, SessionState};
use serde_json::json;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::table::{Cell, Column, Table, left, right};
use crate::text::clean;
use crate::view::{detail, envelope_detail, envelope_json, headline, state_name};

const COLUMNS: &[Column] = &[right("ORDINAL", 7), left("TYPE", 13), left("SENDER", 12), left("WHAT", 4)];

/// How long to wait before connecting again: short at first, since most restarts are.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Silence after which to ask whether the session has ended: its end by time or by cancelling is no message.
const QUIET: Duration = Duration::from_secs(1);

/// Follow a session as it happens, until it ends or Ctrl-C
///
/// Prints the accepted messages so far, then new ones as they are accepted, and at last how the session ended. When the
/// server goes away, the command waits for it and goes on where it stopped, without gap or repetition.
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

/// A position beyond the end could not be counted from.
async fn check_position(client: &Client, args: &Args) -> anyhow::Result<()> {
    let Some(before) = args.after.checked_sub(1) else {
        client.get_session(&args.session).await?;
        return Ok(());
    };
    let rest = Rest::read(client, &args.session, before).await?;
    if rest.ordinal < args.after {
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
            Ok(Ended::Session) => return Ok(()),
            Ok(Ended::Stream) => "the server ended the stream".to_owned(),
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

/// How one connection ended well.
enum Ended {
    /// Nothing will follow, and that was said.
    Session,
    Stream,
}

/// Why one connection ended badly.
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

async fn follow_once(client: &Client, args: &Args, position: &mut u64, output: &Output) -> Result<Ended, Stop> {
    let table = Table::new(COLUMNS);
    let mut envelopes = client.subscribe(&args.session, *position).await?;
    loop {
        match tokio::time::timeout(QUIET, envelopes.next()).await {
            Ok(Ok(Some(envelope))) => {
                show(*position + 1, &envelope, &table, output)?;
                *position += 1;
            }
            Ok(Ok(None)) => return Ok(Ended::Stream),
            Ok(Err(error)) => return Err(error.into()),
            Err(_quiet) => {
                if let Some(end) = end(client, &args.session, *position).await? {
                    end.show(&args.session, output)?;
                    return Ok(Ended::Session);
                }
            }
        }
    }
}

/// How a session ended.
struct End {
    state: SessionState,
    /// The runtime's own last entry; none if the last message ended it.
    entry: Option<Entry>,
}

/// The end of a session, once every message before it was shown. An ended session stays as it is, so its log can be
/// read after its state.
async fn end(client: &Client, session_id: &str, position: u64) -> Result<Option<End>, Error> {
    let state = client.get_session(session_id).await?.state();
    match state {
        SessionState::Resolved | SessionState::Expired | SessionState::Cancelled => {}
        SessionState::Open | SessionState::Suspended | SessionState::Unspecified => return Ok(None),
    }
    let rest = Rest::read(client, session_id, position).await?;
    let own = rest.last.filter(|entry| entry.ordinal == 0);
    Ok((rest.ordinal <= position).then_some(End { state, entry: own }))
}

/// What a history holds beyond a position.
#[derive(Default)]
struct Rest {
    /// Of the last message in it.
    ordinal: u64,
    last: Option<Entry>,
}

impl Rest {
    /// Every message is an entry, and the runtime adds entries of its own, so the sequence of a message is never below
    /// its position.
    async fn read(client: &Client, session_id: &str, position: u64) -> Result<Rest, Error> {
        let mut rest = Rest::default();
        let mut after = position;
        loop {
            let page = client.session_log(session_id, after, 0).await?;
            for entry in page.entries.into_iter().filter_map(|logged| logged.entry) {
                rest.ordinal = rest.ordinal.max(entry.ordinal);
                rest.last = Some(entry);
            }
            if page.next_after_sequence == 0 {
                return Ok(rest);
            }
            after = page.next_after_sequence;
        }
    }
}

impl End {
    fn show(&self, session_id: &str, output: &Output) -> std::io::Result<()> {
        let state = state_name(self.state);
        let (what, by) = self.entry.as_ref().map(headline).map_or(("", ""), |(what, _, by)| (what, by));
        let why = self.entry.as_ref().map(detail).unwrap_or_default();
        if output.is_json() {
            output.value(&json!({ "ended": { "state": state, "type": what, "by": by, "reason": why } }))?;
        } else {
            let with = if what.is_empty() { "its last message" } else { what };
            let by = if by.is_empty() { String::new() } else { format!(" by {}", clean(by)) };
            let why = if why.is_empty() { why } else { format!(": {why}") };
            let state = output.paint(Paint::Bold, state);
            output.line(format!("{} has ended as {state} with {with}{by}{why}", clean(session_id)))?;
        }
        output.flush()
    }
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
