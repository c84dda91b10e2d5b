//! `macp session show`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_wire::v1::{SessionMetadata, SessionState};
use serde_json::{Value, json};

use crate::Finding;
use crate::commands::damage;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::source::{no_session, open_store};
use crate::text::clean;
use crate::time::{distance, now_ms, stamp};
use crate::view::{session_json, state_name, text_or_base64};

/// Show what a session is bound to and where it stands
///
/// With a data directory the history is read and decided again, so the state of the mode and the resolution are shown
/// as well.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    /// Read this data directory instead of asking a server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let (session, more) = match look(&args).await {
        Ok(found) => found,
        Err(error) => return damage::or_failure(error, &args.session, &args.server, output).await,
    };
    if output.is_json() {
        let mut value = session_json(&session);
        if let (Some(members), Some(Value::Object(more))) = (value.as_object_mut(), more) {
            members.extend(more);
        }
        output.value(&value)?;
        return Ok(Finding::Positive);
    }
    show(&session, output)?;
    for (name, value) in more.as_ref().and_then(Value::as_object).into_iter().flatten() {
        if !value.is_null() && value != "" {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            line(output, &name.replace('_', " "), clean(&text))?;
        }
    }
    Ok(Finding::Positive)
}

/// The session and, where it is at hand, what only its history tells.
async fn look(args: &Args) -> anyhow::Result<(SessionMetadata, Option<Value>)> {
    let Some(directory) = &args.data else {
        return Ok((args.server.connect().await?.get_session(&args.session).await?, None));
    };
    let (session, more) = from_directory(directory, &args.session)?;
    Ok((session, Some(more)))
}

fn from_directory(directory: &Path, session_id: &str) -> anyhow::Result<(SessionMetadata, Value)> {
    let store = open_store(directory)?;
    let loaded = macp_engine::load(&store, session_id)?.with_context(|| no_session(session_id))?;
    let session = &loaded.session;
    let suspension = session.suspension();
    let mut more = json!({
        "entries": session.sequence(),
        "head_hash": loaded.hash.to_string(),
        "mode_state": session.describe_mode(),
        "resolution": session.resolution().map(|bytes| text_or_base64(bytes)),
    });
    if suspension.since_ms.is_some() || suspension.accumulated_ms > 0 {
        more["suspension"] = json!({
            "since_unix_ms": suspension.since_ms,
            "total_ms": suspension.accumulated_ms,
            "max_ms": suspension.cap_ms,
        });
    }
    Ok((session.metadata(), more))
}

fn show(session: &SessionMetadata, output: &Output) -> anyhow::Result<()> {
    let now = now_ms();
    let paint = match session.state() {
        SessionState::Open => Paint::Name,
        SessionState::Resolved => Paint::Good,
        _ => Paint::Warn,
    };
    line(output, "session", output.paint(Paint::Bold, clean(&session.session_id)))?;
    line(output, "state", output.paint(paint, state_name(session.state())))?;
    line(output, "mode", format!("{} {}", session.mode, session.mode_version))?;
    line(output, "initiator", clean(&session.initiator))?;
    let participants = match session.participants.as_slice() {
        [] => "anyone".to_owned(),
        names => clean(&names.join(", ")),
    };
    line(output, "participants", participants)?;
    let when = |ms| format!("{} UTC ({})", stamp(ms), distance(ms, now));
    line(output, "started", when(session.started_at_unix_ms))?;
    let deadline = session.expires_at_unix_ms;
    let deadline = match session.state() {
        // While a session is suspended, its deadline waits.
        SessionState::Suspended => format!("{}; waits while suspended", when(deadline)),
        SessionState::Open => when(deadline),
        // Nothing comes of it any more, so it is neither near nor far.
        _ => format!("{} UTC (the session has ended)", stamp(deadline)),
    };
    line(output, "deadline", deadline)?;
    let bound = [
        ("configuration", &session.configuration_version),
        ("policy", &session.policy_version),
        ("context id", &session.context_id),
        ("extensions", &session.extension_keys.join(", ")),
    ];
    for (name, value) in bound {
        if !value.is_empty() {
            line(output, name, clean(value))?;
        }
    }
    for activity in &session.participant_activity {
        let last = distance(activity.last_message_at_unix_ms, now);
        let messages = crate::text::count(activity.message_count.into(), "message", "messages");
        line(output, &format!("  {}", clean(&activity.participant_id)), format!("{messages}, last {last}"))?;
    }
    Ok(())
}

fn line(output: &Output, name: &str, value: impl std::fmt::Display) -> anyhow::Result<()> {
    let gap = 14_usize.saturating_sub(name.chars().count());
    output.line(format!("{}{:gap$} {value}", output.paint(Paint::Faint, name), ""))?;
    Ok(())
}
