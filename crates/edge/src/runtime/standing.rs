//! How a session stands, for refusals that never asked it: a share used up, overload, our own failure.
//!
//! What the index says is enough. To load a session for these would make a flood of refusals dearer than what is
//! refused.

use std::time::Duration;

use macp_kernel::Credential;
use macp_ledger::Store;
use macp_wire::v1::SessionState;
use tonic::Status;

use super::sessions::metadata;
use crate::access::Access;
use crate::context::Context;
use crate::history::{blocking, failed, first_record, owners};

/// What a refusal waits for it. These come when the server is too busy or its disk fails, and to hear of that late is
/// worse than not to hear of the session.
const PATIENCE: Duration = Duration::from_millis(250);

/// The state of a session the caller may know of; unspecified if there is none, or it cannot be had soon.
pub(super) async fn state(ctx: &Context, access: &Access, session_id: &str) -> SessionState {
    if session_id.is_empty() || matches!(access.caller.credential, Credential::Refused(_)) {
        return SessionState::Unspecified;
    }
    match tokio::time::timeout(PATIENCE, look(ctx, access, session_id.to_owned())).await {
        Ok(Ok(state)) => state,
        Ok(Err(status)) => {
            tracing::debug!(session = session_id, error = status.message(), "cannot tell how a session stands");
            SessionState::Unspecified
        }
        Err(_too_late) => SessionState::Unspecified,
    }
}

async fn look(ctx: &Context, access: &Access, session_id: String) -> Result<SessionState, Status> {
    let leave = ctx.brief_readers.enter(access.identity()).await;
    let access = access.clone();
    blocking(ctx, move |store| {
        let _leave = leave;
        known(store, &access, &session_id)
    })
    .await
}

/// Told to whoever could read the session, or has a role in it; to others it is as if there were none.
fn known(store: &dyn Store, access: &Access, session_id: &str) -> Result<SessionState, Status> {
    let Some(head) = store.head(session_id).map_err(|failure| failed(&failure))? else {
        return Ok(SessionState::Unspecified);
    };
    let session = metadata(&head);
    let scope = &access.caller.scope;
    let is_told = access.sees(&session) || scope.may_cancel || scope.may_suspend || {
        // Whether anyone may take part, the index does not know.
        let owners = owners(&first_record(store, session_id)?);
        owners.is_some_and(|(profile, session)| access.check_read_of(profile, &session).is_ok())
    };
    Ok(if is_told { session.state() } else { SessionState::Unspecified })
}
