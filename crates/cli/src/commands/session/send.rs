//! `macp session send`.

use std::path::PathBuf;

use anyhow::Context;
use macp_client::Draft;
use macp_conformance::{encode, type_of};

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;

/// Send one message to a session
///
/// For example:
/// macp session send s1 --type Vote --sender alice --json-payload '{"proposal_id":"p1","vote":"approve"}'
///
/// Sessions by today's standard take protobuf only: use --proto-payload with the same JSON, in which bytes such as
/// supporting_data are the text itself, or a list of byte values, and not base64.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    /// Message type, such as Proposal, Evaluation, Objection, Vote, Commitment or Contribute
    #[arg(long = "type", value_name = "TYPE")]
    message_type: String,
    /// Who sends it
    #[arg(long)]
    sender: String,
    /// Mode of the session; may be left out
    #[arg(long, default_value = "")]
    mode: String,
    /// Payload as JSON
    #[arg(long, value_name = "JSON", conflicts_with_all = ["text_payload", "payload_file"])]
    json_payload: Option<String>,
    /// Payload as JSON, sent as the protobuf message it stands for; bytes as their text or as a list of byte values
    #[arg(long, value_name = "JSON", conflicts_with_all = ["json_payload", "text_payload", "payload_file"])]
    proto_payload: Option<String>,
    /// Payload as plain text, sent as it is
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    text_payload: Option<String>,
    /// Payload from a file, sent as it is
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Message id; sending the same one again is safe. A fresh one is made up if none is given
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let client = args.server.connect().await?;
    let mut mode = args.mode.clone();
    // A standard session wants its mode named. Who may not read the session learns from the Send what is wrong.
    if mode.is_empty() {
        mode = match client.get_session(&args.session).await {
            Ok(session) => session.mode,
            Err(_told_by_the_send) if args.proto_payload.is_none() => mode,
            Err(error) => return Err(error.into()),
        };
    }
    let payload = match &args.proto_payload {
        Some(text) => {
            let value = serde_json::from_str(text).context("--proto-payload is not a JSON object")?;
            encode(&type_of(&mode, &args.message_type), &value).context("--proto-payload")?.to_vec()
        }
        None => payload(&args)?,
    };
    let mut draft = Draft::new(&args.session, &args.message_type, &args.sender).mode(mode).payload(payload);
    if let Some(message_id) = args.message_id {
        draft = draft.message_id(message_id);
    }
    let ack = client.send(draft).await?;
    super::show_ack(&ack, output)
}

fn payload(args: &Args) -> anyhow::Result<Vec<u8>> {
    if let Some(text) = &args.json_payload {
        // Checked here because a slip of the shell's quoting is best told before anything is sent.
        serde_json::from_str::<serde::de::IgnoredAny>(text).context("--json-payload is not JSON")?;
        return Ok(text.clone().into_bytes());
    }
    if let Some(path) = &args.payload_file {
        return std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    }
    Ok(args.text_payload.clone().unwrap_or_default().into_bytes())
}
