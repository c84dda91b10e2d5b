//! GetSession, ListSessions, and what ends, pauses and resumes a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
use super::standing;
use crate::access::Access;
use crate::ack::Subject;
use crate::context::Context;
use crate::status;

/// Bytes of one page: clients take no message above 4 MiB unless told to.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Heads read at once. The summary in one may take a quarter of a megabyte, so a page is gathered in steps and never
/// read whole before it is known to fit.
const HEADS_AT_ONCE: usize = 32;

/// Heads looked at in one call. Someone who may see few of many sessions would otherwise read the whole index for a
/// page; so many take some hundredths of a second, and the token leads on from there.
const LOOKS_MAX: usize = 8_192;

pub(super) async fn get(
    ctx: &Context,
    access: &Access,
    request: &GetSessionRequest,
) -> Result<GetSessionResponse, Status> {
    let _turn = ctx.session_readers.enter(access).await?;
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
    let session_asked = result.is_ok();
    let subject = Subject { session_id, message_id: String::new() };
    let mut ack = subject.answered(result, access.sees_all(), None, ctx.engine.now_ms());
    if !session_asked {
        ack.session_state = standing::state(ctx, access, &ack.session_id).await.into();
    }
    Ok(Some(ack))
}

pub(super) async fn list(
    ctx: &Context,
    access: &Access,
    request: &ListSessionsRequest,
) -> Result<ListSessionsResponse, Status> {
    let limit = page_size(ctx, request.page_size)?;
    let caller = access.identity().unwrap_or_default();
    let after = ctx.page_tokens.read(caller, &request.page_token)?;
    // A caller who may see few of many sessions makes for long reads; only so many at a time.
    let turn = ctx.brief_readers.enter(access).await?;
    let asked = Asked::default();
    let reading = {
        let (store, access, asked) = (Arc::clone(ctx.engine.store()), access.clone(), asked.flag());
        move || {
            let _turn = turn;
            let bounds = Bounds { sessions: limit, looks: LOOKS_MAX };
            read_page(&*store, after, bounds, &asked, |session| access.sees(session))
        }
    };
    let page = tokio::task::spawn_blocking(reading)
        .await
        .map_err(|error| status::internal(error.to_string()))?
        .map_err(|failure| status::internal(status::with_causes(&failure)))?;
    let next_page_token = match page.next {
        Next::Nothing => String::new(),
        Next::AfterShown(id) => ctx.page_tokens.write(caller, &id, true)?,
        Next::AfterHidden(id) => ctx.page_tokens.write(caller, &id, false)?,
    };
    Ok(ListSessionsResponse { sessions: page.sessions, next_page_token })
}

/// Whether a request is still waited for: a thread cannot be stopped from outside, so it looks here.
#[derive(Debug, Default)]
struct Asked {
    given_up: Arc<AtomicBool>,
}

impl Asked {
    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.given_up)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// What a page may hold, and cost.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    sessions: usize,
    looks: usize,
}

#[derive(Debug)]
struct Page {
    sessions: Vec<SessionMetadata>,
    next: Next,
}

/// Where the next page begins, when anything may follow.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    AfterShown(String),
    /// A session the caller may not see: nothing may tell of it.
    AfterHidden(String),
}

/// As many sessions as a page may hold, by number and by bytes but at least one; or what was found when enough was
/// looked at.
fn read_page(
    store: &dyn Store,
    mut after: Option<String>,
    bounds: Bounds,
    given_up: &AtomicBool,
    is_shown: impl Fn(&SessionMetadata) -> bool,
) -> Result<Page, Failure> {
    let mut sessions: Vec<SessionMetadata> = Vec::new();
    let (mut bytes, mut looks) = (0, 0);
    loop {
        let heads = store.list(after.as_deref(), HEADS_AT_ONCE, Filter::All)?;
        for head in &heads {
            let session = metadata(head);
            if is_shown(&session) {
                bytes += session.encoded_len();
                if sessions.len() == bounds.sessions || (bytes > PAGE_BYTES_MAX && !sessions.is_empty()) {
                    let last = sessions.last().map(|session| session.session_id.clone());
                    return Ok(Page { sessions, next: last.map_or(Next::Nothing, Next::AfterShown) });
                }
                sessions.push(session);
            }
        }
        let Some(last) = heads.last().filter(|_| heads.len() == HEADS_AT_ONCE) else {
            return Ok(Page { sessions, next: Next::Nothing });
        };
        looks += heads.len();
        let last = last.session_id.to_string();
        if looks >= bounds.looks || given_up.load(Ordering::Relaxed) {
            let is_shown = sessions.last().is_some_and(|session| session.session_id == last);
            return Ok(Page {
                sessions,
                next: if is_shown { Next::AfterShown(last) } else { Next::AfterHidden(last) },
            });
        }
        after = Some(last);
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use macp_ledger::{Append, IndexUpdate, MemoryStore, record};
    use macp_wire::history::v1::Entry;

    use super::*;

    /// A store of so many sessions, `s000` and on.
    fn store(sessions: usize) -> MemoryStore {
        let store = MemoryStore::new();
        let index = IndexUpdate { open: true, deadline_ms: 0, state: 1, summary: None };
        let appends = (0..sessions).map(|number| Append {
            session_id: format!("s{number:03}").into(),
            expected_sequence: 0,
            expected_hash: None,
            records: vec![record::seal(None, &Entry { sequence: 1, ..Entry::default() })],
            index: index.clone(),
        });
        let stored = store.append(&appends.collect::<Vec<_>>());
        assert!(stored.iter().all(Result::is_ok));
        store
    }

    fn check(looks: usize, shown: &[&str], expected: (&[&str], Next)) {
        let bounds = Bounds { sessions: 2, looks };
        let is_shown = |session: &SessionMetadata| shown.contains(&session.session_id.as_str());
        let page = read_page(&store(200), None, bounds, &AtomicBool::new(false), is_shown).expect("a page");
        let sessions: Vec<_> = page.sessions.iter().map(|session| session.session_id.as_str()).collect();
        assert_eq!((&*sessions, page.next), expected);
    }

    #[test]
    fn a_page_ends_when_it_is_full_or_enough_was_looked_at() {
        check(1_000, &["s001", "s150"], (&["s001", "s150"], Next::Nothing));
        check(1_000, &["s001", "s002", "s150"], (&["s001", "s002"], Next::AfterShown("s002".into())));
        check(64, &["s001", "s150"], (&["s001"], Next::AfterHidden("s063".into())));
        check(64, &["s063"], (&["s063"], Next::AfterShown("s063".into())));
        check(1, &[], (&[], Next::AfterHidden("s031".into())));
    }

    #[test]
    fn nobody_reads_on_for_a_client_that_left() {
        let asked = Asked::default();
        let (flag, asked, looks) = (asked.flag(), Cell::new(Some(asked)), Cell::new(0));
        let leaves_at_the_first_look = |_: &SessionMetadata| {
            drop(asked.take());
            looks.set(looks.get() + 1);
            false
        };
        let bounds = Bounds { sessions: 10, looks: usize::MAX };
        read_page(&store(200), None, bounds, &flag, leaves_at_the_first_look).expect("a page");
        assert_eq!(looks.get(), HEADS_AT_ONCE, "what had been read is looked at, and no more is read");
    }
}
