//! Admission under the standard profile, top to bottom: the first check that fails decides the code.

use std::collections::BTreeSet;
use std::sync::Arc;

use macp_wire::codes::Code;
use macp_wire::v1::{Envelope, SessionStartPayload};
use prost::Message;

use super::accept::{Beginning, accept, begin, check_caps, check_open, check_skew, deadline, stated_base};
use super::ambient::{self, is_ambient};
use super::{
    Submission, bind_sender, check_payload, check_quota, check_rate, check_scope, check_signature, check_version, cut,
    session_not_found, unknown_mode,
};
use crate::binding::Labels;
use crate::decide::{Verdict, due_in};
use crate::lengths::Bounded;
use crate::limits::check_length;
use crate::mode::{self, Extension};
use crate::policy::{self, Policy};
use crate::session::Session;
use crate::session_id::is_unguessable;
use crate::{
    Binding, Caller, Credential, ID_BYTES_MAX, Limits, PARTICIPANTS_MAX, Profile, Registered, Rejection, Roster,
    STANDARD_MESSAGE_ID_BYTES_MAX, SUSPEND_MS_DEFAULT, TTL_MS_MAX,
};

/// Judges a SessionStart.
pub(crate) fn start(
    existing: Option<&Session>,
    submission: &Submission<'_>,
    now: i64,
    limits: &Limits,
) -> Result<Verdict, Rejection> {
    let Submission { envelope, signature, registered, caller } = *submission;
    let sender = screen(envelope, caller, limits)?;
    check_scope(envelope, caller)?;
    check_rate(caller)?;

    if !is_unguessable(&envelope.session_id) {
        return Err(Rejection::new(
            Code::InvalidSessionId,
            "session_id must be a lowercase UUID of version 4 or 7, or at least 22 characters of base64url",
        ));
    }
    let (kind, extension) = start_mode(&envelope.mode, registered)?;
    let payload = start_payload(envelope)?;
    if extension.is_none_or(|extension| extension.promoted) {
        check_contract(kind, &payload)?;
    }
    check_mode_version(kind, extension, &payload)?;
    check_ttl(payload.ttl_ms)?;
    let roster = start_roster(&payload)?;

    if let Some(session) = existing {
        return match session.accepted_at(&envelope.message_id) {
            Some(accepted_at_ms) => Ok(Verdict::Duplicate { accepted_at_ms }),
            None => Err(Rejection::new(
                Code::SessionAlreadyExists,
                format!("session {:?} exists already", envelope.session_id),
            )),
        };
    }

    let policy = start_policy(&envelope.mode, &payload, registered)?;
    let mode_state = kind.start(&mode::Start { initiator: sender, roster: &roster, context: &[] })?;
    kind.check_client(envelope)?;
    check_skew(envelope, now, limits)?;
    check_signature(signature, limits.signatures)?;
    check_quota(caller)?;

    let bound = Envelope { sender: sender.to_owned(), ..envelope.clone() };
    let binding = Binding {
        profile: Profile::Standard,
        mode: kind,
        mode_version: bound_mode_version(kind, extension, &payload).into(),
        configuration_version: payload.configuration_version.as_str().into(),
        policy_version: policy.id().into(),
        policy: Arc::clone(policy),
        extension: extension.map(Arc::clone),
        initiator: sender.into(),
        roster,
        entries_max: limits.session_entries_max,
        bytes_max: limits.session_bytes_max,
        labels: Labels::of(&payload),
    };
    let deadline_ms = deadline(stated_base(envelope).unwrap_or(now), payload.ttl_ms);
    let suspend_ms_max = if payload.max_suspend_ms > 0 { payload.max_suspend_ms } else { SUSPEND_MS_DEFAULT };
    let written = binding.standard_to_wire(&payload, deadline_ms, suspend_ms_max);
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
    let Submission { envelope, signature, registered, caller } = *submission;
    if is_ambient(envelope) {
        return Err(Rejection::invalid("Signals and Progress are passed on and never become history"));
    }
    let sender = screen(envelope, caller, limits)?;
    check_scope(envelope, caller)?;
    check_rate(caller)?;

    let session = session.ok_or_else(|| session_not_found(envelope))?;
    if let Some(accepted_at_ms) = session.accepted_at(&envelope.message_id) {
        return Ok(Verdict::Duplicate { accepted_at_ms });
    }
    let binding = &session.binding;
    if envelope.mode != binding.mode_name() {
        return Err(Rejection::invalid(format!(
            "the session's mode is {:?}, not {:?}",
            binding.mode_name(),
            cut(&envelope.mode)
        )));
    }
    // Expiry comes before the state, what the mode has scheduled after everything that concerns the sender.
    let due = crate::due(&session.position, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    check_open(session)?;
    if binding.extension.is_some() && registered.extension.is_none() {
        return Err(Rejection::operational(
            Code::ModeNotSupported,
            format!("mode {:?} is no longer registered", binding.mode_name()),
        ));
    }
    let bound = Envelope { sender: sender.to_owned(), ..envelope.clone() };
    session.mode_state.authorize(&session.view(now), &bound)?;
    binding.mode.check_client(&bound)?;
    let due = due_in(session, now);
    if !due.is_empty() {
        return Ok(Verdict::Due(due));
    }
    check_signature(signature, limits.signatures)?;
    check_caps(session, &bound)?;
    accept(session, bound, submission, now)
}

/// The shape of an envelope, then who sends it: the sender it counts as.
pub(super) fn screen<'a>(envelope: &'a Envelope, caller: &'a Caller, limits: &Limits) -> Result<&'a str, Rejection> {
    shape(envelope, limits)?;
    if caller.credential == Credential::Absent {
        return Err(Rejection::unauthenticated(
            "a standard session needs a credential: `authorization: Bearer <token>`",
        ));
    }
    let sender = bind_sender(envelope, caller)?;
    check_length("message_type", &envelope.message_type, ID_BYTES_MAX)?;
    check_length("sender", sender, ID_BYTES_MAX)?;
    check_message_id_length(envelope)?;
    Ok(sender)
}

/// The same for whatever the standard knows, Signals and Progress included.
pub(super) fn check_message_id_length(envelope: &Envelope) -> Result<(), Rejection> {
    check_length("message_id", &envelope.message_id, STANDARD_MESSAGE_ID_BYTES_MAX)
}

/// The shape of an envelope, whoever sends it. Signals and Progress have one of their own.
pub fn shape(envelope: &Envelope, limits: &Limits) -> Result<(), Rejection> {
    if is_ambient(envelope) {
        return ambient::standard_shape(envelope, limits);
    }
    check_version(envelope)?;
    let required = [
        ("message_type", envelope.message_type.as_str()),
        ("message_id", &envelope.message_id),
        ("session_id", &envelope.session_id),
        ("mode", envelope.mode.trim()),
    ];
    for (field, value) in required {
        if value.is_empty() {
            return Err(Rejection::invalid(format!("{field} is empty")));
        }
    }
    check_payload(envelope, limits)
}

fn start_mode<'a>(
    name: &str,
    registered: &'a Registered,
) -> Result<(mode::Kind, Option<&'a Arc<Extension>>), Rejection> {
    if let Some(kind) = mode::find_standard(name) {
        return Ok((kind, None));
    }
    let extension = registered.extension.as_ref().filter(|extension| extension.descriptor.mode == name);
    let extension = extension.ok_or_else(|| unknown_mode(name))?;
    Ok((mode::Kind::Extension, Some(extension)))
}

fn start_payload(envelope: &Envelope) -> Result<SessionStartPayload, Rejection> {
    if envelope.payload.is_empty() {
        return Err(Rejection::invalid("a SessionStart needs a payload"));
    }
    let payload = SessionStartPayload::decode(envelope.payload.clone())
        .map_err(|error| Rejection::invalid(format!("payload of SessionStart: {error}")))?;
    payload.check_lengths()?;
    Ok(payload)
}

/// The contract every start in a built-in or promoted mode is held to.
fn check_contract(kind: mode::Kind, payload: &SessionStartPayload) -> Result<(), Rejection> {
    check_ttl(payload.ttl_ms)?;
    for (field, value) in
        [("mode_version", &payload.mode_version), ("configuration_version", &payload.configuration_version)]
    {
        if value.trim().is_empty() {
            return Err(Rejection::invalid(format!("{field} is empty")));
        }
    }
    if payload.participants.is_empty() && kind != mode::Kind::Decision {
        return Err(Rejection::invalid("participants is empty"));
    }
    let mut distinct = BTreeSet::new();
    for participant in &payload.participants {
        let name = participant.trim();
        if name.is_empty() {
            return Err(Rejection::invalid("a participant's name is empty"));
        }
        if !distinct.insert(name) {
            return Err(Rejection::invalid(format!("participant {name:?} is listed twice")));
        }
    }
    if payload.max_suspend_ms < 0 {
        return Err(Rejection::invalid("max_suspend_ms is negative"));
    }
    Ok(())
}

fn check_mode_version(
    kind: mode::Kind,
    extension: Option<&Arc<Extension>>,
    payload: &SessionStartPayload,
) -> Result<(), Rejection> {
    let offered = offered_version(kind, extension);
    if payload.mode_version.is_empty() || payload.mode_version == offered {
        return Ok(());
    }
    Err(Rejection::invalid(format!("mode_version {:?} is not offered here, {offered:?} is", payload.mode_version)))
}

fn bound_mode_version<'a>(
    kind: mode::Kind,
    extension: Option<&'a Arc<Extension>>,
    payload: &'a SessionStartPayload,
) -> &'a str {
    if payload.mode_version.is_empty() { offered_version(kind, extension) } else { &payload.mode_version }
}

fn offered_version(kind: mode::Kind, extension: Option<&Arc<Extension>>) -> &str {
    extension.map_or(kind.spec().version, |extension| &extension.descriptor.mode_version)
}

fn check_ttl(ttl_ms: i64) -> Result<(), Rejection> {
    if (1..=TTL_MS_MAX).contains(&ttl_ms) {
        return Ok(());
    }
    Err(Rejection::invalid(format!("ttl_ms {ttl_ms} is outside 1..={TTL_MS_MAX}")))
}

fn start_policy<'a>(
    mode: &str,
    payload: &SessionStartPayload,
    registered: &'a Registered,
) -> Result<&'a Arc<Policy>, Rejection> {
    let name = match payload.policy_version.as_str() {
        "" => policy::DEFAULT_ID,
        name => name,
    };
    let policy = policy::find(name, registered).ok_or_else(|| {
        Rejection::new(Code::UnknownPolicyVersion, format!("no policy {:?} is registered", cut(name)))
    })?;
    if !policy.covers(mode) {
        return Err(Rejection::new(
            Code::InvalidPolicyDefinition,
            format!("policy {name:?} is for mode {:?}, not {mode:?}", policy.descriptor.mode),
        ));
    }
    Ok(policy)
}

fn start_roster(payload: &SessionStartPayload) -> Result<Roster, Rejection> {
    if payload.participants.len() > PARTICIPANTS_MAX {
        return Err(Rejection::invalid(format!(
            "{} participants are listed, at most {PARTICIPANTS_MAX} are allowed",
            payload.participants.len()
        )));
    }
    Ok(Roster::new(payload.participants.iter().map(String::as_str)))
}
