//! Classic Decision: proposals, evaluations, objections, votes, and one commitment that ends it.
//!
//! ```text
//!            Proposal            Vote             Commitment
//!  Proposal ─────────▶ Evaluation ───▶ Voting ─────────────▶ Committed
//!                          ▲              │
//!                          └──────────────┘ Proposal, Evaluation, Objection
//! ```
//!
//! Semantic-deterministic. Inside the determinism boundary: the accepted envelopes, their order, senders and payloads.
//! Outside: timestamps, and whatever moved the participants to write what they wrote.

use std::collections::{BTreeMap, BTreeSet};

use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use macp_wire::v1::{CommitmentPayload, Envelope};
use serde_json::json;
use smol_str::SmolStr;

use super::decode;
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::{Profile, Rejection, SESSION_START};

/// The payload with which clients of the first protocol version end a session.
const LEGACY_RESOLVE: &[u8] = b"resolve";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Proposal,
    Evaluation,
    Voting,
    Committed,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Proposal => "Proposal",
            Phase::Evaluation => "Evaluation",
            Phase::Voting => "Voting",
            Phase::Committed => "Committed",
        }
    }
}

/// What a rule needs to know; the texts are in the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    phase: Phase,
    proposals: BTreeSet<SmolStr>,
    evaluations: u64,
    objections: u64,
    votes: BTreeMap<SmolStr, Vote>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    proposal_id: SmolStr,
    vote: SmolStr,
}

#[derive(Debug)]
pub enum Change {
    Proposed { proposal_id: SmolStr },
    Evaluated,
    Objected,
    Voted { sender: SmolStr, vote: Vote },
    Committed,
}

#[derive(Debug)]
pub enum Decision {}

impl Mode for Decision {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Classic,
        name: crate::mode::DECISION,
        aliases: &["decision"],
        version: "1.0.0",
        title: "Decision Mode",
        description: "Proposals are evaluated, objected to and voted on; one commitment binds the outcome.",
        determinism: Determinism::SemanticDeterministic,
        participant_model: "declared",
        message_types: &[SESSION_START, "Proposal", "Evaluation", "Objection", "Vote", "Commitment"],
        terminal_message_types: &["Commitment"],
        commits_by_policy: false,
    };

    fn start(_start: &Start<'_>) -> Result<State, Rejection> {
        Ok(State::default())
    }

    fn judge(_view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "Proposal" => judge_proposal(envelope),
            "Evaluation" => judge_evaluation(state, envelope),
            "Objection" => judge_objection(state, envelope),
            "Vote" => judge_vote(state, envelope),
            "Commitment" => judge_commitment(state, envelope),
            "Message" if envelope.payload == LEGACY_RESOLVE => Ok(Response::Resolve(envelope.payload.clone())),
            "Message" => Ok(Response::NoOp),
            unknown => Err(Rejection::invalid(format!("the decision mode has no message type {unknown:?}"))),
        }
    }

    fn apply(state: &mut State, change: Change) {
        match change {
            Change::Proposed { proposal_id } => {
                state.proposals.insert(proposal_id);
                state.phase = Phase::Evaluation;
            }
            Change::Evaluated => {
                state.evaluations += 1;
                state.phase = Phase::Evaluation;
            }
            Change::Objected => {
                state.objections += 1;
                state.phase = Phase::Evaluation;
            }
            Change::Voted { sender, vote } => {
                state.votes.insert(sender, vote);
                state.phase = Phase::Voting;
            }
            Change::Committed => state.phase = Phase::Committed,
        }
    }

    fn describe(_view: &View<'_>, state: &State) -> serde_json::Value {
        let votes: BTreeMap<&str, _> = state
            .votes
            .iter()
            .map(|(sender, vote)| {
                let vote = json!({"proposal_id": vote.proposal_id.as_str(), "vote": vote.vote.as_str()});
                (sender.as_str(), vote)
            })
            .collect();
        json!({
            "phase": state.phase.as_str(),
            "proposals": state.proposals.iter().map(SmolStr::as_str).collect::<Vec<_>>(),
            "evaluations": state.evaluations,
            "objections": state.objections,
            "votes": votes,
        })
    }
}

fn judge_proposal(envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: ProposalPayload = decode(envelope)?;
    if payload.proposal_id.is_empty() {
        return Err(Rejection::invalid("a Proposal needs a proposal_id"));
    }
    Ok(Response::Persist(Change::Proposed { proposal_id: payload.proposal_id.into() }))
}

fn judge_evaluation(state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: EvaluationPayload = decode(envelope)?;
    check_proposed(state, &payload.proposal_id)?;
    if !payload.confidence.is_finite() {
        return Err(Rejection::invalid("confidence is not a finite number"));
    }
    Ok(Response::Persist(Change::Evaluated))
}

fn judge_objection(state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: ObjectionPayload = decode(envelope)?;
    check_proposed(state, &payload.proposal_id)?;
    Ok(Response::Persist(Change::Objected))
}

fn judge_vote(state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: VotePayload = decode(envelope)?;
    if state.proposals.is_empty() {
        return Err(Rejection::invalid("there is no proposal to vote on"));
    }
    let vote = Vote { proposal_id: payload.proposal_id.into(), vote: payload.vote.into() };
    Ok(Response::Persist(Change::Voted { sender: SmolStr::new(&envelope.sender), vote }))
}

fn judge_commitment(state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    decode::<CommitmentPayload>(envelope)?;
    if state.votes.is_empty() {
        return Err(Rejection::invalid("a Commitment needs at least one vote before it"));
    }
    Ok(Response::PersistAndResolve { change: Change::Committed, resolution: envelope.payload.clone() })
}

fn check_proposed(state: &State, proposal_id: &str) -> Result<(), Rejection> {
    if state.proposals.contains(proposal_id) {
        return Ok(());
    }
    Err(Rejection::invalid(format!("there is no proposal {proposal_id:?}")))
}
