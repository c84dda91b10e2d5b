//! Everything a session is bound to at its start. None of it ever changes, and all of it is in the first entry, so
//! that a history can be replayed with nothing else at hand.

use std::sync::Arc;

use macp_wire::history::v1 as history;
use macp_wire::{classic, v1};
use smol_str::SmolStr;

use crate::mode::Extension;
use crate::policy::{self, Policy};
use crate::{LABEL_BYTES_MAX, Limits, Profile, Roster, mode};

/// The one protocol version there is.
pub const PROTOCOL_VERSION: &str = "1.0";

/// Major version of the schema namespace `macp.v1`.
pub const SCHEMA_MAJOR: u32 = 1;

/// Names this implementation's revision of the rules. From the first tagged release on, a change that decides anything
/// differently gets a new number and the old rules stay for old histories.
pub const SEMANTICS_REVISION: u32 = 1;

/// What stays in memory of a session's binding; context and roots are in the first entry alone, because no rule needs
/// them after the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub profile: Profile,
    pub mode: mode::Kind,
    pub mode_version: SmolStr,
    pub configuration_version: SmolStr,
    /// As named at the start; of a standard session, the id of the policy it resolved to.
    pub policy_version: SmolStr,
    /// Shared by the sessions that were started under it.
    pub policy: Arc<Policy>,
    pub extension: Option<Arc<Extension>>,
    pub initiator: SmolStr,
    pub roster: Roster,
    pub entries_max: u64,
    pub bytes_max: u64,
    pub labels: Option<Box<Labels>>,
}

/// What a client attached to a session for others to find it by, as far as it is short. Nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Empty if it is longer than [`LABEL_BYTES_MAX`].
    pub context_id: String,
    /// Sorted. None of them if together they take more than [`LABEL_BYTES_MAX`]: part of a list would pass for all of it.
    pub extension_keys: Vec<String>,
}

impl Binding {
    /// Binds a classic start that has passed every check.
    pub(crate) fn classic(
        mode: mode::Kind,
        roster: Roster,
        envelope: &v1::Envelope,
        payload: &classic::v1::SessionStartPayload,
        limits: &Limits,
    ) -> Self {
        Binding {
            profile: Profile::Classic,
            mode,
            mode_version: SmolStr::new_static(mode.spec().version),
            configuration_version: SmolStr::new(&payload.configuration_version),
            policy_version: SmolStr::new(&payload.policy_version),
            policy: Arc::clone(policy::default_policy()),
            extension: None,
            initiator: SmolStr::new(&envelope.sender),
            roster,
            entries_max: limits.session_entries_max,
            bytes_max: limits.session_bytes_max,
            labels: None,
        }
    }

    /// Full name of the mode.
    pub fn mode_name(&self) -> &str {
        match &self.extension {
            Some(extension) => &extension.descriptor.mode,
            None => self.mode.spec().name,
        }
    }

    /// As the first entry of a classic session records it.
    pub(crate) fn classic_to_wire(
        &self,
        payload: &classic::v1::SessionStartPayload,
        ttl_ms: i64,
        deadline_ms: i64,
    ) -> history::Binding {
        history::Binding {
            context: payload.context.clone(),
            roots: payload.roots.clone(),
            intent: payload.intent.clone(),
            ..self.to_wire(ttl_ms, deadline_ms)
        }
    }

    /// As the first entry of a standard session records it.
    pub(crate) fn standard_to_wire(
        &self,
        payload: &v1::SessionStartPayload,
        deadline_ms: i64,
        suspend_ms_max: i64,
    ) -> history::Binding {
        history::Binding {
            roots: payload.roots.clone(),
            intent: payload.intent.clone(),
            policy: Some(self.policy.descriptor.clone()),
            suspend_ms_max,
            extension_mode: self.extension.as_ref().map(|extension| extension.descriptor.clone()),
            extension_promoted: self.extension.as_ref().is_some_and(|extension| extension.promoted),
            ..self.to_wire(payload.ttl_ms, deadline_ms)
        }
    }

    fn to_wire(&self, ttl_ms: i64, deadline_ms: i64) -> history::Binding {
        history::Binding {
            profile: self.profile.to_wire().into(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            schema_major: SCHEMA_MAJOR,
            semantics_revision: SEMANTICS_REVISION,
            mode: self.mode_name().to_owned(),
            mode_version: self.mode_version.to_string(),
            configuration_version: self.configuration_version.to_string(),
            policy_version: self.policy_version.to_string(),
            initiator: self.initiator.to_string(),
            participants: self.roster.iter().map(str::to_owned).collect(),
            deadline_unix_ms: deadline_ms,
            entries_max: self.entries_max,
            bytes_max: self.bytes_max,
            ttl_ms,
            ..history::Binding::default()
        }
    }
}

impl Labels {
    /// None when there is nothing to keep.
    pub(crate) fn of(payload: &v1::SessionStartPayload) -> Option<Box<Self>> {
        let context_id =
            Some(&payload.context_id).filter(|id| id.len() <= LABEL_BYTES_MAX).cloned().unwrap_or_default();
        let taken: usize = payload.extensions.keys().map(|key| size_of::<String>() + key.len()).sum();
        let extension_keys: Vec<_> = match taken <= LABEL_BYTES_MAX {
            true => payload.extensions.keys().cloned().collect(),
            false => Vec::new(),
        };
        let is_empty = context_id.is_empty() && extension_keys.is_empty();
        (!is_empty).then(|| Box::new(Labels { context_id, extension_keys }))
    }
}
