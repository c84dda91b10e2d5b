//! Which set of rules a session is born under, and how a SessionStart chooses.

use macp_wire::history::v1 as history;
use macp_wire::v1::Envelope;
use prost::Message;

use crate::session_id::is_unguessable;
use crate::{Credential, PARTICIPANTS_MAX, Rejection, TTL_MS_MAX, mode};

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
) -> Result<Profile, Rejection> {
    if setting == ProfileSetting::Classic {
        return Ok(Profile::Classic);
    }
    if envelope.mode.is_empty() || mode::is_classic_only(&envelope.mode) {
        return Ok(Profile::Classic);
    }
    if envelope.mode == mode::DECISION && *credential == Credential::Absent {
        if is_standard_start(envelope) {
            return Err(Rejection::unauthenticated(
                "this is a start by today's standard, which needs a credential; a classic start names the mode \
                 `decision` or leaves out mode_version and configuration_version",
            ));
        }
        return Ok(Profile::Classic);
    }
    Ok(Profile::Standard)
}

/// Whether a start lacks nothing but the credential to be a valid standard start.
fn is_standard_start(envelope: &Envelope) -> bool {
    let Ok(start) = SharedStart::decode(envelope.payload.clone()) else {
        return false;
    };
    let mut distinct = std::collections::BTreeSet::new();
    !envelope.message_id.is_empty()
        && is_unguessable(&envelope.session_id)
        && !start.mode_version.trim().is_empty()
        && !start.configuration_version.trim().is_empty()
        && (1..=TTL_MS_MAX).contains(&start.ttl_ms)
        && start.participants.len() <= PARTICIPANTS_MAX
        && start.participants.iter().all(|name| {
            let name = name.trim();
            !name.is_empty() && distinct.insert(name)
        })
}
