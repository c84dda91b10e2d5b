//! Which set of rules a session is born under, and how a SessionStart chooses.

use macp_wire::codes::Code;
use macp_wire::history::v1 as history;
use macp_wire::v1::Envelope;
use prost::Message;

use crate::session_id::is_unguessable;
use crate::{
    Credential, ID_BYTES_MAX, Limits, PARTICIPANTS_MAX, Registered, Rejection, STANDARD_MESSAGE_ID_BYTES_MAX,
    TTL_MS_MAX, mode,
};

/// A set of rules. Chosen once, recorded in the first entry, never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The protocol whose rules docs/PROTOCOL.md gives, with its Decision and Multi-Round modes.
    Classic,
    /// Today's public standard.
    Standard,
}

impl Profile {
    pub fn to_wire(self) -> history::Profile {
        match self {
            Profile::Classic => history::Profile::Classic,
            Profile::Standard => history::Profile::Standard,
        }
    }
}

/// Which profiles a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileSetting {
    /// The SessionStart chooses.
    #[default]
    Auto,
    /// Every decision and multi-round session is classic.
    Classic,
    /// Classic starts are refused.
    Standard,
}

/// The fields 1 to 6 of a SessionStartPayload, which both profiles share. Only they are read to choose.
#[derive(Clone, PartialEq, Message)]
struct SharedStart {
    #[prost(string, repeated, tag = "2")]
    participants: Vec<String>,
    #[prost(string, tag = "3")]
    mode_version: String,
    #[prost(string, tag = "4")]
    configuration_version: String,
    #[prost(int64, tag = "6")]
    ttl_ms: i64,
}

/// Chooses the profile of a SessionStart.
pub(crate) fn choose(
    setting: ProfileSetting,
    envelope: &Envelope,
    credential: &Credential,
    registered: &Registered,
) -> Result<Profile, Rejection> {
    if setting == ProfileSetting::Classic {
        return Ok(Profile::Classic);
    }
    if envelope.mode.is_empty() || mode::is_classic_only(&envelope.mode) {
        return classic_where_offered(setting, envelope);
    }
    if envelope.mode == mode::DECISION && *credential == Credential::Absent {
        if is_standard_start(envelope) {
            return Err(Rejection::unauthenticated(
                "this is a start by today's standard, which needs a credential; a classic start names the mode \
                 `decision` or leaves out mode_version and configuration_version",
            ));
        }
        return classic_where_offered(setting, envelope);
    }
    let known = mode::find_standard(&envelope.mode).is_some() || registered.extension.is_some();
    if !known && *credential == Credential::Absent && setting == ProfileSetting::Auto {
        // Nothing here has a profile, and whoever comes without a credential gets the classic answer.
        return Ok(Profile::Classic);
    }
    Ok(Profile::Standard)
}

/// The profile a SessionStart would be judged by; one that may choose none is refused the classic way.
pub fn start_profile(
    envelope: &Envelope,
    credential: &Credential,
    registered: &Registered,
    limits: &Limits,
) -> Profile {
    choose(limits.profile, envelope, credential, registered).unwrap_or(Profile::Classic)
}

fn classic_where_offered(setting: ProfileSetting, envelope: &Envelope) -> Result<Profile, Rejection> {
    if setting != ProfileSetting::Standard {
        return Ok(Profile::Classic);
    }
    if !envelope.mode.is_empty() && mode::is_classic_only(&envelope.mode) {
        let message =
            format!("mode {:?} belongs to the classic profile, which this server does not offer", envelope.mode);
        return Err(Rejection::new(Code::ModeNotSupported, message));
    }
    Err(Rejection::invalid("this is a classic start, and this server takes standard ones only"))
}

/// Whether a start lacks nothing but the credential to be a valid standard start.
fn is_standard_start(envelope: &Envelope) -> bool {
    let Ok(start) = SharedStart::decode(envelope.payload.clone()) else {
        return false;
    };
    let mut distinct = std::collections::BTreeSet::new();
    !envelope.message_id.is_empty()
        && envelope.message_id.len() <= STANDARD_MESSAGE_ID_BYTES_MAX
        && is_unguessable(&envelope.session_id)
        && start.mode_version == mode::Kind::Decision.spec().version
        && !start.configuration_version.trim().is_empty()
        && start.configuration_version.len() <= ID_BYTES_MAX
        && (1..=TTL_MS_MAX).contains(&start.ttl_ms)
        && start.participants.len() <= PARTICIPANTS_MAX
        && start.participants.iter().all(|participant| {
            let name = participant.trim();
            !name.is_empty() && participant.len() <= ID_BYTES_MAX && distinct.insert(name)
        })
}
