//! Admission of classic envelopes: the steps of the table in docs/PROTOCOL.md, top to bottom. The first that fails
//! decides.

use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::history::v1::{Entry, RecordedSignature, Terminal, entry};
use macp_wire::v1::{Envelope, SessionState};
use prost::Message;
use sha2::{Digest, Sha256};

use super::ambient::is_ambient;
use super::{SESSION_START, bind_sender, check_lengths, check_payload, check_rate, check_signature, check_version};
use crate::decide::{Accepted, Change, Verdict, due};
use crate::limits::check_length;
use crate::mode::{self, Response};
use crate::profile::choose;
use crate::session::{Position, Seen, Session, State};
use crate::{
    Binding, Caller, Limits, PARTICIPANTS_MAX, Profile, Rejection, Roster, SignatureCheck, TTL_MS_DEFAULT, TTL_MS_MAX,
};

/// Judges a SessionStart.
pub(crate) fn start(
    existing: Option<&Session>,
    envelope: &Envelope,
    signature: &SignatureCheck,
    caller: &Caller,
    now: i64,
    limits: &Limits,
) -> Result<Verdict, Rejection> {
    let (sender, profile) = screen_start(envelope, caller, limits)?;
    check_rate(caller)?;

    let mode = start_mode(profile, &envelope.mode)?;
    let payload = SessionStartPayload::decode(envelope.payload.clone())
        .map_err(|error| Rejection::invalid(format!("payload of SessionStart: {error}")))?;
    let ttl_ms = start_ttl(payload.ttl_ms)?;
    start_versions(mode, &payload)?;
    let roster = start_roster(&payload)?;
    let mode_start = mode::Start { roster: &roster, context: &payload.context };
    mode.check_context(&mode_start)?;

    if let Some(session) = existing {
        if let Some(accepted_at_ms) = session.accepted_at(&envelope.message_id) {
            return Ok(Verdict::Duplicate { accepted_at_ms });
        }
        return Err(Rejection::invalid(format!("session {:?} exists already", envelope.session_id)));
    }

    start_skew(envelope, now, limits)?;
    check_signature(signature, limits.signatures)?;
    let mode_state = mode.start(&mode_start)?;

    let bound = Envelope { sender: sender.to_owned(), ..envelope.clone() };
    let binding = Binding::classic(mode, roster, &bound, &payload, limits);
    let deadline_ms = deadline(stated_base(envelope).unwrap_or(now), ttl_ms);
    let mut seen = Seen::default();
    seen.insert(&bound.message_id, now);
    let session = Session {
        id: bound.session_id.as_str().into(),
        position: Position { state: State::Open, deadline_ms, sequence: 1 },
        ordinal: 1,
        started_at_ms: now,
        start_timestamp_ms: envelope.timestamp_unix_ms,
        bytes: bound.encoded_len() as u64,
        seen,
        activity: Default::default(),
        mode_state,
        resolution: None,
        cancelled: false,
        binding,
    };
    let entry = Entry {
        sequence: 1,
        ordinal: 1,
        accepted_at_unix_ms: now,
        identity: caller.credential.identity().unwrap_or_default().to_owned(),
        input: Some(entry::Input::Envelope(bound)),
        signature: recorded(signature),
        binding: Some(session.binding.to_wire(&payload, ttl_ms, deadline_ms)),
        terminal: None,
    };
    Ok(Verdict::Accept(Box::new(Accepted { entry, change: Change::Start(Box::new(session)) })))
}

/// Judges any other message of a session.
pub(crate) fn message(
    session: Option<&Session>,
    envelope: &Envelope,
    signature: &SignatureCheck,
    caller: &Caller,
    now: i64,
    limits: &Limits,
) -> Result<Verdict, Rejection> {
    if is_ambient(envelope) {
        return Err(Rejection::invalid("Signals and Progress are passed on and never become history"));
    }
    let sender = screen_message(envelope, caller, limits)?;
    check_rate(caller)?;

    let session = session.ok_or_else(|| {
        Rejection::new(Code::SessionNotFound, format!("there is no session {:?}", envelope.session_id))
    })?;
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
    message_caps(session, &bound)?;

    let view = mode::View { roster, initiator: &session.binding.initiator };
    let (mode_change, resolution) = match session.mode_state.judge(&view, &bound)? {
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
        identity: caller.credential.identity().unwrap_or_default().to_owned(),
        input: Some(entry::Input::Envelope(bound)),
        signature: recorded(signature),
        binding: None,
        terminal,
    };
    let change = Change::Message { mode: mode_change, resolution };
    Ok(Verdict::Accept(Box::new(Accepted { entry, change })))
}

/// Steps 1 to 4 of a SessionStart.
pub(super) fn screen_start<'a>(
    envelope: &'a Envelope,
    caller: &'a Caller,
    limits: &Limits,
) -> Result<(&'a str, Profile), Rejection> {
    check_version(envelope)?;
    check_payload(envelope, limits)?;
    let sender = bind_sender(envelope, caller)?;
    let profile = choose(limits.profile, envelope, &caller.credential)?;
    check_fields(envelope, sender)?;
    Ok((sender, profile))
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

fn start_mode(profile: Profile, name: &str) -> Result<mode::Kind, Rejection> {
    let found = match profile {
        Profile::Classic => mode::find_classic(name),
        // No mode of the standard profile is registered.
        Profile::Standard => None,
    };
    found.ok_or_else(|| unknown_mode(name))
}

fn unknown_mode(name: &str) -> Rejection {
    Rejection::new(Code::ModeNotSupported, format!("mode {name:?} is not offered here"))
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

fn stated_base(envelope: &Envelope) -> Option<i64> {
    Some(envelope.timestamp_unix_ms).filter(|timestamp_ms| *timestamp_ms > 0)
}

fn deadline(base_ms: i64, ttl_ms: i64) -> i64 {
    base_ms.saturating_add(ttl_ms)
}

fn start_versions(mode: mode::Kind, payload: &SessionStartPayload) -> Result<(), Rejection> {
    let offered = mode.spec().version;
    if !payload.mode_version.is_empty() && payload.mode_version != offered {
        check_length("mode_version", &payload.mode_version)?;
        return Err(Rejection::invalid(format!(
            "mode_version {:?} is not offered here, {offered:?} is",
            payload.mode_version
        )));
    }
    check_length("configuration_version", &payload.configuration_version)?;
    check_length("policy_version", &payload.policy_version)
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
        check_length("participant", participant)?;
    }
    Ok(Roster::new(payload.participants.iter().map(String::as_str)))
}

/// Step 9. A wrong client clock must not keep a session alive for years.
fn start_skew(envelope: &Envelope, now: i64, limits: &Limits) -> Result<(), Rejection> {
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

/// Step 10. The text names the deadline and where it came from, because clients exist that send a constant timestamp.
pub(crate) fn check_open(session: &Session) -> Result<(), Rejection> {
    let message = match session.position.state {
        State::Open => return Ok(()),
        State::Resolved => "the session is resolved".to_owned(),
        State::Expired if session.cancelled => "the session was cancelled".to_owned(),
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

fn message_caps(session: &Session, envelope: &Envelope) -> Result<(), Rejection> {
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

fn recorded(signature: &SignatureCheck) -> Option<RecordedSignature> {
    match signature {
        SignatureCheck::Valid(recorded) | SignatureCheck::Unregistered(recorded) => Some(recorded.clone()),
        SignatureCheck::Absent | SignatureCheck::Invalid(_) => None,
    }
}
