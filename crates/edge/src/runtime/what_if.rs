//! WhatIfReplay: a recorded session under a policy it was not bound to.

use macp_archive::{Source, what_if};
use macp_kernel::Profile;
use macp_kernel::policy::validate_candidate;
use macp_ledger::History;
use macp_wire::codes::Code;
use macp_wire::v1::{WhatIfReplayRequest, WhatIfReplayResponse};
use tonic::Status;

use crate::access::Access;
use crate::context::Context;
use crate::history::{blocking, failed};
use crate::rate::Kind;
use crate::status;

pub(super) async fn replay(
    ctx: &Context,
    access: &Access,
    request: WhatIfReplayRequest,
) -> Result<WhatIfReplayResponse, Status> {
    let WhatIfReplayRequest { session_id, candidate } = request;
    let session = super::sessions::readable(ctx, access, &session_id).await?;
    ctx.take_share(access, Kind::Message)?;
    if session.profile == Profile::Classic {
        return Err(status::invalid_request("classic sessions have no policies, so there is nothing to ask"));
    }
    let candidate = candidate.ok_or_else(|| status::invalid_request("the request holds no candidate"))?;
    let policy = validate_candidate(&candidate)
        .map_err(|error| status::coded(Code::InvalidPolicyDefinition, error.to_string()))?;
    if !policy.covers(&session.metadata.mode) {
        return Err(status::coded(
            Code::InvalidPolicyDefinition,
            format!("the candidate is for mode {:?}, the session's is {:?}", candidate.mode, session.metadata.mode),
        ));
    }
    let permit = ctx.history_readers.enter(access.identity()).await;
    blocking(ctx, move |store| {
        let _permit = permit;
        let history = History::open(store, &session_id).map_err(|failure| failed(&failure))?;
        let history = history.ok_or_else(|| status::session_not_found(&session_id))?;
        what_if(&mut Source::Store(history), policy).map_err(|error| failed(&error))
    })
    .await
}
