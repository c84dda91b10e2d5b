//! Everything a session is bound to at its start. None of it ever changes, and all of it is in the first entry, so
//! that a history can be replayed with nothing else at hand.

use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1 as history;
use macp_wire::v1::Envelope;
use smol_str::SmolStr;

use crate::{Limits, Profile, Roster, mode};

/// The one protocol version there is.
pub const PROTOCOL_VERSION: &str = "1.0";

/// Major version of the schema namespace `macp.v1`.
pub const SCHEMA_MAJOR: u32 = 1;

/// Names this implementation's revision of the rules. From the first tagged release on, a change that decides anything
/// differently gets a new number and the old rules stay for old histories.
pub const SEMANTICS_REVISION: u32 = 1;

/// What stays in memory of a session's binding; context and roots are in the first entry alone, because no rule needs
/// them after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub profile: Profile,
    pub mode: mode::Kind,
    pub mode_version: SmolStr,
    pub configuration_version: SmolStr,
    pub policy_version: SmolStr,
    pub initiator: SmolStr,
    pub roster: Roster,
    pub entries_max: u64,
    pub bytes_max: u64,
}

impl Binding {
    /// Binds a classic start that has passed every check.
    pub(crate) fn classic(
        mode: mode::Kind,
        roster: Roster,
        envelope: &Envelope,
        payload: &SessionStartPayload,
        limits: &Limits,
    ) -> Self {
        Binding {
            profile: Profile::Classic,
            mode,
            mode_version: SmolStr::new_static(mode.spec().version),
            configuration_version: SmolStr::new(&payload.configuration_version),
            policy_version: SmolStr::new(&payload.policy_version),
            initiator: SmolStr::new(&envelope.sender),
            roster,
            entries_max: limits.session_entries_max,
            bytes_max: limits.session_bytes_max,
        }
    }

    /// As the first entry records it.
    pub(crate) fn to_wire(&self, payload: &SessionStartPayload, ttl_ms: i64, deadline_ms: i64) -> history::Binding {
        history::Binding {
            profile: self.profile.to_wire().into(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            schema_major: SCHEMA_MAJOR,
            semantics_revision: SEMANTICS_REVISION,
            mode: self.mode.spec().name.to_owned(),
            mode_version: self.mode_version.to_string(),
            configuration_version: self.configuration_version.to_string(),
            policy_version: self.policy_version.to_string(),
            initiator: self.initiator.to_string(),
            participants: self.roster.iter().map(str::to_owned).collect(),
            deadline_unix_ms: deadline_ms,
            context: payload.context.clone(),
            roots: payload.roots.clone(),
            entries_max: self.entries_max,
            bytes_max: self.bytes_max,
            intent: payload.intent.clone(),
            ttl_ms,
        }
    }
}
