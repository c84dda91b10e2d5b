//! Quorum: the initiator asks for approval of one request, and the participants each cast one ballot.
//!
//! A Commitment becomes possible once the outcome is certain: enough approvals, or too few ballots left for enough.
//! How many are enough the request says, unless the policy does.
//!
//! Semantic-deterministic. Inside the determinism boundary: the roster, the bound policy, the accepted envelopes, their
//! order, senders and payloads. Outside: time, and why anyone approved.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use macp_wire::modes::quorum::v1::{AbstainPayload, ApprovalRequestPayload, ApprovePayload, RejectPayload};
use macp_wire::v1::Envelope;
use serde_json::json;
use smol_str::SmolStr;

use super::{
    COMMITMENT, Place, authorize_initiator, authorize_participant, check_not_empty, commitment, decode, sender_place,
    unknown_type,
};
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::policy::evaluate;
use crate::{Profile, Rejection, SESSION_START};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    request: Option<Request>,
    /// By place.
    ballots: Box<[Option<Choice>]>,
    cast: u64,
    approvals: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    request_id: SmolStr,
    required_approvals: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Approve,
    Reject,
    Abstain,
}

#[derive(Debug)]
pub enum Change {
    Requested(Request),
    Cast { sender: Place, choice: Choice },
}

#[derive(Debug)]
pub enum Quorum {}

impl Mode for Quorum {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: "macp.mode.quorum.v1",
        aliases: &[],
        version: "1.0.0",
        title: "Quorum Mode",
        description: "A request is approved or refused by ballot; one commitment binds the outcome.",
        determinism: Determinism::SemanticDeterministic,
        participant_model: "quorum",
        message_types: &[SESSION_START, "ApprovalRequest", "Approve", "Reject", "Abstain", COMMITMENT],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: true,
    };

    fn start(start: &Start<'_>) -> Result<State, Rejection> {
        if start.roster.is_empty() {
            return Err(Rejection::invalid("a quorum session needs participants"));
        }
        Ok(State { ballots: vec![None; start.roster.len()].into_boxed_slice(), ..State::default() })
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        match envelope.message_type.as_str() {
            COMMITMENT => commitment::authorize(view, envelope),
            "ApprovalRequest" => authorize_initiator(view, envelope),
            _ => authorize_participant(view, envelope),
        }
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "ApprovalRequest" => judge_request(view, state, envelope),
            "Approve" => {
                let payload: ApprovePayload = decode(envelope)?;
                judge_ballot(view, state, envelope, &payload.request_id, Choice::Approve)
            }
            "Reject" => {
                let payload: RejectPayload = decode(envelope)?;
                judge_ballot(view, state, envelope, &payload.request_id, Choice::Reject)
            }
            "Abstain" => {
                let payload: AbstainPayload = decode(envelope)?;
                judge_ballot(view, state, envelope, &payload.request_id, Choice::Abstain)
            }
            COMMITMENT => judge_commitment(view, state, envelope),
            _ => Err(unknown_type("quorum", envelope)),
        }
    }

    fn apply(state: &mut State, change: Change) {
        match change {
            Change::Requested(request) => state.request = Some(request),
            Change::Cast { sender, choice } => {
                state.ballots[usize::from(sender)] = Some(choice);
                state.cast += 1;
                state.approvals += u64::from(choice == Choice::Approve);
            }
        }
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        let request_id = state.request.as_ref().map(|request| request.request_id.as_str());
        let request = state.request.as_ref().map(|request| {
            json!({
                "request_id": request_id,
                "required_approvals": request.required_approvals,
                "requested_by": view.initiator,
            })
        });
        let ballots = view.roster.iter().zip(&state.ballots).filter_map(|(sender, ballot)| {
            let choice = (*ballot)?.as_str();
            Some((sender, json!({"request_id": request_id, "choice": choice, "sender": sender})))
        });
        json!({"request": request, "ballots": ballots.collect::<BTreeMap<_, _>>()})
    }
}

fn judge_request(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: ApprovalRequestPayload = decode(envelope)?;
    if state.request.is_some() {
        return Err(Rejection::invalid("a quorum session has one ApprovalRequest, and this one has had it"));
    }
    check_not_empty("request_id", &payload.request_id)?;
    let (required, participants) = (u64::from(payload.required_approvals), view.roster.len() as u64);
    if required == 0 || required > participants {
        return Err(Rejection::invalid(format!("required_approvals is {required}, outside 1..={participants}")));
    }
    threshold(view, payload.required_approvals)?;
    let request = Request { request_id: payload.request_id.into(), required_approvals: payload.required_approvals };
    Ok(Response::Persist(Change::Requested(request)))
}

fn judge_ballot(
    view: &View<'_>,
    state: &State,
    envelope: &Envelope,
    request_id: &str,
    choice: Choice,
) -> Result<Response<Change>, Rejection> {
    let request = state.request()?;
    if request.request_id != request_id {
        return Err(Rejection::invalid(format!("the request of this session is {:?}", request.request_id)));
    }
    let sender = sender_place(view, envelope)?;
    if state.ballots[usize::from(sender)].is_some() {
        return Err(Rejection::invalid("the sender has cast its ballot before; the first one stands"));
    }
    Ok(Response::Persist(Change::Cast { sender, choice }))
}

fn judge_commitment(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload = commitment::read(view, envelope)?;
    let threshold = threshold(view, state.request()?.required_approvals)?;
    let outstanding = state.ballots.len() as u64 - state.cast;
    let is_met = state.approvals >= threshold;
    let is_out_of_reach = state.approvals + outstanding < threshold;
    if !is_met && !is_out_of_reach {
        return Err(Rejection::invalid(format!(
            "a Commitment needs {threshold} approvals before it, or that many to be out of reach; there are {}, and \
             {outstanding} ballots are not cast",
            state.approvals
        )));
    }
    evaluate::quorum(view.policy, state.approvals, threshold, payload.outcome_positive)?;
    Ok(Response::Resolve(envelope.payload.clone()))
}

/// How many approvals are enough.
fn threshold(view: &View<'_>, required_approvals: u32) -> Result<u64, Rejection> {
    evaluate::quorum_threshold(view.policy, u64::from(required_approvals), view.roster.len() as u64)
        .ok_or_else(|| Rejection::invalid(format!("the threshold of the policy {:?} means nothing", view.policy.id())))
}

impl State {
    fn request(&self) -> Result<&Request, Rejection> {
        self.request.as_ref().ok_or_else(|| Rejection::invalid("there is no request yet"))
    }
}

impl Choice {
    fn as_str(self) -> &'static str {
        match self {
            Choice::Approve => "Approve",
            Choice::Reject => "Reject",
            Choice::Abstain => "Abstain",
        }
    }
}
