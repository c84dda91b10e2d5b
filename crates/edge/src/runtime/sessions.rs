//! GetSession, ListSessions, and what ends, pauses and resumes a session.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use macp_engine::Snapshot;
use macp_kernel::{Command, Input, Profile, Settled};
use macp_ledger::{Failure, Filter, Head, Store};
use macp_wire::codes::Code;
use macp_wire::v1::{
    Ack, GetSessionRequest, GetSessionResponse, ListSessionsRequest, ListSessionsResponse, SessionMetadata,
};
use prost::Message;
use tonic::Status;

use super::send::report;
use crate::access::Access;
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

pub(super) async fn get(
    ctx: &Context,
    access: &Access,
    request: &GetSessionRequest,
) -> Result<GetSessionResponse, Status> {
    let session = readable(ctx, access, &request.session_id).await?;
    Ok(GetSessionResponse { metadata: Some(session.metadata) })
}

/// A session as it is now. Asking is a touch: what time made due happens first.
pub(crate) async fn snapshot(ctx: &Context, session_id: &str) -> Result<Option<Snapshot>, Status> {
    ctx.engine.session(session_id).await.map_err(|error| status::of_engine(&error))
}

/// A session the caller may read.
pub(crate) async fn readable(ctx: &Context, access: &Access, session_id: &str) -> Result<Snapshot, Status> {
    let session = snapshot(ctx, session_id).await?.ok_or_else(|| status::session_not_found(session_id))?;
    access.check_read(&session)?;
    Ok(session)
}

/// CancelSession, SuspendSession and ResumeSession. Who may not do it, and what does not exist, is told the standard
/// way to a caller with a credential: by a status. The classic way is the Ack.
pub(super) async fn control(
    ctx: &Context,
    access: &Access,
    session_id: String,
    input: Input,
) -> Result<Option<Ack>, Status> {
    let command = Command { caller: access.caller.clone(), input };
    let result = ctx.engine.submit(&session_id, command).await;
    if let Ok(reply) = &result
        && let Settled::Rejected(rejection) = &reply.settled
    {
        match rejection.code {
            Code::SessionNotFound if access.identity().is_some() => return Err(status::session_not_found(&session_id)),
            Code::Unauthenticated | Code::Forbidden if reply.profile == Some(Profile::Standard) => {
                return Err(status::coded(rejection.code, rejection.message.as_str()));
            }
            _ => {}
        }
    }
    if let Err(error) = &result {
        report(&session_id, error);
    }
    let subject = Subject { session_id, message_id: String::new() };
    Ok(Some(subject.answered(result, None, ctx.engine.now_ms())))
}

pub(super) async fn list(
    ctx: &Context,
    access: &Access,
    request: &ListSessionsRequest,
) -> Result<ListSessionsResponse, Status> {
    let limit = page_size(ctx, request.page_size)?;
    let after = (!request.page_token.is_empty()).then(|| read_token(&request.page_token)).transpose()?;
    let (store, access) = (std::sync::Arc::clone(ctx.engine.store()), access.clone());
    // A caller who may see few of many sessions makes for long reads; only so many at a time.
    let permit = if access.sees_all() { None } else { Some(crate::history::reader(ctx).await) };
    let reading = move || {
        let _permit = permit;
        read_page(&*store, after, limit, |session| access.sees(session))
    };
    let page = tokio::task::spawn_blocking(reading)
        .await
        .map_err(|error| status::internal(error.to_string()))?
        .map_err(|failure| status::internal(status::with_causes(&failure)))?;
    let next_page_token = page.after.as_deref().map(write_token).unwrap_or_default();
    Ok(ListSessionsResponse { sessions: page.sessions, next_page_token })
}

struct Page {
    sessions: Vec<SessionMetadata>,
    /// Where the next page begins, when anything may follow.
    after: Option<String>,
}

/// As many sessions as a page may hold, by number and by bytes but at least one.
fn read_page(
    store: &dyn Store,
    mut after: Option<String>,
    limit: usize,
    is_shown: impl Fn(&SessionMetadata) -> bool,
) -> Result<Page, Failure> {
    let mut sessions: Vec<SessionMetadata> = Vec::new();
    let mut bytes = 0;
    loop {
        let heads = store.list(after.as_deref(), HEADS_AT_ONCE, Filter::All)?;
        for head in &heads {
            let session = metadata(head);
            if is_shown(&session) {
                bytes += session.encoded_len();
                if sessions.len() == limit || (bytes > PAGE_BYTES_MAX && !sessions.is_empty()) {
                    // From what was shown: a token must not tell of sessions the caller may not see.
                    let after = sessions.last().map(|session| session.session_id.clone());
                    return Ok(Page { sessions, after });
                }
                sessions.push(session);
            }
            after = Some(head.session_id.to_string());
        }
        if heads.len() < HEADS_AT_ONCE {
            return Ok(Page { sessions, after: None });
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
    SessionMetadata { session_id: head.session_id.to_string(), state: head.state, ..summary }
}

pub(crate) fn write_token(last_id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{TOKEN_VERSION}{last_id}"))
}

pub(crate) fn read_token(token: &str) -> Result<String, Status> {
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
