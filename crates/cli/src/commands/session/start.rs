//! `macp session start`.

use std::time::Duration;

use macp_client::{Draft, envelope};
use macp_wire::v1::SessionStartPayload;
use prost::Message;

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;
use crate::text::duration;

/// Start a session
///
/// A session is classic unless it is started by today's standard: with a credential, the full name of a mode such as
/// macp.mode.decision.v1, participants, a mode version and a configuration version.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id; a fresh one is made up if none is given
    session: Option<String>,
    /// Who starts it
    #[arg(long)]
    sender: String,
    /// Mode: decision, multi_round or a full name
    #[arg(long, default_value = "decision")]
    mode: String,
    /// Who may take part, separated by commas; anyone if none is given
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    participants: Vec<String>,
    /// How long the session lives, such as 60s, 5m or 2h
    #[arg(long, value_parser = duration, default_value = "60s")]
    ttl: Duration,
    /// What the session is about
    #[arg(long, default_value = "")]
    intent: String,
    /// Context bound to a classic session, usually JSON
    #[arg(long, default_value = "")]
    context: String,
    /// Label by which others find a session by today's standard
    #[arg(long, value_name = "ID", conflicts_with = "context")]
    context_id: Option<String>,
    /// Mode version to ask for
    #[arg(long, value_name = "VERSION", default_value = "")]
    mode_version: String,
    /// Configuration version to bind
    #[arg(long, value_name = "VERSION", default_value = "")]
    configuration_version: String,
    /// Policy version to bind
    #[arg(long, value_name = "VERSION", default_value = "")]
    policy_version: String,
    /// Message id; a fresh one is made up if none is given
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let session_id = args.session.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let start = envelope::Start {
        intent: args.intent,
        participants: args.participants,
        mode_version: args.mode_version,
        configuration_version: args.configuration_version,
        policy_version: args.policy_version,
        // Out of range here is out of range for the server, which says so better.
        ttl_ms: i64::try_from(args.ttl.as_millis()).unwrap_or(i64::MAX),
        context: args.context.into_bytes().into(),
        roots: Vec::new(),
    };
    let mut payload = start.encode_to_vec();
    if let Some(context_id) = args.context_id {
        // Everything said so far has the same place in both forms of the payload.
        payload.extend(SessionStartPayload { context_id, ..SessionStartPayload::default() }.encode_to_vec());
    }
    let mut draft = Draft::new(&session_id, "SessionStart", &args.sender).mode(args.mode).payload(payload);
    if let Some(message_id) = args.message_id {
        draft = draft.message_id(message_id);
    }
    let ack = args.server.connect().await?.send(draft).await?;
    super::show_ack(&ack, output)
}
