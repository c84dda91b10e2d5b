//! What would have happened under another policy: two replays of the same entries, side by side.
//!
//! The recorded one must reproduce the history, or there is nothing to compare with. The candidate one goes on past
//! what its policy refuses. What the runtime itself wrote (suspensions, cancellation, expiry) happens in both, and no
//! message is made that is not in the history.

use std::sync::Arc;

use macp_wire::history::v1::{Entry, entry};
use macp_wire::v1::what_if_entry_outcome::Kind;
use macp_wire::v1::{SessionState, WhatIfDenial, WhatIfEntry, WhatIfEntryOutcome, WhatIfOutcome, WhatIfReplayResponse};

use prost::Message;

use super::{Stop, bound, command, compare, replay_limits, versions};
use crate::decide::{Verdict, apply, decide};
use crate::policy::Policy;
use crate::{Limits, Registered, Rejection, Session};

/// Replays one history under its own policy and under a candidate.
#[derive(Debug)]
pub struct WhatIf {
    candidate: Arc<Policy>,
    recorded: Run,
    imagined: Run,
    limits: Limits,
    response: WhatIfReplayResponse,
    /// Of what the answer says of the entries so far.
    entry_bytes: usize,
}

/// One of the two replays.
#[derive(Debug, Default)]
struct Run {
    slot: Option<Session>,
    registered: Registered,
    resolved_by: Option<(u64, String, String)>,
}

impl WhatIf {
    /// The candidate has been validated and covers the session's mode.
    pub fn new(candidate: Policy) -> Self {
        let response =
            WhatIfReplayResponse { candidate_policy_id: candidate.id().to_owned(), ..WhatIfReplayResponse::default() };
        WhatIf {
            candidate: Arc::new(candidate),
            recorded: Run::default(),
            imagined: Run::default(),
            limits: Limits::default(),
            response,
            entry_bytes: 0,
        }
    }

    /// Takes the next entry. An error means that the history cannot be reproduced as it is.
    pub fn feed(&mut self, entry: &Entry) -> Result<(), Stop> {
        if self.recorded.slot.is_none() {
            self.begin(entry)?;
        }
        let (message_id, message_type) = match &entry.input {
            Some(entry::Input::Envelope(envelope)) => (envelope.message_id.clone(), envelope.message_type.clone()),
            _ => {
                self.recorded.reproduce(entry, &self.limits)?;
                // A run that ended earlier has nothing left to suspend, cancel or expire.
                let _unapplied = self.imagined.imagine(entry, &self.limits)?;
                return Ok(());
            }
        };
        let history_index = history_index(entry);
        self.recorded.reproduce(entry, &self.limits)?;
        let recorded = applied(self.recorded.state());
        let candidate = self.imagined.imagine(entry, &self.limits)?;
        if candidate.error_code == macp_wire::codes::Code::PolicyDenied.as_str() {
            let details = candidate.details.clone();
            self.response.denials.push(WhatIfDenial { history_index, message_id: message_id.clone(), details });
        }
        if recorded != candidate {
            self.response.first_divergence.get_or_insert(history_index);
        }
        let entry = WhatIfEntry {
            history_index,
            message_id,
            message_type,
            recorded: Some(recorded),
            candidate: Some(candidate),
        };
        self.entry_bytes += entry.encoded_len();
        self.response.entries.push(entry);
        Ok(())
    }

    /// What the answer is at least as long as.
    pub fn answer_bytes(&self) -> usize {
        self.entry_bytes
    }

    pub fn finish(mut self) -> Result<WhatIfReplayResponse, Stop> {
        if self.recorded.slot.is_none() {
            return Err(Stop::Refused("the history has no entry".to_owned()));
        }
        self.response.recorded = Some(self.recorded.outcome());
        self.response.candidate = Some(self.imagined.outcome());
        Ok(self.response)
    }

    fn begin(&mut self, first: &Entry) -> Result<(), Stop> {
        let binding = first
            .binding
            .as_ref()
            .ok_or_else(|| Stop::Refused("the first entry says nothing of what the session is bound to".into()))?;
        versions::check(binding, &super::Options::default())?;
        self.limits = replay_limits(binding);
        let registered = bound(binding)?;
        self.response.recorded_policy_id = binding.policy_version.clone();
        let mut candidate = Policy::clone(&self.candidate);
        // Commitments name the bound policy, and must go on doing so.
        candidate.descriptor.policy_id = binding.policy_version.clone();
        // Nothing is made up that is not in the history.
        candidate.rules.implicit_accept_timeout_ms = 0;
        self.imagined.registered = Registered { policy: Some(Arc::new(candidate)), ..registered.clone() };
        self.recorded.registered = registered;
        Ok(())
    }
}

impl Run {
    /// Takes a recorded decision again, which must come out the same.
    fn reproduce(&mut self, recorded: &Entry, limits: &Limits) -> Result<(), Stop> {
        let command = command(recorded, &self.registered)?;
        match decide(self.slot.as_ref(), &command, recorded.accepted_at_unix_ms, limits) {
            Verdict::Accept(accepted) => {
                if let Some(divergence) = compare::entries(recorded, &accepted.entry) {
                    return Err(Stop::Diverged(divergence));
                }
                self.take(recorded, accepted.change, history_index(recorded));
                Ok(())
            }
            other => Err(Stop::Diverged(compare::decision(recorded, &other))),
        }
    }

    /// Takes the decision under the candidate, whatever comes of it.
    fn imagine(&mut self, recorded: &Entry, limits: &Limits) -> Result<WhatIfEntryOutcome, Stop> {
        match &self.slot {
            None if recorded.binding.is_none() => return Ok(kind(Kind::NoSession)),
            Some(session) if session.state().is_terminal() => return Ok(kind(Kind::NotOpen)),
            _ => {}
        }
        let command = command(recorded, &self.registered)?;
        Ok(match decide(self.slot.as_ref(), &command, recorded.accepted_at_unix_ms, limits) {
            Verdict::Accept(accepted) => {
                // Its own entries are fewer by those it refused; the index is that of the history.
                self.take(&accepted.entry, accepted.change, history_index(recorded));
                applied(self.state())
            }
            Verdict::Reject(rejection) => refused(rejection),
            Verdict::Duplicate { .. } | Verdict::Unchanged | Verdict::Due(_) => kind(Kind::NotOpen),
        })
    }

    fn take(&mut self, entry: &Entry, change: crate::Change, index: u64) {
        apply(&mut self.slot, entry, change);
        let resolved = self.slot.as_ref().is_some_and(|session| session.resolution().is_some());
        if let (true, None, Some(entry::Input::Envelope(envelope))) = (resolved, &self.resolved_by, &entry.input) {
            self.resolved_by = Some((index, envelope.message_id.clone(), envelope.message_type.clone()));
        }
    }

    fn state(&self) -> SessionState {
        self.slot.as_ref().map_or(SessionState::Unspecified, |session| session.state().to_wire())
    }

    fn outcome(self) -> WhatIfOutcome {
        let state = self.state().into();
        let (index, message_id, message_type) = self.resolved_by.unwrap_or_default();
        WhatIfOutcome {
            state,
            resolution: self.slot.and_then(|session| session.resolution().cloned()).unwrap_or_default(),
            resolved_by_history_index: index,
            resolved_by_message_id: message_id,
            resolved_by_message_type: message_type,
        }
    }
}

/// Place of an envelope among those of the history, from 0.
fn history_index(recorded: &Entry) -> u64 {
    recorded.ordinal.saturating_sub(1)
}

fn applied(state: SessionState) -> WhatIfEntryOutcome {
    WhatIfEntryOutcome { state: state.into(), ..kind(Kind::Applied) }
}

fn refused(rejection: Rejection) -> WhatIfEntryOutcome {
    WhatIfEntryOutcome {
        error_code: rejection.code.as_str().to_owned(),
        details: rejection.details,
        ..kind(Kind::Refused)
    }
}

fn kind(kind: Kind) -> WhatIfEntryOutcome {
    WhatIfEntryOutcome { kind: kind.into(), ..WhatIfEntryOutcome::default() }
}
