//! Signals and Progress: passed on to whoever watches, never history, and no session is touched.

use macp_wire::v1::{Envelope, ProgressPayload, SignalPayload};
use prost::Message;

use super::{
    bind_sender, check_lengths, check_payload, check_rate, check_scope, check_signature, check_version, standard,
};
use crate::lengths::Bounded;
use crate::limits::check_length;
use crate::{Caller, Credential, ID_BYTES_MAX, Limits, Rejection, SignatureCheck};

const SIGNAL: &str = "Signal";
const PROGRESS: &str = "Progress";

/// Whether an envelope is passed on instead of becoming history.
pub(super) fn is_ambient(envelope: &Envelope) -> bool {
    envelope.message_type == SIGNAL || envelope.message_type == PROGRESS
}

/// Admits a Signal or Progress and returns it with its sender bound; none when the envelope is of another type. They
/// name nothing with a profile, so a caller with a credential gets the standard rules and one without the classic.
pub fn ambient(
    envelope: &Envelope,
    signature: &SignatureCheck,
    caller: &Caller,
    limits: &Limits,
) -> Option<Result<Envelope, Rejection>> {
    if !is_ambient(envelope) {
        return None;
    }
    Some(admit(envelope, signature, caller, limits))
}

fn admit(
    envelope: &Envelope,
    signature: &SignatureCheck,
    caller: &Caller,
    limits: &Limits,
) -> Result<Envelope, Rejection> {
    let sender = screen(envelope, caller, limits)?;
    check_scope(envelope, caller)?;
    check_rate(caller)?;
    if envelope.message_type == PROGRESS {
        check_progress_payload(envelope)?;
    } else if caller.credential != Credential::Absent {
        check_signal_payload(envelope)?;
    }
    check_signature(signature, limits.signatures)?;
    Ok(Envelope { sender: sender.to_owned(), ..envelope.clone() })
}

/// Steps 1 to 4: the sender it counts as.
pub(super) fn screen<'a>(envelope: &'a Envelope, caller: &'a Caller, limits: &Limits) -> Result<&'a str, Rejection> {
    match caller.credential {
        Credential::Absent => screen_classic(envelope, caller, limits),
        Credential::Identity(_) | Credential::Refused(_) => screen_standard(envelope, caller, limits),
    }
}

fn screen_classic<'a>(envelope: &'a Envelope, caller: &'a Caller, limits: &Limits) -> Result<&'a str, Rejection> {
    check_version(envelope)?;
    check_payload(envelope, limits)?;
    let sender = bind_sender(envelope, caller)?;
    check_message_id(envelope)?;
    check_lengths(envelope, sender)?;
    if envelope.message_type == PROGRESS {
        if sender.is_empty() {
            return Err(Rejection::invalid("sender is empty"));
        }
        check_progress_shape(envelope)?;
    }
    Ok(sender)
}

fn screen_standard<'a>(envelope: &'a Envelope, caller: &'a Caller, limits: &Limits) -> Result<&'a str, Rejection> {
    standard_shape(envelope, limits)?;
    let sender = bind_sender(envelope, caller)?;
    check_length("session_id", &envelope.session_id, ID_BYTES_MAX)?;
    check_length("sender", sender, ID_BYTES_MAX)?;
    check_length("mode", &envelope.mode, ID_BYTES_MAX)?;
    standard::check_message_id_length(envelope)?;
    Ok(sender)
}

/// The shape the standard gives a Signal or Progress.
pub(super) fn standard_shape(envelope: &Envelope, limits: &Limits) -> Result<(), Rejection> {
    check_version(envelope)?;
    check_message_id(envelope)?;
    if envelope.message_type == PROGRESS {
        check_progress_shape(envelope)?;
    } else if !envelope.session_id.is_empty() || !envelope.mode.trim().is_empty() {
        return Err(Rejection::invalid("a Signal names neither a session nor a mode"));
    }
    check_payload(envelope, limits)
}

fn check_message_id(envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.message_id.is_empty() {
        return Err(Rejection::invalid("message_id is empty"));
    }
    Ok(())
}

/// Progress is either ambient or about a session, never half of each.
fn check_progress_shape(envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.session_id.is_empty() != envelope.mode.trim().is_empty() {
        return Err(Rejection::invalid("a Progress names both a session and its mode, or neither"));
    }
    Ok(())
}

fn check_progress_payload(envelope: &Envelope) -> Result<(), Rejection> {
    let payload = ProgressPayload::decode(envelope.payload.clone())
        .map_err(|error| Rejection::invalid(format!("payload of Progress: {error}")))?;
    payload.check_lengths()
}

fn check_signal_payload(envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.payload.is_empty() {
        return Ok(());
    }
    let payload = SignalPayload::decode(envelope.payload.clone())
        .map_err(|error| Rejection::invalid(format!("payload of Signal: {error}")))?;
    if payload.signal_type.trim().is_empty() {
        return Err(Rejection::invalid("signal_type is empty"));
    }
    payload.check_lengths()
}
