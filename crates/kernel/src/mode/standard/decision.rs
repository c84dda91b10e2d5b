//! Decision: proposals, evaluations, objections, votes, and one commitment that ends it.
//!
//! ```text
//!            Proposal            Vote          Commitment
//!  Proposal ─────────▶ Evaluation ───▶ Voting ───────────▶ Committed
//! ```
//!
//! There is no way back: the first vote closes the list of proposals and the deliberation about them. A Commitment
//! needs a proposal; whether it needs votes is for the policy to say.
//!
//! Semantic-deterministic. Inside the determinism boundary: the roster, the bound policy, the accepted envelopes, their
//! order, senders and payloads. Outside: time, and whatever moved the participants to write what they wrote.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use macp_wire::v1::Envelope;
use serde_json::json;
use smol_str::SmolStr;

use super::{COMMITMENT, Place, authorize_participant, check_not_blank, commitment, decode, names, sender_place};
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::policy::evaluate::{self, Ballot, Ballots, DecisionFacts};
use crate::{Profile, Rejection, SESSION_START};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Proposal,
    Evaluation,
    Voting,
    Committed,
}

/// What the policy asks of evaluations, objections and votes is kept up to date with every message, so that a Commitment
/// need not read those lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    phase: Phase,
    /// Proposer of each proposal.
    proposals: BTreeMap<SmolStr, Place>,
    evaluations: Vec<Evaluation>,
    objections: Vec<Objection>,
    votes: BTreeMap<SmolStr, BTreeMap<SmolStr, Ballot>>,
    /// Evaluations that recommend something other than a review.
    verdicts: u64,
    /// Of those.
    highest_confidence: Option<f64>,
    critical_objections: u64,
    critical_objectors: BTreeSet<SmolStr>,
    ballots: Ballots,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    proposal_id: SmolStr,
    sender: Place,
    recommendation: Recommendation,
    confidence: f64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    proposal_id: SmolStr,
    sender: Place,
    severity: Severity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recommendation {
    Approve,
    Review,
    Block,
    Reject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Low,
    Medium,
    High,
    Critical,
}

#[derive(Debug)]
pub enum Change {
    Proposed { proposal_id: SmolStr, sender: Place },
    Evaluated(Evaluation),
    Objected { objection: Objection, sender: SmolStr },
    Voted { proposal_id: SmolStr, sender: SmolStr, ballot: Ballot },
    Committed,
}

#[derive(Debug)]
pub enum Decision {}

impl Mode for Decision {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: crate::mode::DECISION,
        aliases: &[],
        version: "1.0.0",
        title: "Decision Mode",
        description: "Proposals are evaluated, objected to and voted on; one commitment binds the outcome.",
        determinism: Determinism::SemanticDeterministic,
        participant_model: "declared",
        message_types: &[SESSION_START, "Proposal", "Evaluation", "Objection", "Vote", COMMITMENT],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: true,
    };

    /// Under an empty roster nobody can propose, so such a session only ever expires or is cancelled.
    fn start(_start: &Start<'_>) -> Result<State, Rejection> {
        Ok(State::default())
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        match envelope.message_type.as_str() {
            "Proposal" | "Evaluation" | "Objection" | "Vote" => authorize_participant(view, envelope),
            COMMITMENT => commitment::authorize(view, envelope),
            unknown => Err(Rejection::forbidden(format!("nobody may send {unknown:?} in the decision mode"))),
        }
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "Proposal" => judge_proposal(view, state, envelope),
            "Evaluation" => judge_evaluation(view, state, envelope),
            "Objection" => judge_objection(view, state, envelope),
            "Vote" => judge_vote(state, envelope),
            COMMITMENT => judge_commitment(view, state, envelope),
            unknown => Err(Rejection::forbidden(format!("nobody may send {unknown:?} in the decision mode"))),
        }
    }

    fn apply(state: &mut State, change: Change) {
        match change {
            Change::Proposed { proposal_id, sender } => {
                state.proposals.insert(proposal_id, sender);
                state.phase = Phase::Evaluation;
            }
            Change::Evaluated(evaluation) => {
                if evaluation.recommendation != Recommendation::Review {
                    state.verdicts += 1;
                    let highest = state.highest_confidence.unwrap_or_default();
                    state.highest_confidence = Some(highest.max(evaluation.confidence));
                }
                state.evaluations.push(evaluation);
            }
            Change::Objected { objection, sender } => {
                if objection.severity == Severity::Critical {
                    state.critical_objections += 1;
                    state.critical_objectors.insert(sender);
                }
                state.objections.push(objection);
            }
            Change::Voted { proposal_id, sender, ballot } => {
                state.votes.entry(proposal_id).or_default().insert(sender.clone(), ballot);
                state.ballots.cast(sender, ballot);
                state.phase = Phase::Voting;
            }
            Change::Committed => state.phase = Phase::Committed,
        }
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        let names = names(view);
        let name = |place: Place| names[usize::from(place)];
        let proposals = state.proposals.iter().map(|(id, sender)| {
            let id = id.as_str();
            (id, json!({"proposal_id": id, "sender": name(*sender)}))
        });
        let evaluations = state.evaluations.iter().map(|evaluation| {
            json!({
                "proposal_id": evaluation.proposal_id.as_str(),
                "recommendation": evaluation.recommendation.as_str(),
                "confidence": evaluation.confidence,
                "sender": name(evaluation.sender),
            })
        });
        let objections = state.objections.iter().map(|objection| {
            json!({
                "proposal_id": objection.proposal_id.as_str(),
                "severity": objection.severity.as_str(),
                "sender": name(objection.sender),
            })
        });
        let votes = state.votes.iter().map(|(id, ballots)| {
            let id = id.as_str();
            let ballots = ballots.iter().map(|(sender, ballot)| {
                let sender = sender.as_str();
                (sender, json!({"proposal_id": id, "vote": vote_name(*ballot), "sender": sender}))
            });
            (id, ballots.collect::<BTreeMap<_, _>>())
        });
        json!({
            "phase": state.phase.as_str(),
            "proposals": proposals.collect::<BTreeMap<_, _>>(),
            "evaluations": evaluations.collect::<Vec<_>>(),
            "objections": objections.collect::<Vec<_>>(),
            "votes": votes.collect::<BTreeMap<_, _>>(),
        })
    }
}

fn judge_proposal(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    state.check_phase(envelope, &[Phase::Proposal, Phase::Evaluation])?;
    let payload: ProposalPayload = decode(envelope)?;
    check_not_blank("proposal_id", &payload.proposal_id)?;
    check_not_blank("option", &payload.option)?;
    if state.proposals.contains_key(payload.proposal_id.as_str()) {
        return Err(Rejection::invalid(format!("there already is a proposal {:?}", payload.proposal_id)));
    }
    let sender = sender_place(view, envelope)?;
    Ok(Response::Persist(Change::Proposed { proposal_id: payload.proposal_id.into(), sender }))
}

fn judge_evaluation(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: EvaluationPayload = decode(envelope)?;
    let recommendation = Recommendation::read(&payload.recommendation)?;
    // Not a number is in no range, so it is refused here too.
    if !(0.0..=1.0).contains(&payload.confidence) {
        return Err(Rejection::invalid("confidence is no number from 0 to 1"));
    }
    state.check_phase(envelope, &[Phase::Evaluation])?;
    let proposal_id = state.known(&payload.proposal_id)?;
    let sender = sender_place(view, envelope)?;
    let evaluation = Evaluation { proposal_id, sender, recommendation, confidence: payload.confidence };
    Ok(Response::Persist(Change::Evaluated(evaluation)))
}

fn judge_objection(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: ObjectionPayload = decode(envelope)?;
    let severity = Severity::read(&payload.severity)?;
    state.check_phase(envelope, &[Phase::Evaluation])?;
    let proposal_id = state.known(&payload.proposal_id)?;
    let objection = Objection { proposal_id, sender: sender_place(view, envelope)?, severity };
    Ok(Response::Persist(Change::Objected { objection, sender: SmolStr::new(&envelope.sender) }))
}

fn judge_vote(state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: VotePayload = decode(envelope)?;
    let ballot = read_vote(&payload.vote)?;
    state.check_phase(envelope, &[Phase::Evaluation, Phase::Voting])?;
    let proposal_id = state.known(&payload.proposal_id)?;
    if state.votes.get(&proposal_id).is_some_and(|ballots| ballots.contains_key(envelope.sender.as_str())) {
        return Err(Rejection::invalid(format!(
            "the sender has voted on {proposal_id:?} before; the first vote stands"
        )));
    }
    Ok(Response::Persist(Change::Voted { proposal_id, sender: SmolStr::new(&envelope.sender), ballot }))
}

fn judge_commitment(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload = commitment::read(view, envelope)?;
    if state.proposals.is_empty() {
        return Err(Rejection::invalid("a Commitment needs at least one proposal before it"));
    }
    let facts = DecisionFacts {
        roster: view.roster,
        evaluations: state.verdicts,
        highest_confidence: state.highest_confidence,
        critical_objections: state.critical_objections,
        critical_objectors: &state.critical_objectors,
        ballots: &state.ballots,
    };
    evaluate::decision(view.policy, &facts, payload.outcome_positive)?;
    Ok(Response::PersistAndResolve { change: Change::Committed, resolution: envelope.payload.clone() })
}

impl State {
    fn check_phase(&self, envelope: &Envelope, allowed: &[Phase]) -> Result<(), Rejection> {
        if allowed.contains(&self.phase) {
            return Ok(());
        }
        let (phase, message_type) = (self.phase.as_str(), &envelope.message_type);
        Err(Rejection::invalid(format!("the session is in the phase {phase}, which takes no {message_type}")))
    }

    /// The kept copy of a proposal's id, which costs less than another one.
    fn known(&self, proposal_id: &str) -> Result<SmolStr, Rejection> {
        if let Some((known, _)) = self.proposals.get_key_value(proposal_id) {
            return Ok(known.clone());
        }
        Err(Rejection::invalid(format!("there is no proposal {proposal_id:?}")))
    }
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Proposal => "Proposal",
            Phase::Evaluation => "Evaluation",
            Phase::Voting => "Voting",
            Phase::Committed => "Committed",
        }
    }
}

impl Recommendation {
    fn read(word: &str) -> Result<Self, Rejection> {
        match word {
            "APPROVE" => Ok(Recommendation::Approve),
            "REVIEW" => Ok(Recommendation::Review),
            "BLOCK" => Ok(Recommendation::Block),
            "REJECT" => Ok(Recommendation::Reject),
            _ => Err(Rejection::invalid("recommendation is none of APPROVE, REVIEW, BLOCK, REJECT")),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Recommendation::Approve => "APPROVE",
            Recommendation::Review => "REVIEW",
            Recommendation::Block => "BLOCK",
            Recommendation::Reject => "REJECT",
        }
    }
}

impl Severity {
    fn read(word: &str) -> Result<Self, Rejection> {
        match word {
            "low" => Ok(Severity::Low),
            "medium" => Ok(Severity::Medium),
            "high" => Ok(Severity::High),
            "critical" => Ok(Severity::Critical),
            _ => Err(Rejection::invalid("severity is none of low, medium, high, critical")),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
            Severity::Critical => "critical",
        }
    }
}

fn read_vote(word: &str) -> Result<Ballot, Rejection> {
    match word {
        "APPROVE" => Ok(Ballot::Approve),
        "REJECT" => Ok(Ballot::Reject),
        "ABSTAIN" => Ok(Ballot::Abstain),
        _ => Err(Rejection::invalid("vote is none of APPROVE, REJECT, ABSTAIN")),
    }
}

fn vote_name(ballot: Ballot) -> &'static str {
    match ballot {
        Ballot::Approve => "APPROVE",
        Ballot::Reject => "REJECT",
        Ballot::Abstain => "ABSTAIN",
    }
}
