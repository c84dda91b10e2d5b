//! What both profiles ask of a session before a message becomes history, and how it does.

use macp_wire::codes::Code;
use macp_wire::history::v1::{self as history, Entry, ExpiryCause, RecordedSignature, Terminal, entry};
use macp_wire::v1::{Envelope, SessionState};
use prost::Message;
use sha2::{Digest, Sha256};

use super::Submission;
use crate::decide::{Accepted, Change, Verdict};
use crate::mode::{self, Response};
use crate::session::{Position, Seen, Session, State};
use crate::{Binding, Limits, Rejection, SUSPENSIONS_MAX, SignatureCheck, Suspension};

/// Asks the mode about a message that passed every check, and makes the entry.
pub(super) fn accept(
    session: &Session,
    bound: Envelope,
    submission: &Submission<'_>,
    now: i64,
) -> Result<Verdict, Rejection> {
    let identity = submission.caller.credential.identity().unwrap_or_default().to_owned();
    let mut accepted = judged(session, bound, now)?;
    accepted.entry.identity = identity;
    accepted.entry.signature = recorded(submission.signature);
    Ok(Verdict::Accept(Box::new(accepted)))
}

/// The entry of a message and what it changes, by the word of the mode.
pub(crate) fn judged(session: &Session, bound: Envelope, now: i64) -> Result<Accepted, Rejection> {
    let (mode_change, resolution) = match session.mode_state.judge(&session.view(now), &bound)? {
        Response::NoOp => (None, None),
        Response::Persist(change) => (Some(change), None),
        Response::Resolve(resolution) => (None, Some(resolution)),
        Response::PersistAndResolve { change, resolution } => (Some(change), Some(resolution)),
    };
    let terminal = resolution.as_ref().map(|resolution| Terminal {
        state: SessionState::Resolved.into(),
        resolution_sha256: Sha256::digest(resolution).to_vec().into(),
        history_hash: Default::default(),
    });
    let entry = Entry {
        sequence: session.position.sequence + 1,
        ordinal: session.ordinal + 1,
        accepted_at_unix_ms: now,
        input: Some(entry::Input::Envelope(bound)),
        terminal,
        ..Entry::default()
    };
    Ok(Accepted { entry, change: Change::Message { mode: mode_change, resolution } })
}

/// A start that has passed every check of its profile.
pub(super) struct Beginning {
    /// With its sender bound.
    pub(super) bound: Envelope,
    pub(super) binding: Binding,
    /// The binding as the first entry has it.
    pub(super) written: history::Binding,
    pub(super) mode_state: mode::State,
    pub(super) deadline_ms: i64,
    pub(super) suspend_ms_max: i64,
}

/// Makes the session and its first entry.
pub(super) fn begin(beginning: Beginning, submission: &Submission<'_>, now: i64) -> Verdict {
    let Beginning { bound, binding, written, mode_state, deadline_ms, suspend_ms_max } = beginning;
    let mut seen = Seen::default();
    seen.insert(&bound.message_id, now);
    let mut session = Session {
        id: bound.session_id.as_str().into(),
        position: Position {
            state: State::Open,
            deadline_ms,
            quiet_until_ms: deadline_ms,
            sequence: 1,
            latest_ms: now,
        },
        ordinal: 1,
        started_at_ms: now,
        start_timestamp_ms: bound.timestamp_unix_ms,
        bytes: bound.encoded_len() as u64,
        seen,
        activity: Default::default(),
        mode_state,
        suspension: Suspension::new(suspend_ms_max),
        resolution: None,
        cancelled: false,
        expiry: ExpiryCause::Unspecified,
        binding,
    };
    session.reschedule();
    let entry = Entry {
        sequence: 1,
        ordinal: 1,
        accepted_at_unix_ms: now,
        identity: submission.caller.credential.identity().unwrap_or_default().to_owned(),
        input: Some(entry::Input::Envelope(bound)),
        signature: recorded(submission.signature),
        binding: Some(Box::new(written)),
        ..Entry::default()
    };
    Verdict::Accept(Box::new(Accepted { entry, change: Change::Start(Box::new(session)) }))
}

/// The timestamp of a start that its deadline counts from, if it states one.
pub(super) fn stated_base(envelope: &Envelope) -> Option<i64> {
    Some(envelope.timestamp_unix_ms).filter(|timestamp_ms| *timestamp_ms > 0)
}

pub(super) fn deadline(base_ms: i64, ttl_ms: i64) -> i64 {
    base_ms.saturating_add(ttl_ms)
}

/// A wrong client clock must not keep a session alive for years.
pub(super) fn check_skew(envelope: &Envelope, now: i64, limits: &Limits) -> Result<(), Rejection> {
    let ahead_ms = envelope.timestamp_unix_ms.saturating_sub(now);
    if ahead_ms <= limits.skew_ms_max {
        return Ok(());
    }
    Err(Rejection::operational(
        Code::InvalidEnvelope,
        format!(
            "timestamp_unix_ms is {ahead_ms} ms ahead of the server's clock, a skew of at most {} ms is allowed",
            limits.skew_ms_max
        ),
    ))
}

/// The text names the deadline and where it came from, because clients exist that send a constant timestamp.
pub(crate) fn check_open(session: &Session) -> Result<(), Rejection> {
    let message = match session.position.state {
        State::Open => return Ok(()),
        State::Suspended => "the session is suspended".to_owned(),
        State::Resolved => "the session is resolved".to_owned(),
        State::Cancelled => "the session was cancelled".to_owned(),
        State::Expired if session.cancelled => "the session was cancelled".to_owned(),
        State::Expired if session.expiry == ExpiryCause::SuspensionTime => {
            format!("the session is expired: it was suspended for more than {} ms", session.suspension.cap_ms)
        }
        State::Expired if session.expiry == ExpiryCause::SuspensionCount => {
            format!("the session is expired: it was suspended more than {SUSPENSIONS_MAX} times")
        }
        State::Expired => format!(
            "the session is expired: its deadline was {}, counted from {}",
            session.position.deadline_ms,
            if session.start_timestamp_ms > 0 {
                format!("the start timestamp {}", session.start_timestamp_ms)
            } else {
                format!("its acceptance at {}", session.started_at_ms)
            }
        ),
    };
    Err(Rejection::new(Code::SessionNotOpen, message))
}

/// What keeps one session from growing without bound.
pub(super) fn check_caps(session: &Session, envelope: &Envelope) -> Result<(), Rejection> {
    let binding = &session.binding;
    if session.position.sequence >= binding.entries_max {
        return Err(Rejection::invalid(format!("the session is full: it may have {} entries", binding.entries_max)));
    }
    if session.bytes + envelope.encoded_len() as u64 > binding.bytes_max {
        return Err(Rejection::new(
            Code::PayloadTooLarge,
            format!("the session is full: it may have {} bytes", binding.bytes_max),
        ));
    }
    Ok(())
}

pub(super) fn recorded(signature: &SignatureCheck) -> Option<RecordedSignature> {
    match signature {
        SignatureCheck::Valid(recorded) | SignatureCheck::Unregistered(recorded) => Some(recorded.clone()),
        SignatureCheck::Absent | SignatureCheck::Invalid(_) => None,
    }
}
