//! A session in memory: what it is bound to, where it stands, what it has seen.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use macp_wire::history::v1::ExpiryCause;
use macp_wire::v1::{ParticipantActivity, SessionMetadata, SessionState};
use sha2::{Digest, Sha256};
use smol_str::SmolStr;

use crate::policy::evaluate::may_commit;
use crate::{ACTIVITY_SHOWN_MAX, Binding, Caller, Credential, Profile, Suspension, mode};

/// Where a session stands in its life. Terminal states are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    Suspended,
    Resolved,
    Expired,
    Cancelled,
}

impl State {
    pub fn is_open(self) -> bool {
        self == State::Open
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, State::Resolved | State::Expired | State::Cancelled)
    }

    pub fn to_wire(self) -> SessionState {
        match self {
            State::Open => SessionState::Open,
            State::Suspended => SessionState::Suspended,
            State::Resolved => SessionState::Resolved,
            State::Expired => SessionState::Expired,
            State::Cancelled => SessionState::Cancelled,
        }
    }

    /// The state behind a stored number; none for states this implementation never writes.
    pub fn from_wire(state: i32) -> Option<State> {
        match SessionState::try_from(state).ok()? {
            SessionState::Open => Some(State::Open),
            SessionState::Suspended => Some(State::Suspended),
            SessionState::Resolved => Some(State::Resolved),
            SessionState::Expired => Some(State::Expired),
            SessionState::Cancelled => Some(State::Cancelled),
            SessionState::Unspecified => None,
        }
    }

    /// As classic stream answers and conformance fixtures spell it.
    pub fn name(self) -> &'static str {
        match self {
            State::Open => "Open",
            State::Suspended => "Suspended",
            State::Resolved => "Resolved",
            State::Expired => "Expired",
            State::Cancelled => "Cancelled",
        }
    }
}

/// The part of a session that time acts on: small enough to stand in an index, so that expiry needs no history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub state: State,
    pub deadline_ms: i64,
    /// Up to and including this moment time alone changes nothing.
    pub quiet_until_ms: i64,
    /// Of the last entry.
    pub sequence: u64,
    /// The latest acceptance time of any entry so far.
    pub latest_ms: i64,
}

impl Position {
    /// Returns the time that counts for the session when the clock reads `now`.
    ///
    /// A clock that was set back does not take the session with it: no entry is accepted before an earlier one, and a
    /// deadline that has passed has passed for good.
    pub fn clamped(&self, now: i64) -> i64 {
        now.max(self.latest_ms)
    }
}

/// What a session takes of memory that holds nothing yet, and what is kept of a message and of a name beside its text, in
/// bytes.
const WEIGHT_EMPTY: u64 = 2048;
const WEIGHT_PER_MESSAGE: u64 = 64;
const WEIGHT_PER_NAME: u64 = 64;

/// Time changes nothing any more.
pub(crate) const NEVER: i64 = i64::MAX;

/// Messages of one sender that became history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    pub last_at_ms: i64,
    pub count: u32,
}

/// One session. Built and changed by [`crate::apply`] alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) binding: Binding,
    pub(crate) position: Position,
    /// Of the last accepted envelope.
    pub(crate) ordinal: u64,
    pub(crate) started_at_ms: i64,
    /// SessionStart's own timestamp, which the deadline may come from.
    pub(crate) start_timestamp_ms: i64,
    /// Bytes of the accepted envelopes, for the cap.
    pub(crate) bytes: u64,
    pub(crate) seen: Seen,
    pub(crate) activity: BTreeMap<SmolStr, Activity>,
    pub(crate) mode_state: mode::State,
    pub(crate) suspension: Suspension,
    pub(crate) resolution: Option<Bytes>,
    /// Ended by CancelSession.
    pub(crate) cancelled: bool,
    /// Why it expired, if it did.
    pub(crate) expiry: ExpiryCause,
}

impl Session {
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    pub fn state(&self) -> State {
        self.position.state
    }

    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Of the last entry, bookkeeping included.
    pub fn sequence(&self) -> u64 {
        self.position.sequence
    }

    /// Number of accepted envelopes.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// What it takes of memory, in bytes, roughly: all it was sent, though not all of that is kept, and what is kept
    /// beside that.
    pub fn weight(&self) -> u64 {
        let names = self.binding.roster.len() + self.activity.len();
        let text = self.bytes.saturating_add(self.binding.policy.descriptor.rules.len() as u64);
        WEIGHT_EMPTY
            .saturating_add(text)
            .saturating_add(self.ordinal.saturating_mul(WEIGHT_PER_MESSAGE))
            .saturating_add((names as u64).saturating_mul(WEIGHT_PER_NAME))
    }

    pub fn started_at_ms(&self) -> i64 {
        self.started_at_ms
    }

    pub fn mode_state(&self) -> &mode::State {
        &self.mode_state
    }

    pub fn suspension(&self) -> &Suspension {
        &self.suspension
    }

    /// What the mode may know of the session at a time.
    pub fn view(&self, now_ms: i64) -> mode::View<'_> {
        let binding = &self.binding;
        mode::View {
            roster: &binding.roster,
            initiator: &binding.initiator,
            mode_version: &binding.mode_version,
            configuration_version: &binding.configuration_version,
            policy: &binding.policy,
            extension: binding.extension.as_deref(),
            suspension: &self.suspension,
            now_ms,
        }
    }

    /// The mode's state for people and tools.
    pub fn describe_mode(&self) -> serde_json::Value {
        self.mode_state.describe(&self.view(self.started_at_ms))
    }

    /// Sets when time next acts on the session, from everything that may make it.
    pub(crate) fn reschedule(&mut self) {
        let deadline_ms = self.position.deadline_ms;
        self.position.quiet_until_ms = match self.position.state {
            State::Open => {
                let scheduled = self.mode_state.scheduled(&self.view(deadline_ms));
                scheduled.map_or(deadline_ms, |scheduled| deadline_ms.min(scheduled.at_ms.saturating_sub(1)))
            }
            State::Suspended => self.suspension.limit_ms().unwrap_or(NEVER),
            State::Resolved | State::Expired | State::Cancelled => NEVER,
        };
    }

    pub fn resolution(&self) -> Option<&Bytes> {
        self.resolution.as_ref()
    }

    /// When a message id was accepted, if it was.
    pub fn accepted_at(&self, message_id: &str) -> Option<i64> {
        self.seen.accepted_at(message_id)
    }

    /// Whether a caller may know how the session stands: those who take part, by its start, by its roster or because
    /// anyone may join it, those who may end or hold it, and everybody in local development.
    pub fn shows_itself_to(&self, caller: &Caller) -> bool {
        let Binding { profile, roster, initiator, .. } = &self.binding;
        let identity = match &caller.credential {
            Credential::Absent => return true,
            Credential::Identity(identity) => identity,
            Credential::Refused(_) => return false,
        };
        let open = *profile == Profile::Classic && roster.is_empty();
        let by_role = caller.scope.may_cancel || caller.scope.may_suspend;
        open || by_role || roster.contains(identity) || *initiator == *identity || self.is_ended_by(identity)
    }

    /// Whether its policy lets somebody commit who did not start it.
    pub(crate) fn is_ended_by(&self, identity: &str) -> bool {
        let Binding { mode, policy, roster, initiator, .. } = &self.binding;
        mode.spec().commits_by_policy && may_commit(policy, initiator, roster, identity)
    }

    /// What GetSession tells.
    pub fn metadata(&self) -> SessionMetadata {
        let activity = self.latest_activity().into_iter().map(|(participant, activity)| ParticipantActivity {
            participant_id: participant.to_string(),
            last_message_at_unix_ms: activity.last_at_ms,
            message_count: activity.count,
        });
        SessionMetadata { participant_activity: activity.collect(), ..self.summary() }
    }

    /// By name, the [`ACTIVITY_SHOWN_MAX`] senders who wrote last; of those who wrote at the same time, the first by
    /// name.
    fn latest_activity(&self) -> Vec<(&SmolStr, &Activity)> {
        let mut senders: Vec<_> = self.activity.iter().collect();
        if senders.len() > ACTIVITY_SHOWN_MAX {
            senders.select_nth_unstable_by_key(ACTIVITY_SHOWN_MAX, |(name, activity)| {
                (Reverse(activity.last_at_ms), *name)
            });
            senders.truncate(ACTIVITY_SHOWN_MAX);
            senders.sort_unstable_by_key(|(name, _)| *name);
        }
        senders
    }

    /// The metadata without what grows with the messages: fit for an index that is written with every entry.
    pub fn summary(&self) -> SessionMetadata {
        SessionMetadata {
            session_id: self.id.to_string(),
            mode: self.binding.mode_name().to_owned(),
            state: self.state().to_wire().into(),
            started_at_unix_ms: self.started_at_ms,
            expires_at_unix_ms: self.position.deadline_ms,
            mode_version: self.binding.mode_version.to_string(),
            configuration_version: self.binding.configuration_version.to_string(),
            policy_version: self.binding.policy_version.to_string(),
            participants: self.binding.roster.iter().map(str::to_owned).collect(),
            initiator: self.binding.initiator.to_string(),
            context_id: self.binding.labels.as_ref().map(|labels| labels.context_id.clone()).unwrap_or_default(),
            extension_keys: self
                .binding
                .labels
                .as_ref()
                .map(|labels| labels.extension_keys.clone())
                .unwrap_or_default(),
            ..SessionMetadata::default()
        }
    }
}

/// Accepted message ids, as digests: an id may be 256 bytes long and a session may have very many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    accepted_at_ms: BTreeMap<[u8; 16], i64>,
}

impl Seen {
    pub(crate) fn accepted_at(&self, message_id: &str) -> Option<i64> {
        self.accepted_at_ms.get(&digest(message_id)).copied()
    }

    pub(crate) fn insert(&mut self, message_id: &str, accepted_at_ms: i64) {
        self.accepted_at_ms.insert(digest(message_id), accepted_at_ms);
    }
}

fn digest(message_id: &str) -> [u8; 16] {
    let full: [u8; 32] = Sha256::digest(message_id.as_bytes()).into();
    let mut short = [0; 16];
    short.copy_from_slice(&full[..16]);
    short
}
