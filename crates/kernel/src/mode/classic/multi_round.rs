//! Classic Multi-Round: participants contribute values until enough of them hold the same one.
//!
//! Semantic-deterministic. Inside the determinism boundary: the roster, the strategy chosen in the bound context, the
//! accepted contributions and their order. Outside: timestamps, and how a participant came by its value.

use std::collections::BTreeMap;

use bytes::Bytes;
use macp_wire::modes::multi_round::v1::ContributePayload;
use macp_wire::v1::Envelope;
use serde::Serialize;
use serde_json::json;
use smol_str::SmolStr;

use super::convergence::Strategy;
use super::decode;
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::{Profile, Rejection};

#[derive(Clone, Debug, PartialEq)]
pub struct State {
    round: u64,
    /// Current value per participant, in the order of the roster.
    values: Box<[Option<SmolStr>]>,
    /// What the holders of each value weigh; kept up to date so that convergence is one look-up.
    held: BTreeMap<SmolStr, u64>,
    strategy: Strategy,
}

#[derive(Debug)]
pub struct Change {
    participant: usize,
    value: SmolStr,
}

/// The outcome, in the member order clients know.
#[derive(Serialize)]
struct Resolution<'a> {
    converged_value: &'a str,
    round: u64,
    final_values: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug)]
pub enum MultiRound {}

impl Mode for MultiRound {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Classic,
        name: crate::mode::MULTI_ROUND,
        aliases: &["multi_round"],
        version: "1.0.0",
        title: "Multi-Round Convergence Mode",
        description: "Participants contribute values, round after round, until they converge.",
        determinism: Determinism::SemanticDeterministic,
        participant_model: "closed",
        message_types: &["Contribute"],
        terminal_message_types: &["Contribute"],
        commits_by_policy: false,
    };

    fn check_context(start: &Start<'_>) -> Result<(), Rejection> {
        Strategy::from_context(start.roster, start.context).map(|_| ())
    }

    fn start(start: &Start<'_>) -> Result<State, Rejection> {
        if start.roster.is_empty() {
            return Err(Rejection::invalid("a multi-round session needs participants"));
        }
        Ok(State {
            round: 0,
            values: vec![None; start.roster.len()].into_boxed_slice(),
            held: BTreeMap::new(),
            strategy: Strategy::from_context(start.roster, start.context)?,
        })
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        if envelope.message_type != "Contribute" {
            return Ok(Response::NoOp);
        }
        let payload: ContributePayload = decode(envelope)?;
        let participant = view
            .roster
            .index_of(&envelope.sender)
            .ok_or_else(|| Rejection::invalid(format!("{:?} is no participant", envelope.sender)))?;
        let change = Change { participant, value: payload.value.into() };
        if state.strategy.is_met(state.held_after(&change)) {
            let resolution = state.resolution(view, &change);
            return Ok(Response::PersistAndResolve { change, resolution });
        }
        Ok(Response::Persist(change))
    }

    fn apply(state: &mut State, Change { participant, value }: Change) {
        if state.values[participant].as_ref() == Some(&value) {
            return;
        }
        let weight = state.strategy.weight(participant);
        // Who weighs nothing holds nothing: `held` knows only values with weight behind them.
        if weight > 0 {
            if let Some(previous) = &state.values[participant] {
                let held = state.held.get_mut(previous).expect("a value with weight behind it is held");
                *held -= weight;
                if *held == 0 {
                    state.held.remove(previous);
                }
            }
            *state.held.entry(value.clone()).or_default() += weight;
        }
        state.values[participant] = Some(value);
        state.round += 1;
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        json!({
            "round": state.round,
            "convergence_type": state.strategy.name(),
            "participants": view.roster.iter().collect::<Vec<_>>(),
            "contributions": state.contributions(view).collect::<BTreeMap<_, _>>(),
        })
    }
}

impl State {
    fn is_new(&self, change: &Change) -> bool {
        self.values[change.participant].as_ref() != Some(&change.value)
    }

    /// What the holders of the contributed value weigh once the contribution stands.
    fn held_after(&self, change: &Change) -> u64 {
        let held = self.held.get(&change.value).copied().unwrap_or_default();
        if self.is_new(change) { held + self.strategy.weight(change.participant) } else { held }
    }

    fn contributions<'a>(&'a self, view: &View<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
        view.roster
            .iter()
            .zip(&self.values)
            .filter_map(|(name, value)| value.as_ref().map(|value| (name, value.as_str())))
    }

    fn resolution(&self, view: &View<'_>, change: &Change) -> Bytes {
        let mut final_values: BTreeMap<&str, &str> = self.contributions(view).collect();
        let sender = view.roster.iter().nth(change.participant).expect("the index is from this roster");
        final_values.insert(sender, &change.value);
        let resolution = Resolution {
            converged_value: &change.value,
            round: self.round + u64::from(self.is_new(change)),
            final_values,
        };
        serde_json::to_vec(&resolution).expect("strings and numbers are valid JSON").into()
    }
}
