//! `decide`, `apply`, `due`: the three functions everything goes through, and `step`, which joins them.

use bytes::Bytes;
use macp_wire::codes::Code;
use macp_wire::history::v1::{Entry, Terminal, TtlExpired, entry};
use macp_wire::v1::{SessionCancelPayload, SessionState};
use prost::Message;
use smol_str::SmolStr;

use crate::admission::classic;
use crate::session::{Position, Session, State};
use crate::{Caller, Command, Credential, Input, Limits, REASON_BYTES_MAX, Rejection, SESSION_START, mode};

/// What becomes of a command.
#[derive(Debug)]
pub enum Verdict {
    /// It becomes this entry, and makes this change.
    Accept(Box<Accepted>),
    /// The same message was accepted before; nothing happens.
    Duplicate {
        accepted_at_ms: i64,
    },
    /// Granted, and there is nothing to do: the session has ended already.
    Unchanged,
    /// Time has made these due first. They stand whatever becomes of the command: apply them, then decide again.
    Due(Vec<Command>),
    Reject(Rejection),
}

#[derive(Debug)]
pub struct Accepted {
    pub entry: Entry,
    pub change: Change,
}

/// What an entry changes. Derived from the entry and the session it was decided on, and so never stored.
#[derive(Debug)]
pub enum Change {
    Start(Box<Session>),
    Message {
        mode: Option<mode::Change>,
        resolution: Option<Bytes>,
    },
    /// Ended EXPIRED: by its deadline, or cancelled.
    End {
        cancelled: bool,
    },
}

/// Looks at a command and never touches anything.
pub fn decide(session: Option<&Session>, command: &Command, now: i64, limits: &Limits) -> Verdict {
    let caller = &command.caller;
    let verdict = match &command.input {
        Input::Envelope { envelope, signature } => {
            let judge = match envelope.message_type.as_str() {
                SESSION_START => classic::start,
                _ => classic::message,
            };
            judge(session, envelope, signature, caller, now, limits)
        }
        Input::Cancel { reason } => decide_cancel(session, caller, reason, now),
        Input::Expire => decide_expiry(session, now),
    };
    verdict.unwrap_or_else(Verdict::Reject)
}

/// Touches the session and never refuses. `change` is what [`decide`] derived together with `entry`.
pub fn apply(slot: &mut Option<Session>, entry: &Entry, change: Change) {
    match change {
        Change::Start(session) => *slot = Some(*session),
        Change::Message { mode, resolution } => {
            let session = slot.as_mut().expect("a message was decided on a session");
            let Some(entry::Input::Envelope(envelope)) = &entry.input else {
                unreachable!("a message's entry holds its envelope");
            };
            session.position.sequence = entry.sequence;
            session.ordinal = entry.ordinal;
            session.bytes += envelope.encoded_len() as u64;
            session.seen.insert(&envelope.message_id, entry.accepted_at_unix_ms);
            let activity = session.activity.entry(SmolStr::new(&envelope.sender)).or_default();
            activity.last_at_ms = entry.accepted_at_unix_ms;
            activity.count = activity.count.saturating_add(1);
            if let Some(change) = mode {
                session.mode_state.apply(change);
            }
            if let Some(resolution) = resolution {
                session.resolution = Some(resolution);
                session.position.state = State::Resolved;
            }
        }
        Change::End { cancelled } => {
            let session = slot.as_mut().expect("an end was decided on a session");
            session.position.sequence = entry.sequence;
            session.position.state = State::Expired;
            session.cancelled = cancelled;
        }
    }
}

/// What time alone makes happen to a session standing here.
pub fn due(position: &Position, now: i64) -> Vec<Command> {
    if position.state.is_open() && now > position.deadline_ms {
        vec![Command { caller: Caller::anonymous(), input: Input::Expire }]
    } else {
        Vec::new()
    }
}

/// The entry that ends an open session whose deadline has passed. Needs the position alone, so that sessions can
/// expire without being loaded.
pub fn expire(position: &Position, now: i64) -> Option<Entry> {
    if due(position, now).is_empty() {
        return None;
    }
    Some(Entry {
        sequence: position.sequence + 1,
        accepted_at_unix_ms: now,
        input: Some(entry::Input::TtlExpired(TtlExpired { deadline_unix_ms: position.deadline_ms })),
        terminal: Some(expired_terminal()),
        ..Entry::default()
    })
}

fn decide_expiry(session: Option<&Session>, now: i64) -> Result<Verdict, Rejection> {
    let session = existing(session)?;
    Ok(match expire(&session.position, now) {
        Some(entry) => Verdict::Accept(Box::new(Accepted { entry, change: Change::End { cancelled: false } })),
        None => Verdict::Unchanged,
    })
}

fn decide_cancel(session: Option<&Session>, caller: &Caller, reason: &str, now: i64) -> Result<Verdict, Rejection> {
    if let Credential::Refused(reason) = &caller.credential {
        return Err(Rejection::unauthenticated(reason));
    }
    let session = existing(session)?;
    let identity = caller.credential.identity().unwrap_or_default();
    if !identity.is_empty() && identity != session.binding.initiator {
        return Err(Rejection::new(Code::Forbidden, "only the initiator may cancel a session"));
    }
    let due = due(&session.position, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    if !session.position.state.is_open() {
        return Ok(Verdict::Unchanged);
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(Rejection::invalid(format!(
            "the reason is {} bytes long, at most {REASON_BYTES_MAX} are allowed",
            reason.len()
        )));
    }
    let entry = Entry {
        sequence: session.position.sequence + 1,
        accepted_at_unix_ms: now,
        identity: identity.to_owned(),
        input: Some(entry::Input::SessionCancel(SessionCancelPayload {
            reason: reason.to_owned(),
            cancelled_by: identity.to_owned(),
        })),
        terminal: Some(expired_terminal()),
        ..Entry::default()
    };
    Ok(Verdict::Accept(Box::new(Accepted { entry, change: Change::End { cancelled: true } })))
}

fn existing(session: Option<&Session>) -> Result<&Session, Rejection> {
    session.ok_or_else(|| Rejection::new(Code::SessionNotFound, "there is no such session"))
}

/// Classic sessions that are cancelled or run out of time both end EXPIRED.
fn expired_terminal() -> Terminal {
    Terminal { state: SessionState::Expired.into(), ..Terminal::default() }
}

/// A command after everything time made due before it.
#[derive(Debug)]
pub struct Outcome {
    /// New history, in order: what was due, then the command's own entry if it was accepted.
    pub entries: Vec<Entry>,
    pub settled: Settled,
}

/// A verdict with nothing left to do first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    Accepted { accepted_at_ms: i64 },
    Duplicate { accepted_at_ms: i64 },
    Unchanged,
    Rejected(Rejection),
}

/// Decides a command and applies what comes of it, with what time made due before it.
pub fn step(slot: &mut Option<Session>, command: &Command, now: i64, limits: &Limits) -> Outcome {
    let mut entries = Vec::new();
    let settled = loop {
        match decide(slot.as_ref(), command, now, limits) {
            Verdict::Accept(accepted) => {
                let Accepted { entry, change } = *accepted;
                apply(slot, &entry, change);
                entries.push(entry);
                break Settled::Accepted { accepted_at_ms: now };
            }
            Verdict::Duplicate { accepted_at_ms } => break Settled::Duplicate { accepted_at_ms },
            Verdict::Unchanged => break Settled::Unchanged,
            Verdict::Reject(rejection) => break Settled::Rejected(rejection),
            Verdict::Due(commands) => {
                for due in commands {
                    entries.extend(step(slot, &due, now, limits).entries);
                }
            }
        }
    };
    Outcome { entries, settled }
}
