//! `macp session cancel`.

use macp_client::Error;
use macp_wire::v1::{Ack, MacpError};

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;

/// End an open session; one that has ended stays as it is
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

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let client = args.server.connect().await?;
    let ack = match client.cancel(&args.session, &args.reason).await {
        Ok(ack) => ack,
        Err(Error::Refused(refusal)) => Ack {
            session_id: args.session,
            session_state: refusal.state.into(),
            error: Some(MacpError { code: refusal.code, message: refusal.message, ..MacpError::default() }),
            ..Ack::default()
        },
        Err(error) => return Err(error.into()),
    };
    super::show_ack(&ack, output)
}
