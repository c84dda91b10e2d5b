//! Tells a damaged history, which is a finding, from a failure to read it.

use macp_client::{Client, Error};
use macp_ledger::ReadError;
use serde_json::{Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::text::clean;

/// What is wrong with a history that was to be read.
#[derive(Debug)]
pub(crate) struct Damage {
    /// 0 when no single entry is to blame.
    pub(crate) sequence: u64,
    pub(crate) message: String,
}

impl Damage {
    /// None if the reading and not the history is at fault.
    fn of(error: &anyhow::Error) -> Option<Damage> {
        let damage = |sequence| Damage { sequence, message: error.to_string() };
        if let Some(ReadError::Corruption(corruption)) = error.downcast_ref() {
            return Some(damage(corruption.sequence));
        }
        match error.downcast_ref()? {
            macp_engine::Error::Read(ReadError::Corruption(corruption)) => Some(damage(corruption.sequence)),
            macp_engine::Error::Replay(_) | macp_engine::Error::Foreign { .. } => Some(damage(0)),
            _ => None,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "ok": false, "bad_sequence": self.sequence, "message": self.message })
    }
}

/// A server says only that it failed. Whether the history is damaged is what its check is for.
pub(crate) async fn explain(client: &Client, session_id: &str, error: Error) -> anyhow::Result<Damage> {
    if error.code() != Some("INTERNAL_ERROR") || error.is_disconnected() {
        return Err(error.into());
    }
    match client.verify(session_id).await {
        Ok(found) if !found.ok => Ok(Damage { sequence: found.bad_sequence, message: found.message }),
        // Nothing is wrong with the history, or nobody can say: then the failure is what there is.
        Ok(_) | Err(_) => Err(error.into()),
    }
}

/// What a failed look at a session comes to: a finding if its history is damaged, which is told beside the data.
pub(crate) async fn or_failure(
    error: anyhow::Error,
    session_id: &str,
    server: &ServerArgs,
    output: &Output,
) -> anyhow::Result<Finding> {
    let damage = match (Damage::of(&error), error.downcast::<Error>()) {
        (Some(damage), _) => damage,
        (None, Ok(error)) => match server.connect().await {
            Ok(client) => explain(&client, session_id, error).await?,
            Err(_) => return Err(error.into()),
        },
        (None, Err(error)) => return Err(error),
    };
    let Damage { sequence, message } = &damage;
    if output.is_json() {
        output.note(damage.to_json());
    } else {
        let place = match sequence {
            0 => String::new(),
            sequence => format!(" at entry {sequence}"),
        };
        output.note(format!("{}{place}: {}", output.paint(Paint::Bad, "the history is damaged"), clean(message)));
    }
    Ok(Finding::Negative)
}
