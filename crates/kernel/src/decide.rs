//! `decide`, `apply`, `due`: the three functions everything goes through, and `step`, which joins them.

use bytes::Bytes;
use macp_wire::history::v1::{Entry, ExpiryCause, entry};
use macp_wire::v1::Envelope;
use prost::Message;
use smol_str::SmolStr;

use crate::admission::{Submission, classic, judged, standard};
use crate::profile::choose;
use crate::session::{Position, Session, State};
use crate::{
    Caller, Command, Credential, Input, Limits, PROTOCOL_VERSION, Profile, Rejection, SESSION_START, lifecycle, mode,
};

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
    Suspend,
    Resume,
    /// Ended without a resolution: by its deadline, or cancelled.
    End {
        state: State,
        cancelled: bool,
    },
}

/// Looks at a command and never touches anything. The session's own entries bound the time from below, see
/// [`Position::clamped`].
pub fn decide(session: Option<&Session>, command: &Command, now: i64, limits: &Limits) -> Verdict {
    let now = clamped(session, now);
    let caller = &command.caller;
    let verdict = match &command.input {
        Input::Envelope { envelope, signature, registered } => {
            let submission = Submission { envelope, signature, registered, caller };
            decide_envelope(session, &submission, now, limits)
        }
        Input::Cancel { reason } => lifecycle::cancel(session, caller, reason, now),
        Input::Suspend { reason } => lifecycle::suspend(session, caller, reason, now),
        Input::Resume { reason } => lifecycle::resume(session, caller, reason, now),
        Input::Touch => lifecycle::existing(session).map(|session| match due_in(session, now) {
            due if due.is_empty() => Verdict::Unchanged,
            due => Verdict::Due(due),
        }),
        Input::Expire(cause) => lifecycle::expiry(session, *cause, now),
        Input::Synthetic { envelope } => decide_synthetic(session, envelope, now),
    };
    verdict.unwrap_or_else(Verdict::Reject)
}

fn clamped(session: Option<&Session>, now: i64) -> i64 {
    session.map_or(now, |session| session.position.clamped(now))
}

/// A start is judged by the rules it chooses, a message by those its session was born under. What names no session is
/// answered by the standard when a credential came with it, and the classic way otherwise.
fn decide_envelope(
    session: Option<&Session>,
    submission: &Submission<'_>,
    now: i64,
    limits: &Limits,
) -> Result<Verdict, Rejection> {
    let Submission { envelope, caller, registered, .. } = submission;
    if envelope.message_type == SESSION_START {
        return match choose(limits.profile, envelope, &caller.credential, registered) {
            Ok(Profile::Standard) => standard::start(session, submission, now, limits),
            // A start that may choose no profile is refused at its place in the classic order.
            Ok(Profile::Classic) | Err(_) => classic::start(session, submission, now, limits),
        };
    }
    let profile = match session {
        Some(session) => session.binding.profile,
        None if caller.credential == Credential::Absent => Profile::Classic,
        None => Profile::Standard,
    };
    match profile {
        Profile::Classic => classic::message(session, submission, now, limits),
        Profile::Standard => standard::message(session, submission, now, limits),
    }
}

/// The mode's own message. Its time is not looked at again: a pause that was recorded before it may have moved the
/// time at which it would be due now.
fn decide_synthetic(session: Option<&Session>, envelope: &Envelope, now: i64) -> Result<Verdict, Rejection> {
    let session = lifecycle::existing(session)?;
    lifecycle::check_open(session)?;
    let mut accepted = judged(session, envelope.clone(), now)?;
    accepted.entry.synthetic = true;
    accepted.entry.accepted_at_unix_ms = envelope.timestamp_unix_ms;
    Ok(Verdict::Accept(Box::new(accepted)))
}

/// Touches the session and never refuses. `change` is what [`decide`] derived together with `entry`.
pub fn apply(slot: &mut Option<Session>, entry: &Entry, change: Change) {
    if let Change::Start(session) = change {
        *slot = Some(*session);
        return;
    }
    let session = slot.as_mut().expect("everything but a start was decided on a session");
    session.position.sequence = entry.sequence;
    // Not that of the entry: a message of the mode itself carries the earlier time at which it was due.
    session.position.latest_ms = session.position.clamped(entry.accepted_at_unix_ms);
    match change {
        Change::Start(_) => unreachable!("done above"),
        Change::Message { mode, resolution } => {
            let (awaited, resolves) = (session.mode_state.awaited(), resolution.is_some());
            apply_message(session, entry, mode, resolution);
            // Then it moves nothing, and finding the time again would be a walk over all pauses.
            if !resolves && session.mode_state.awaited() == awaited {
                return;
            }
        }
        Change::Suspend => {
            session.suspension.begin(entry.accepted_at_unix_ms);
            session.position.state = State::Suspended;
        }
        Change::Resume => {
            let pause_ms = session.suspension.end(entry.accepted_at_unix_ms);
            session.position.deadline_ms = session.position.deadline_ms.saturating_add(pause_ms);
            session.position.state = State::Open;
        }
        Change::End { state, cancelled } => {
            session.position.state = state;
            session.suspension.since_ms = None;
            if let Some(entry::Input::TtlExpired(expired)) = &entry.input {
                session.expiry = expired.cause();
            }
            session.cancelled = cancelled;
        }
    }
    session.reschedule();
}

fn apply_message(session: &mut Session, entry: &Entry, mode: Option<mode::Change>, resolution: Option<Bytes>) {
    let Some(entry::Input::Envelope(envelope)) = &entry.input else {
        unreachable!("a message's entry holds its envelope");
    };
    session.ordinal = entry.ordinal;
    session.bytes += envelope.encoded_len() as u64;
    session.seen.insert(&envelope.message_id, entry.accepted_at_unix_ms);
    if !entry.synthetic {
        let activity = session.activity.entry(SmolStr::new(&envelope.sender)).or_default();
        activity.last_at_ms = entry.accepted_at_unix_ms;
        activity.count = activity.count.saturating_add(1);
    }
    if let Some(change) = mode {
        session.mode_state.apply(change);
    }
    if let Some(resolution) = resolution {
        session.resolution = Some(resolution);
        session.position.state = State::Resolved;
    }
}

/// What time alone makes happen to a session standing here, as far as its position tells: expiry. What its mode has
/// scheduled needs the session itself; [`Input::Touch`] asks for all of it.
pub fn due(position: &Position, now: i64) -> Vec<Command> {
    expired(position, now).map(|cause| by_the_runtime(Input::Expire(cause))).into_iter().collect()
}

/// Everything time makes happen to a session, first things first: once it has expired, its mode says nothing more.
pub(crate) fn due_in(session: &Session, now: i64) -> Vec<Command> {
    let expiry = due(&session.position, now);
    if !expiry.is_empty() || !session.position.state.is_open() || now <= session.position.quiet_until_ms {
        return expiry;
    }
    let scheduled = session.mode_state.scheduled(&session.view(now));
    let scheduled = scheduled.filter(|scheduled| scheduled.at_ms <= now).map(|scheduled| {
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.to_owned(),
            mode: session.binding.mode_name().to_owned(),
            message_type: scheduled.message_type.to_owned(),
            message_id: scheduled.message_id,
            session_id: session.id.to_string(),
            sender: scheduled.sender,
            timestamp_unix_ms: scheduled.at_ms,
            payload: scheduled.payload,
        };
        by_the_runtime(Input::Synthetic { envelope })
    });
    scheduled.into_iter().collect()
}

fn by_the_runtime(input: Input) -> Command {
    Command { caller: Caller::anonymous(), input }
}

/// Why a session standing here has run out of time, if it has.
pub(crate) fn expired(position: &Position, now: i64) -> Option<ExpiryCause> {
    let now = position.clamped(now);
    match position.state {
        State::Open if now > position.deadline_ms => Some(ExpiryCause::Unspecified),
        State::Suspended if now > position.quiet_until_ms => Some(ExpiryCause::SuspensionTime),
        _ => None,
    }
}

/// The entry that ends a session whose time has run out. Needs the position alone, so that sessions can expire without
/// being loaded.
pub fn expire(position: &Position, now: i64) -> Option<Entry> {
    expired(position, now).map(|cause| lifecycle::expired_entry(position, cause, position.clamped(now)))
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
    let now = clamped(slot.as_ref(), now);
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
            // A touch has no entry of its own: it is accepted when time had made something due.
            Verdict::Unchanged if matches!(command.input, Input::Touch) && !entries.is_empty() => {
                break Settled::Accepted { accepted_at_ms: now };
            }
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

#[cfg(test)]
mod tests;
