//! Who and what gets in: the checks before a session is asked, in the order of the table in docs/PROTOCOL.md.

mod accept;
mod ambient;
pub(crate) mod classic;
mod door;
pub(crate) mod standard;

use std::collections::BTreeSet;

use macp_wire::codes::Code;
use macp_wire::v1::Envelope;
use smol_str::SmolStr;

use crate::limits::check_length;
use crate::{
    Caller, Credential, ID_BYTES_MAX, Limits, PROTOCOL_VERSION, Registered, Rejection, SignatureCheck, SignatureRule,
    mode,
};

pub(crate) use accept::{check_open, judged};
pub use ambient::ambient;
pub use classic::stated_deadline;
pub use door::{Door, door};
pub use standard::shape;

/// The message type that creates a session.
pub const SESSION_START: &str = "SessionStart";

/// An envelope with everything that is known about it before it is put in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission<'a> {
    pub(crate) envelope: &'a Envelope,
    pub(crate) signature: &'a SignatureCheck,
    pub(crate) registered: &'a Registered,
    pub(crate) caller: &'a Caller,
}

/// Step 1.
fn check_version(envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.macp_version == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(Rejection::new(Code::UnsupportedProtocolVersion, format!("macp_version must be {PROTOCOL_VERSION:?}")))
}

/// Step 2.
fn check_payload(envelope: &Envelope, limits: &Limits) -> Result<(), Rejection> {
    let length = envelope.payload.len() as u64;
    if length <= limits.payload_bytes_max {
        return Ok(());
    }
    Err(Rejection::new(
        Code::PayloadTooLarge,
        format!("the payload is {length} bytes long, at most {} are allowed", limits.payload_bytes_max),
    ))
}

/// Step 3: the sender an envelope counts as, or why the caller is nobody.
fn bind_sender<'a>(envelope: &'a Envelope, caller: &'a Caller) -> Result<&'a str, Rejection> {
    match &caller.credential {
        Credential::Absent => Ok(&envelope.sender),
        Credential::Identity(identity) => {
            if !envelope.sender.is_empty() && envelope.sender != identity.as_str() {
                return Err(Rejection::unauthenticated("sender differs from the authenticated identity"));
            }
            Ok(identity)
        }
        Credential::Refused(reason) => Err(Rejection::unauthenticated(reason)),
    }
}

/// Part of step 4.
fn check_lengths(envelope: &Envelope, sender: &str) -> Result<(), Rejection> {
    let fields = [
        ("session_id", envelope.session_id.as_str()),
        ("message_id", &envelope.message_id),
        ("sender", sender),
        ("mode", &envelope.mode),
        ("message_type", &envelope.message_type),
    ];
    fields.iter().try_for_each(|(field, value)| check_length(field, value, ID_BYTES_MAX))
}

/// First part of step 5: what the credential may be used for.
fn check_scope(envelope: &Envelope, caller: &Caller) -> Result<(), Rejection> {
    let scope = &caller.scope;
    if envelope.message_type == SESSION_START && !scope.may_start {
        return Err(Rejection::operational(Code::Forbidden, "this credential may not start sessions"));
    }
    if let Some(modes) = &scope.modes
        && !names_allowed(modes, envelope)
    {
        let message = format!("this credential is not for mode {:?}", cut(&envelope.mode));
        return Err(Rejection::operational(Code::Forbidden, message));
    }
    Ok(())
}

/// Whether an envelope names one of these modes, by the name listed or by another of the same mode. An empty name in the
/// list stands for what belongs to no session. A start without a name is one of the decision mode; a message without
/// one belongs to whatever mode its session has, which nobody has looked at yet, and is none of them.
fn names_allowed(modes: &BTreeSet<SmolStr>, envelope: &Envelope) -> bool {
    let name = envelope.mode.as_str();
    if ambient::is_ambient(envelope) {
        return modes.contains(name);
    }
    if name.is_empty() && envelope.message_type != SESSION_START {
        return false;
    }
    let canonical = mode::find_classic(name).map(|kind| kind.spec().name);
    (!name.is_empty() && modes.contains(name)) || canonical.is_some_and(|name| modes.contains(name))
}

fn session_not_found(envelope: &Envelope) -> Rejection {
    Rejection::new(Code::SessionNotFound, format!("there is no session {:?}", cut(&envelope.session_id)))
}

fn unknown_mode(name: &str) -> Rejection {
    Rejection::new(Code::ModeNotSupported, format!("mode {:?} is not offered here", cut(name)))
}

/// What a message shows of a name that may be of any length.
fn cut(name: &str) -> &str {
    match name.char_indices().nth(ID_BYTES_MAX) {
        Some((at, _)) => &name[..at],
        None => name,
    }
}

/// Last part of step 5.
fn check_rate(caller: &Caller) -> Result<(), Rejection> {
    if !caller.over_rate {
        return Ok(());
    }
    Err(over_rate())
}

/// The refusal of whoever has used up a share of requests.
pub fn over_rate() -> Rejection {
    Rejection::operational(Code::RateLimited, "too many requests from this sender in the last minute; retry later")
}

/// The last question about a start, because it is the one that depends on the caller's other sessions.
fn check_quota(caller: &Caller) -> Result<(), Rejection> {
    if !caller.over_quota {
        return Ok(());
    }
    let message = "this credential allows no more open sessions; end one of them first";
    Err(Rejection::operational(Code::RateLimited, message))
}

/// Last part of step 11.
fn check_signature(signature: &SignatureCheck, rule: SignatureRule) -> Result<(), Rejection> {
    match (signature, rule) {
        (SignatureCheck::Invalid(reason), _) => Err(Rejection::unauthenticated(reason)),
        (SignatureCheck::Absent, SignatureRule::Required) => {
            Err(Rejection::unauthenticated("this server takes signed envelopes only"))
        }
        (SignatureCheck::Unregistered(_), SignatureRule::Required) => {
            Err(Rejection::unauthenticated("the signature names a key that is not registered"))
        }
        (SignatureCheck::Valid(_), _)
        | (SignatureCheck::Absent | SignatureCheck::Unregistered(_), SignatureRule::Optional) => Ok(()),
    }
}
