//! Admission of classic envelopes: the steps of the table in docs/PROTOCOL.md, top to bottom. The first that fails
//! decides.

use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::v1::Envelope;
use prost::Message;

use super::accept::{Beginning, accept, begin, check_caps, check_open, check_skew, deadline, stated_base};
use super::ambient::is_ambient;
use super::{
    SESSION_START, Submission, bind_sender, check_lengths, check_payload, check_quota, check_rate, check_scope,
    check_signature, check_version, session_not_found, unknown_mode,
};
use crate::decide::{Verdict, due};
use crate::lengths::Bounded;
use crate::profile::choose;
use crate::session::Session;
use crate::{
    Binding, Caller, Limits, PARTICIPANTS_MAX, Registered, Rejection, Roster, TTL_MS_DEFAULT, TTL_MS_MAX, mode,
};

/// Judges a SessionStart.
pub(crate) fn start(
    existing: Option<&Session>,
    submission: &Submission<'_>,
    now: i64,
    limits: &Limits,
) -> Result<Verdict, Rejection> {
    let Submission { envelope, signature, registered, caller } = *submission;
    let sender = screen_start(envelope, caller, registered, limits)?;
    check_scope(envelope, caller)?;
    check_rate(caller)?;

    choose(limits.profile, envelope, &caller.credential, registered)?;
    let mode = mode::find_classic(&envelope.mode).ok_or_else(|| unknown_mode(&envelope.mode))?;
    let payload = SessionStartPayload::decode(envelope.payload.clone())
        .map_err(|error| Rejection::invalid(format!("payload of SessionStart: {error}")))?;
    payload.check_lengths()?;
    let ttl_ms = start_ttl(payload.ttl_ms)?;
    start_versions(mode, &payload)?;
    start_policy(&payload, registered)?;
    let roster = start_roster(&payload)?;
    let mode_start = mode::Start { initiator: sender, roster: &roster, context: &payload.context };
    mode.check_context(&mode_start)?;

    if let Some(session) = existing {
        if let Some(accepted_at_ms) = session.accepted_at(&envelope.message_id) {
            return Ok(Verdict::Duplicate { accepted_at_ms });
        }
        return Err(Rejection::invalid(format!("session {:?} exists already", envelope.session_id)));
    }

    check_skew(envelope, now, limits)?;
    check_signature(signature, limits.signatures)?;
    check_quota(caller)?;
    let mode_state = mode.start(&mode_start)?;

    let bound = Envelope { sender: sender.to_owned(), ..envelope.clone() };
    let binding = Binding::classic(mode, roster, &bound, &payload, limits);
    let deadline_ms = deadline(stated_base(envelope).unwrap_or(now), ttl_ms);
    let written = binding.classic_to_wire(&payload, ttl_ms, deadline_ms);
    // Classic sessions are never suspended.
    let suspend_ms_max = 0;
    let beginning = Beginning { bound, binding, written, mode_state, deadline_ms, suspend_ms_max };
    Ok(begin(beginning, submission, now))
}

/// Judges any other message of a session.
pub(crate) fn message(
    session: Option<&Session>,
    submission: &Submission<'_>,
    now: i64,
    limits: &Limits,
) -> Result<Verdict, Rejection> {
    let Submission { envelope, signature, caller, .. } = *submission;
    if is_ambient(envelope) {
        return Err(Rejection::invalid("Signals and Progress are passed on and never become history"));
    }
    let sender = screen_message(envelope, caller, limits)?;
    check_scope(envelope, caller)?;
    check_rate(caller)?;

    let session = session.ok_or_else(|| session_not_found(envelope))?;
    if let Some(accepted_at_ms) = session.accepted_at(&envelope.message_id) {
        return Ok(Verdict::Duplicate { accepted_at_ms });
    }
    let due = due(&session.position, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    check_open(session)?;
    message_mode(session, &envelope.mode)?;
    let roster = &session.binding.roster;
    if !roster.is_empty() && !roster.contains(sender) {
        return Err(Rejection::invalid(format!("{sender:?} is no participant of this session")));
    }
    check_signature(signature, limits.signatures)?;
    let bound = Envelope { sender: sender.to_owned(), ..envelope.clone() };
    check_caps(session, &bound)?;
    accept(session, bound, submission, now)
}

/// Steps 1 to 4 of a SessionStart.
pub(super) fn screen_start<'a>(
    envelope: &'a Envelope,
    caller: &'a Caller,
    registered: &Registered,
    limits: &Limits,
) -> Result<&'a str, Rejection> {
    check_version(envelope)?;
    check_payload(envelope, limits)?;
    let sender = bind_sender(envelope, caller)?;
    // Whoever forgot a credential hears so here; a profile that is not offered is a matter of the mode, further down.
    if let Err(refusal) = choose(limits.profile, envelope, &caller.credential, registered)
        && refusal.code == Code::Unauthenticated
    {
        return Err(refusal);
    }
    check_fields(envelope, sender)?;
    Ok(sender)
}

/// Steps 1 to 4 of any other message.
pub(super) fn screen_message<'a>(
    envelope: &'a Envelope,
    caller: &'a Caller,
    limits: &Limits,
) -> Result<&'a str, Rejection> {
    check_version(envelope)?;
    check_payload(envelope, limits)?;
    let sender = bind_sender(envelope, caller)?;
    check_fields(envelope, sender)?;
    Ok(sender)
}

/// Step 4.
fn check_fields(envelope: &Envelope, sender: &str) -> Result<(), Rejection> {
    let required = [
        ("message_type", envelope.message_type.as_str()),
        ("session_id", &envelope.session_id),
        ("message_id", &envelope.message_id),
        ("sender", sender),
    ];
    for (field, value) in required {
        if value.is_empty() {
            return Err(Rejection::invalid(format!("{field} is empty")));
        }
    }
    check_lengths(envelope, sender)
}

fn start_ttl(asked_ms: i64) -> Result<i64, Rejection> {
    match asked_ms {
        0 => Ok(TTL_MS_DEFAULT),
        ttl_ms @ 1..=TTL_MS_MAX => Ok(ttl_ms),
        ttl_ms => Err(Rejection::invalid(format!("ttl_ms {ttl_ms} is outside 1..={TTL_MS_MAX}"))),
    }
}

/// The field of a SessionStartPayload its deadline depends on. The others are skipped, so that looking at a payload
/// nobody has checked yet costs no memory.
#[derive(Clone, PartialEq, Message)]
struct Ttl {
    #[prost(int64, tag = "6")]
    ttl_ms: i64,
}

/// The deadline a valid SessionStart sets by a timestamp of its own, which may be long past; none when the deadline
/// counts from the acceptance.
pub fn stated_deadline(envelope: &Envelope) -> Option<i64> {
    if envelope.message_type != SESSION_START {
        return None;
    }
    let base = stated_base(envelope)?;
    let Ttl { ttl_ms } = Ttl::decode(envelope.payload.clone()).ok()?;
    Some(deadline(base, start_ttl(ttl_ms).ok()?))
}

fn start_versions(mode: mode::Kind, payload: &SessionStartPayload) -> Result<(), Rejection> {
    let offered = mode.spec().version;
    if !payload.mode_version.is_empty() && payload.mode_version != offered {
        return Err(Rejection::invalid(format!(
            "mode_version {:?} is not offered here, {offered:?} is",
            payload.mode_version
        )));
    }
    Ok(())
}

/// Classic sessions have no policies, and nothing may look governed that is not.
fn start_policy(payload: &SessionStartPayload, registered: &Registered) -> Result<(), Rejection> {
    let named = payload.policy_version.as_str();
    // Only what was looked up counts: a policy that is built in later must not refuse what an old history accepted.
    if registered.policy.as_ref().is_none_or(|policy| policy.id() != named) {
        return Ok(());
    }
    Err(Rejection::invalid(format!(
        "policy {named:?} governs standard sessions only: a classic session cannot be bound to it"
    )))
}

fn start_roster(payload: &SessionStartPayload) -> Result<Roster, Rejection> {
    if payload.participants.len() > PARTICIPANTS_MAX {
        return Err(Rejection::invalid(format!(
            "{} participants are listed, at most {PARTICIPANTS_MAX} are allowed",
            payload.participants.len()
        )));
    }
    for participant in &payload.participants {
        if participant.is_empty() {
            return Err(Rejection::invalid("a participant's name is empty"));
        }
    }
    Ok(Roster::new(payload.participants.iter().map(String::as_str)))
}

fn message_mode(session: &Session, name: &str) -> Result<(), Rejection> {
    if name.is_empty() {
        return Ok(());
    }
    let kind = mode::find_classic(name).ok_or_else(|| unknown_mode(name))?;
    if kind != session.binding.mode {
        return Err(Rejection::invalid(format!(
            "the session's mode is {:?}, not {name:?}",
            session.binding.mode.spec().name
        )));
    }
    Ok(())
}
