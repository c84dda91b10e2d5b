//! WhatIfReplay: a recorded session under a policy it was not bound to.

use macp_archive::{Source, WhatIfError, what_if};
use macp_kernel::Profile;
use macp_kernel::policy::validate_candidate;
use macp_ledger::History;
use macp_wire::codes::Code;
use macp_wire::v1::{WhatIfReplayRequest, WhatIfReplayResponse};
use prost::Message;
use tonic::Status;

use crate::access::Access;
use crate::context::Context;
use crate::history::{blocking, failed};
use crate::rate::Kind;
use crate::status;

/// Longest answer, in bytes: clients take no message above 4 MiB unless told to. A session of many entries may have a
/// denial for each.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;

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
    let turn = ctx.history_readers.enter(access).await?;
    blocking(ctx, move |store| {
        let _turn = turn;
        let history = History::open(store, &session_id).map_err(|failure| failed(&failure))?;
        let history = history.ok_or_else(|| status::session_not_found(&session_id))?;
        let answer = what_if(&mut Source::Store(history), policy, ANSWER_BYTES_MAX).map_err(|error| match error {
            WhatIfError::TooLong { .. } => too_long(),
            error => failed(&error),
        })?;
        check_length(answer)
    })
    .await
}

/// Counted as it grows, without the two resolutions and the denials at its ends; they are bounded by the limits on
/// payloads and policies, and counted here.
fn check_length(answer: WhatIfReplayResponse) -> Result<WhatIfReplayResponse, Status> {
    if answer.encoded_len() <= ANSWER_BYTES_MAX { Ok(answer) } else { Err(too_long()) }
}

/// A client that takes no longer message would hear of a transport that failed, and not why.
fn too_long() -> Status {
    let message = format!(
        "the answer is longer than {ANSWER_BYTES_MAX} bytes, the most that is sent; export the session and ask `macp \
         replay FILE --what-if-policy FILE`"
    );
    status::coded(Code::PayloadTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_no_client_would_take_is_refused_with_a_code() {
        let answer = |length| WhatIfReplayResponse { candidate_policy_id: "x".repeat(length), ..Default::default() };
        assert!(check_length(answer(ANSWER_BYTES_MAX / 2)).is_ok());
        let refused = check_length(answer(ANSWER_BYTES_MAX)).expect_err("too long");
        assert_eq!(refused.metadata().get(status::ERROR_CODE).expect("a code"), "PAYLOAD_TOO_LARGE");
    }
}
