//! What ends, pauses and resumes a session from outside its mode: cancel, suspend, resume, and time.

use macp_wire::codes::Code;
use macp_wire::history::v1::{Entry, ExpiryCause, Terminal, TtlExpired, entry};
use macp_wire::v1::{SessionCancelPayload, SessionResumePayload, SessionSuspendPayload};

use crate::decide::{Accepted, Change, Verdict, due, expired};
use crate::session::{Position, Session, State};
use crate::{Caller, Command, Credential, Input, Profile, REASON_BYTES_MAX, Rejection, SUSPENSIONS_MAX};

pub(crate) use crate::admission::check_open;

pub(crate) fn cancel(session: Option<&Session>, caller: &Caller, reason: &str, now: i64) -> Result<Verdict, Rejection> {
    let (session, identity) = authorized(session, caller, caller.scope.may_cancel, "cancel")?;
    let due = due(&session.position, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    if session.position.state.is_terminal() {
        return Ok(Verdict::Unchanged);
    }
    check_reason(reason)?;
    let state = match session.binding.profile {
        Profile::Classic => State::Expired,
        Profile::Standard => State::Cancelled,
    };
    let cancel = SessionCancelPayload { reason: reason.to_owned(), cancelled_by: identity.to_owned() };
    let entry = Entry {
        terminal: Some(terminal(state)),
        ..control(session, identity, entry::Input::SessionCancel(cancel), now)
    };
    Ok(accept(entry, Change::End { state, cancelled: true }))
}

pub(crate) fn suspend(
    session: Option<&Session>,
    caller: &Caller,
    reason: &str,
    now: i64,
) -> Result<Verdict, Rejection> {
    let (session, identity) = suspendable(session, caller)?;
    let due = due(&session.position, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    check_open(session)?;
    check_reason(reason)?;
    let suspend = SessionSuspendPayload { reason: reason.to_owned(), suspended_by: identity.to_owned() };
    let entry = control(session, identity, entry::Input::SessionSuspend(suspend), now);
    Ok(accept(entry, Change::Suspend))
}

pub(crate) fn resume(session: Option<&Session>, caller: &Caller, reason: &str, now: i64) -> Result<Verdict, Rejection> {
    let (session, identity) = suspendable(session, caller)?;
    let due = due(&session.position, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    let Some(since_ms) = session.suspension.since_ms else {
        check_open(session)?;
        return Err(Rejection::new(Code::SessionNotOpen, "the session is open, not suspended"));
    };
    if session.suspension.intervals.len() >= SUSPENSIONS_MAX {
        let input = Input::Expire(ExpiryCause::SuspensionCount);
        return Ok(Verdict::Due(vec![Command { caller: Caller::anonymous(), input }]));
    }
    check_reason(reason)?;
    let resume = SessionResumePayload {
        reason: reason.to_owned(),
        resumed_by: identity.to_owned(),
        banked_ms: session.position.deadline_ms.saturating_sub(since_ms).max(0),
    };
    let entry = control(session, identity, entry::Input::SessionResume(resume), now);
    Ok(accept(entry, Change::Resume))
}

/// Time ran out for the reason named.
pub(crate) fn expiry(session: Option<&Session>, cause: ExpiryCause, now: i64) -> Result<Verdict, Rejection> {
    let session = existing(session)?;
    let holds = match cause {
        ExpiryCause::Unspecified | ExpiryCause::SuspensionTime => expired(&session.position, now) == Some(cause),
        ExpiryCause::SuspensionCount => {
            session.suspension.since_ms.is_some() && session.suspension.intervals.len() >= SUSPENSIONS_MAX
        }
    };
    if !holds {
        return Ok(Verdict::Unchanged);
    }
    let entry = expired_entry(&session.position, cause, now);
    Ok(accept(entry, Change::End { state: State::Expired, cancelled: false }))
}

pub(crate) fn expired_entry(position: &Position, cause: ExpiryCause, now: i64) -> Entry {
    let expired = TtlExpired { deadline_unix_ms: position.deadline_ms, cause: cause.into() };
    Entry {
        sequence: position.sequence + 1,
        accepted_at_unix_ms: now,
        input: Some(entry::Input::TtlExpired(expired)),
        terminal: Some(terminal(State::Expired)),
        ..Entry::default()
    }
}

pub(crate) fn existing(session: Option<&Session>) -> Result<&Session, Rejection> {
    session.ok_or_else(|| Rejection::new(Code::SessionNotFound, "there is no such session"))
}

/// The session and who asks, if they may suspend and resume it.
fn suspendable<'a>(session: Option<&'a Session>, caller: &'a Caller) -> Result<(&'a Session, &'a str), Rejection> {
    let authorized = authorized(session, caller, caller.scope.may_suspend, "suspend or resume")?;
    if authorized.0.binding.profile == Profile::Classic {
        return Err(Rejection::new(Code::InvalidRequest, "classic sessions cannot be suspended"));
    }
    Ok(authorized)
}

/// The session and who asks, if they may do this to it: the initiator, whoever could commit, or a role that
/// configuration gave the right.
fn authorized<'a>(
    session: Option<&'a Session>,
    caller: &'a Caller,
    by_role: bool,
    action: &str,
) -> Result<(&'a Session, &'a str), Rejection> {
    if let Credential::Refused(reason) = &caller.credential {
        return Err(Rejection::unauthenticated(reason));
    }
    let session = existing(session)?;
    let binding = &session.binding;
    let Some(identity) = caller.credential.identity() else {
        return match binding.profile {
            // Local development without a credential: there is no identity to check.
            Profile::Classic => Ok((session, "")),
            Profile::Standard => Err(Rejection::unauthenticated("a standard session needs a credential")),
        };
    };
    let allowed = by_role || identity == binding.initiator || session.is_ended_by(identity);
    if !allowed {
        return Err(Rejection::forbidden(format!("{identity:?} may not {action} this session")));
    }
    Ok((session, identity))
}

fn check_reason(reason: &str) -> Result<(), Rejection> {
    if reason.len() <= REASON_BYTES_MAX {
        return Ok(());
    }
    Err(Rejection::invalid(format!(
        "the reason is {} bytes long, at most {REASON_BYTES_MAX} are allowed",
        reason.len()
    )))
}

fn control(session: &Session, identity: &str, input: entry::Input, now: i64) -> Entry {
    Entry {
        sequence: session.position.sequence + 1,
        accepted_at_unix_ms: now,
        identity: identity.to_owned(),
        input: Some(input),
        ..Entry::default()
    }
}

fn accept(entry: Entry, change: Change) -> Verdict {
    Verdict::Accept(Box::new(Accepted { entry, change }))
}

fn terminal(state: State) -> Terminal {
    Terminal { state: state.to_wire().into(), ..Terminal::default() }
}
