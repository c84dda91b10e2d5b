//! What the session index says of a session, held against its history.
//!
//! The chain covers the history alone. But the index is what listings show and what says when a session runs out of
//! time, so a row that was changed is damage like any other.

use macp_kernel::replay::Replayer;
use macp_ledger::Head;
use macp_wire::history::v1::{Entry, entry};
use macp_wire::v1::{SessionMetadata, SessionState};
use prost::Message;

use crate::verify::Bad;

/// What a history says that the index says too, gathered entry by entry.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What the first entry says of the session; none if this version does not know its rules.
    summary: Option<SessionMetadata>,
    state: SessionState,
    suspended_at_ms: Option<i64>,
}

impl Told {
    pub(crate) fn feed(&mut self, entry: &Entry) {
        if entry.sequence == 1 {
            let mut replayer = Replayer::default();
            // Whether it follows from the rules is for replay to say.
            let began = replayer.feed(entry).is_ok();
            self.summary = replayer.into_session().filter(|_| began).map(|session| session.summary());
            self.state = SessionState::Open;
        }
        match &entry.input {
            Some(entry::Input::SessionSuspend(_)) => {
                self.state = SessionState::Suspended;
                self.suspended_at_ms = Some(entry.accepted_at_unix_ms);
            }
            Some(entry::Input::SessionResume(_)) => {
                self.state = SessionState::Open;
                // A pause moves the deadline by its length.
                let pause_ms = self.suspended_at_ms.take().map(|since| entry.accepted_at_unix_ms.saturating_sub(since));
                if let (Some(summary), Some(pause_ms)) = (&mut self.summary, pause_ms) {
                    summary.expires_at_unix_ms = summary.expires_at_unix_ms.saturating_add(pause_ms.max(0));
                }
            }
            _ => {}
        }
        if let Some(terminal) = &entry.terminal {
            self.state = terminal.state();
        }
    }

    /// The first thing in which the index disagrees.
    pub(crate) fn check(self, head: &Head) -> Result<(), Bad> {
        let bad = |sequence, message| Err(Bad { sequence, message });
        let indexed = SessionState::try_from(head.state).unwrap_or_default();
        if indexed != self.state {
            let (indexed, told) = (name(indexed), name(self.state));
            return bad(head.sequence, format!("the session index says the session is {indexed}, its history {told}"));
        }
        let is_open = matches!(self.state, SessionState::Open | SessionState::Suspended);
        if head.open != is_open {
            let indexed = if head.open { "has not ended" } else { "has ended" };
            let told = name(self.state);
            return bad(head.sequence, format!("the session index says the session {indexed}, its history {told}"));
        }
        let Some(told) = self.summary else {
            return Ok(());
        };
        let Ok(indexed) = SessionMetadata::decode(head.summary.clone()) else {
            return bad(1, "what the session index says of the session cannot be read".to_owned());
        };
        if let Some(field) = difference(&indexed, &told) {
            return bad(1, format!("the session index has another {field} than the session"));
        }
        // A mode may have something to do earlier, never later.
        if self.state == SessionState::Open && head.deadline_ms > told.expires_at_unix_ms {
            return bad(1, "the session index would look at the session after its deadline".to_owned());
        }
        Ok(())
    }
}

/// The first field of a summary that is not as told. Its state is that of the time it was written at.
fn difference(indexed: &SessionMetadata, told: &SessionMetadata) -> Option<&'static str> {
    let fields = [
        ("session id", indexed.session_id == told.session_id),
        ("mode", indexed.mode == told.mode),
        ("time of its start", indexed.started_at_unix_ms == told.started_at_unix_ms),
        ("deadline", indexed.expires_at_unix_ms == told.expires_at_unix_ms),
        ("mode version", indexed.mode_version == told.mode_version),
        ("configuration version", indexed.configuration_version == told.configuration_version),
        ("policy version", indexed.policy_version == told.policy_version),
        ("list of participants", indexed.participants == told.participants),
        ("initiator", indexed.initiator == told.initiator),
        ("context id", indexed.context_id == told.context_id),
        ("list of extension keys", indexed.extension_keys == told.extension_keys),
    ];
    fields.into_iter().find(|(_, is_same)| !is_same).map(|(field, _)| field)
}

fn name(state: SessionState) -> &'static str {
    state.as_str_name().trim_start_matches("SESSION_STATE_")
}
