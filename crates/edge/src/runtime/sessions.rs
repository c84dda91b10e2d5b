//! GetSession, CancelSession, ListSessions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use macp_kernel::{Caller, Command, Input, Settled};
use macp_ledger::{Failure, Filter, Head, Store};
use macp_wire::codes::Code;
use macp_wire::v1::{
    CancelSessionRequest, CancelSessionResponse, GetSessionRequest, GetSessionResponse, ListSessionsRequest,
    ListSessionsResponse, SessionMetadata,
};
use prost::Message;
use tonic::Status;

use super::send::report;
use crate::ack::Subject;
use crate::context::Context;
use crate::status;

/// Bytes of one page: clients take no message above 4 MiB unless told to.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Heads read at once. The summary in one may take a quarter of a megabyte, so a page is gathered in steps and never
/// read whole before it is known to fit.
pub(super) const HEADS_AT_ONCE: usize = 32;

/// Prefix of what is inside a page token.
const TOKEN_VERSION: &str = "v1:";

/// Longest token: the longest id, encoded, with room to spare.
const TOKEN_BYTES_MAX: usize = 512;

pub(super) async fn get(ctx: &Context, request: &GetSessionRequest) -> Result<GetSessionResponse, Status> {
    let session = ctx.engine.session(&request.session_id).await.map_err(|error| status::of_engine(&error))?;
    let session = session.ok_or_else(|| status::session_not_found(&request.session_id))?;
    Ok(GetSessionResponse { metadata: Some(session.metadata) })
}

/// Unknown sessions follow the standard's answer for a caller with a credential and the classic one without.
pub(super) async fn cancel(
    ctx: &Context,
    caller: Caller,
    request: CancelSessionRequest,
) -> Result<CancelSessionResponse, Status> {
    let CancelSessionRequest { session_id, reason } = request;
    let identified = caller.credential.identity().is_some();
    let command = Command { caller, input: Input::Cancel { reason } };
    let result = ctx.engine.submit(&session_id, command).await;
    if identified
        && let Ok(reply) = &result
        && let Settled::Rejected(rejection) = &reply.settled
        && rejection.code == Code::SessionNotFound
    {
        return Err(status::session_not_found(&session_id));
    }
    if let Err(error) = &result {
        report(&session_id, error);
    }
    let subject = Subject { session_id, message_id: String::new() };
    Ok(CancelSessionResponse { ack: Some(subject.answered(result, None, ctx.engine.now_ms())) })
}

pub(super) async fn list(ctx: &Context, request: &ListSessionsRequest) -> Result<ListSessionsResponse, Status> {
    let limit = page_size(ctx, request.page_size)?;
    let after = (!request.page_token.is_empty()).then(|| read_token(&request.page_token)).transpose()?;
    let store = std::sync::Arc::clone(ctx.engine.store());
    let (sessions, more) = tokio::task::spawn_blocking(move || read_page(&*store, after, limit))
        .await
        .map_err(|error| status::internal(error.to_string()))?
        .map_err(|failure| status::internal(status::with_causes(&failure)))?;
    let next_page_token = match sessions.last() {
        Some(last) if more => write_token(&last.session_id),
        _ => String::new(),
    };
    Ok(ListSessionsResponse { sessions, next_page_token })
}

/// As many sessions as a page may hold, by number and by bytes but at least one, and whether more follow.
fn read_page(
    store: &dyn Store,
    mut after: Option<String>,
    limit: usize,
) -> Result<(Vec<SessionMetadata>, bool), Failure> {
    let mut sessions = Vec::new();
    let mut bytes = 0;
    loop {
        // One more than there is room for tells whether anything follows.
        let asked = HEADS_AT_ONCE.min(limit + 1 - sessions.len());
        let heads = store.list(after.as_deref(), asked, Filter::All)?;
        for head in &heads {
            let session = metadata(head);
            bytes += session.encoded_len();
            if sessions.len() == limit || (bytes > PAGE_BYTES_MAX && !sessions.is_empty()) {
                return Ok((sessions, true));
            }
            sessions.push(session);
        }
        match heads.last() {
            Some(last) if heads.len() == asked => after = Some(last.session_id.to_string()),
            _ => return Ok((sessions, false)),
        }
    }
}

/// 0 is the default, too many are as many as there may be, negative ones are a mistake.
pub(crate) fn page_size(ctx: &Context, asked: i32) -> Result<usize, Status> {
    let settings = &ctx.settings;
    let asked = usize::try_from(asked).map_err(|_negative| status::invalid_request("page_size is negative"))?;
    let size = if asked == 0 { settings.list_page_size_default } else { asked };
    Ok(size.clamp(1, settings.list_page_size_max.max(1)))
}

/// What the session index knows of a session.
pub(super) fn metadata(head: &Head) -> SessionMetadata {
    let summary = SessionMetadata::decode(head.summary.clone()).unwrap_or_else(|error| {
        tracing::error!(session = &*head.session_id, %error, "index summary is unreadable");
        SessionMetadata::default()
    });
    SessionMetadata {
        session_id: head.session_id.to_string(),
        state: head.state,
        expires_at_unix_ms: head.deadline_ms,
        ..summary
    }
}

fn write_token(last_id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{TOKEN_VERSION}{last_id}"))
}

fn read_token(token: &str) -> Result<String, Status> {
    // How it is malformed helps nobody: a token is opaque to the client.
    let read = || {
        let bytes = (token.len() <= TOKEN_BYTES_MAX).then(|| URL_SAFE_NO_PAD.decode(token).ok()).flatten()?;
        Some(String::from_utf8(bytes).ok()?.strip_prefix(TOKEN_VERSION)?.to_owned())
    };
    read().ok_or_else(|| status::invalid_request("page_token is none that was given out here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back() {
        for id in ["s1", "", "späť", &"x".repeat(256)] {
            assert_eq!(read_token(&write_token(id)).expect("a token"), id);
        }
    }

    #[test]
    fn other_tokens_are_refused() {
        let foreign = URL_SAFE_NO_PAD.encode("v2:s1");
        let binary = URL_SAFE_NO_PAD.encode([b'v', b'1', b':', 0xff]);
        let padded = format!("{}==", write_token("s1"));
        for token in ["s1", "!", &foreign, &binary, &padded, &"A".repeat(516)] {
            let error = read_token(token).expect_err(token);
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
        }
    }
}
