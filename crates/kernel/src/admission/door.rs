//! What can be said of an envelope before any session is asked.
//!
//! Whoever is refused for who it is, whatever session it names, must neither learn from the answer whether that session
//! exists, nor have it loaded. An envelope that is malformed is refused by the rules of its session, which is asked.

use macp_wire::codes::Code;
use macp_wire::v1::Envelope;

use super::{SESSION_START, ambient, check_scope, classic, standard};
use crate::profile::choose;
use crate::{Caller, Credential, Limits, Profile, ProfileSetting, Registered, Rejection, mode};

/// Steps 1 to 5 but for the rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door<'a> {
    /// Whatever session it names.
    Refused(Rejection),
    /// Malformed, and only the session named can tell by which rules.
    Unclear,
    /// Counts against the share of this sender. Nothing that is refused does, so that nobody uses up a share in someone
    /// else's name.
    Passed(&'a str),
}

/// Looks at an envelope and its caller alone.
pub fn door<'a>(envelope: &'a Envelope, caller: &'a Caller, limits: &Limits) -> Door<'a> {
    let sender = match screen(envelope, caller, limits) {
        Ok(sender) => sender,
        // By whose rules nobody is refused depends on what is known of the session, and a replay may know more.
        Err(refusal) if is_nobody(caller) => return Door::Refused(Rejection { operational: true, ..refusal }),
        Err(refusal) if refusal.code == Code::Unauthenticated => return Door::Refused(refusal),
        Err(_malformed) => return Door::Unclear,
    };
    match check_scope(envelope, caller) {
        Ok(()) => Door::Passed(sender),
        Err(refusal) => Door::Refused(refusal),
    }
}

fn is_classic(envelope: &Envelope, limits: &Limits) -> bool {
    match limits.profile {
        ProfileSetting::Auto => envelope.mode.is_empty() || mode::is_classic_only(&envelope.mode),
        ProfileSetting::Classic => true,
        ProfileSetting::Standard => false,
    }
}

fn is_nobody(caller: &Caller) -> bool {
    matches!(caller.credential, Credential::Refused(_))
}

/// Steps 1 to 4: the sender an envelope counts as.
fn screen<'a>(envelope: &'a Envelope, caller: &'a Caller, limits: &Limits) -> Result<&'a str, Rejection> {
    if ambient::is_ambient(envelope) {
        return ambient::screen(envelope, caller, limits);
    }
    let standard = || standard::screen(envelope, caller, limits);
    if envelope.message_type == SESSION_START {
        let nothing = Registered::default();
        return match choose(limits.profile, envelope, &caller.credential, &nothing) {
            Ok(Profile::Standard) => standard(),
            // A start that may choose no profile is refused at its place in the classic order.
            Ok(Profile::Classic) | Err(_) => classic::screen_start(envelope, caller, &nothing, limits),
        };
    }
    let classic = || classic::screen_message(envelope, caller, limits);
    match &caller.credential {
        Credential::Absent => classic(),
        // The session, which nobody has looked at yet, decides by which rules: what passes by either counts, and who is
        // refused for who it is has to be by both.
        Credential::Identity(_) => standard().or_else(|by_standard| {
            classic().map_err(|by_classic| match by_standard.code {
                Code::Unauthenticated => by_classic,
                _ => by_standard,
            })
        }),
        // Nobody, whom no session answers: as if it named none, by the rules that the mode it names is known in.
        Credential::Refused(_) if is_classic(envelope, limits) => classic(),
        Credential::Refused(_) => standard(),
    }
}
