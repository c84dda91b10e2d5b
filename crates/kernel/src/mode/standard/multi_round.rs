//! Multi-Round: participants contribute values, round after round, until all of them hold the same one. A Commitment
//! of the initiator then ends the session; convergence alone does not. Policies have no say here.
//!
//! Semantic-deterministic. Inside the determinism boundary: the roster, the accepted contributions and their order.
//! Outside: time, and how a participant came by its value.

mod contribution;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use macp_wire::v1::Envelope;
use serde::Serialize;
use serde_json::json;
use smol_str::SmolStr;

use super::{COMMITMENT, Place, authorize_initiator, authorize_participant, commitment, sender_place, unknown_type};
use crate::limits::check_length;
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::{CONTRIBUTION_BYTES_MAX, Profile, Rejection, SESSION_START};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    round: u64,
    /// Current value per participant, by place.
    values: Box<[Option<SmolStr>]>,
    /// How many hold each value; kept up to date so that convergence is one look-up.
    held: BTreeMap<SmolStr, usize>,
    converged: bool,
}

/// A contribution that is new or differs from the sender's last one.
#[derive(Debug)]
pub struct Change {
    participant: Place,
    value: SmolStr,
}

/// The outcome, in the member order clients know.
#[derive(Serialize)]
struct Resolution<'a> {
    converged_value: &'a str,
    round: u64,
    #[serde(rename = "final")]
    values: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug)]
pub enum MultiRound {}

impl Mode for MultiRound {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: "ext.multi_round.v1",
        aliases: &[],
        version: "1.0.0",
        title: "Multi-Round Convergence Mode",
        description: "Participants contribute values until all agree; one commitment binds the outcome.",
        determinism: Determinism::SemanticDeterministic,
        participant_model: "peer",
        message_types: &[SESSION_START, "Contribute", COMMITMENT],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: false,
    };

    fn start(start: &Start<'_>) -> Result<State, Rejection> {
        if start.roster.is_empty() {
            return Err(Rejection::invalid("a multi-round session needs participants"));
        }
        Ok(State {
            round: 0,
            values: vec![None; start.roster.len()].into_boxed_slice(),
            held: BTreeMap::new(),
            converged: false,
        })
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        match envelope.message_type.as_str() {
            COMMITMENT => authorize_initiator(view, envelope),
            _ => authorize_participant(view, envelope),
        }
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "Contribute" => judge_contribution(view, state, envelope),
            COMMITMENT => judge_commitment(view, state, envelope),
            _ => Err(unknown_type("multi-round", envelope)),
        }
    }

    fn apply(state: &mut State, Change { participant, value }: Change) {
        let previous = state.values[usize::from(participant)].replace(value.clone());
        if let Some(previous) = previous {
            let held = state.held.get_mut(&previous).expect("a participant's value is held");
            *held -= 1;
            if *held == 0 {
                state.held.remove(&previous);
            }
        }
        let held = state.held.entry(value).or_default();
        *held += 1;
        state.converged = *held == state.values.len();
        state.round += 1;
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        json!({
            "round": state.round,
            "participants": view.roster.iter().collect::<Vec<_>>(),
            "contributions": state.contributions(view),
            "convergence_type": "all_equal",
            "converged": state.converged,
        })
    }
}

fn judge_contribution(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    if state.converged {
        return Err(Rejection::invalid("the session has converged and waits for its Commitment"));
    }
    let value = contribution::read(&envelope.payload)?;
    check_length("value", &value, CONTRIBUTION_BYTES_MAX)?;
    let participant = sender_place(view, envelope)?;
    if state.values[usize::from(participant)].as_deref() == Some(value.as_str()) {
        return Ok(Response::NoOp);
    }
    Ok(Response::Persist(Change { participant, value: value.into() }))
}

fn judge_commitment(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let unready = || Rejection::invalid("a Commitment needs all participants to hold the same value before it");
    if !state.converged {
        return Err(unready());
    }
    // Before the resolution is written, which may be large.
    commitment::read(view, envelope)?;
    state.resolution(view).map(Response::Resolve).ok_or_else(unready)
}

impl State {
    fn contributions<'a>(&'a self, view: &View<'a>) -> BTreeMap<&'a str, &'a str> {
        let values = view.roster.iter().zip(&self.values);
        values.filter_map(|(name, value)| value.as_ref().map(|value| (name, value.as_str()))).collect()
    }

    /// What was agreed on, once it is.
    fn resolution(&self, view: &View<'_>) -> Option<Bytes> {
        if !self.converged {
            return None;
        }
        let (converged_value, _) = self.held.first_key_value()?;
        let resolution = Resolution { converged_value, round: self.round, values: self.contributions(view) };
        Some(serde_json::to_vec(&resolution).expect("strings and numbers are valid JSON").into())
    }
}
