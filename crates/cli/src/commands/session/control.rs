//! `macp session cancel`, `suspend` and `resume`.

use macp_client::Error;
use macp_wire::v1::{Ack, MacpError};

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    /// Why, for the history
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// What is to be done to a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Cancel,
    Suspend,
    Resume,
}

pub(super) async fn run(verb: Verb, args: Args, output: &Output) -> anyhow::Result<Finding> {
    let client = args.server.connect().await?;
    let Args { session, reason, .. } = args;
    let answer = match verb {
        Verb::Cancel => client.cancel(&session, &reason).await,
        Verb::Suspend => client.suspend(&session, &reason).await,
        Verb::Resume => client.resume(&session, &reason).await,
    };
    let refused = |code: String, message: String, state| Ack {
        session_id: session.clone(),
        session_state: state,
        error: Some(MacpError { code, message, ..MacpError::default() }),
        ..Ack::default()
    };
    let ack = match answer {
        // What was done has no message of its own to name it.
        Ok(ack) if ack.session_id.is_empty() => Ack { session_id: session.clone(), ..ack },
        Ok(ack) => ack,
        Err(Error::Refused(refusal)) => refused(refusal.code, refusal.message, refusal.state.into()),
        // The standard tells by a status what the classic way tells in the Ack.
        Err(Error::Status(status))
            if matches!(status.macp_code.as_deref(), Some("SESSION_NOT_FOUND" | "FORBIDDEN")) =>
        {
            refused(status.macp_code.unwrap_or_default(), status.message, 0)
        }
        Err(error) => return Err(error.into()),
    };
    super::show_ack(&ack, output)
}
