//! What is told of a session that is not asked itself: how it stands, for refusals that never asked it (a share used up,
//! overload, our own failure), and who may read it, for lists of what belongs to sessions.
//!
//! What the index says is enough. To load a session for these would make a flood of refusals dearer than what is
//! refused, and a list as dear as all that it names; to wait for long would keep a refusal from whoever is to come again
//! soon.

use macp_kernel::{Credential, ID_BYTES_MAX};
use macp_ledger::Store;
use macp_wire::v1::{SessionMetadata, SessionState};
use tonic::Status;

use super::sessions::metadata;
use crate::access::Access;
use crate::context::Context;
use crate::history::{blocking, failed, first_record, owners};

/// The state of a session the caller may know of; unspecified if there is none, or it cannot be had soon.
pub(super) async fn state(ctx: &Context, access: &Access, session_id: &str) -> SessionState {
    let can_be_one = !session_id.is_empty() && session_id.len() <= ID_BYTES_MAX;
    if !can_be_one || matches!(access.caller.credential, Credential::Refused(_)) {
        return SessionState::Unspecified;
    }
    match tokio::time::timeout(ctx.settings.state_patience, look(ctx, access, session_id.to_owned())).await {
        Ok(Ok(state)) => state,
        Ok(Err(status)) => {
            tracing::debug!(session = session_id, error = status.message(), "cannot tell how a session stands");
            SessionState::Unspecified
        }
        Err(_too_late) => SessionState::Unspecified,
    }
}

async fn look(ctx: &Context, access: &Access, session_id: String) -> Result<SessionState, Status> {
    let turn = ctx.state_readers.enter(access).await?;
    let access = access.clone();
    blocking(ctx, move |store| {
        let _turn = turn;
        known(store, &access, &session_id)
    })
    .await
}

/// Told to whoever could read the session, or has a role in it; to others it is as if there were none. The session
/// itself (`Session::shows_itself_to`) also tells those whom its policy lets commit, of whom the index knows nothing.
fn known(store: &dyn Store, access: &Access, session_id: &str) -> Result<SessionState, Status> {
    let Some(head) = store.head(session_id).map_err(|failure| failed(&failure))? else {
        return Ok(SessionState::Unspecified);
    };
    let session = metadata(&head);
    let scope = &access.caller.scope;
    let is_told = scope.may_cancel || scope.may_suspend || reads(store, access, &session)?;
    Ok(if is_told { session.state() } else { SessionState::Unspecified })
}

/// Whether the caller may read a session, without loading it; nobody reads one that is not there.
pub(crate) fn may_read(store: &dyn Store, access: &Access, session_id: &str) -> Result<bool, Status> {
    match store.head(session_id).map_err(|failure| failed(&failure))? {
        Some(head) => reads(store, access, &metadata(&head)),
        None => Ok(false),
    }
}

fn reads(store: &dyn Store, access: &Access, session: &SessionMetadata) -> Result<bool, Status> {
    let sees = access.sees(session);
    if sees || !session.participants.is_empty() {
        return Ok(sees);
    }
    // Whether a roster without anyone means anyone, the index does not know.
    let owners = owners(&first_record(store, &session.session_id)?);
    Ok(owners.is_some_and(|(profile, session)| access.check_read_of(profile, &session).is_ok()))
}
