//! Proposal: peers propose and counter-propose until they agree on one proposal, or one of them ends it.
//!
//! ```text
//!                   enough accepts
//!  Negotiating ◀────────────────────▶ Converged ────────┐ Commitment
//!       ▲           accept moved,                       ├───────────▶ Committed
//!       │           withdrawal                          │
//!       └───────────────────────────▶ TerminalRejected ─┘
//!               terminal reject, withdrawal of what it was about
//! ```
//!
//! Everyone has at most one standing accept. The phase follows from the standing accepts and rejections alone, so it is
//! computed when asked for and never stored.
//!
//! Semantic-deterministic. Inside the determinism boundary: the roster, the bound policy, the accepted envelopes, their
//! order, senders and payloads. Outside: time, and why anyone found a proposal acceptable.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use macp_wire::modes::proposal::v1::{
    AcceptPayload, CounterProposalPayload, ProposalPayload, RejectPayload, WithdrawPayload,
};
use macp_wire::v1::Envelope;
use serde_json::json;
use smol_str::SmolStr;

use super::{
    COMMITMENT, Place, authorize_participant, check_not_blank, commitment, decode, find_place, names, sender_place,
    unknown_type,
};
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::policy::{Criterion, evaluate};
use crate::{Profile, Rejection, SESSION_START};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Negotiating,
    Converged,
    TerminalRejected,
    Committed,
}

/// A place in `offers`.
type OfferAt = usize;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the order proposed.
    offers: Vec<Offer>,
    by_id: BTreeMap<SmolStr, OfferAt>,
    /// Latest accept of each participant. It stands while what it accepts is live.
    accepts: Box<[Option<OfferAt>]>,
    rejections: Vec<Refusal>,
    /// Terminal rejections of live proposals.
    terminal_rejections: u64,
    live: u64,
    counter_proposals: u64,
    committed: bool,
}

/// A proposal or counter-proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    proposal_id: SmolStr,
    proposer: Place,
    supersedes: Option<OfferAt>,
    withdrawn: bool,
    /// Who accepts it at present, the proposer apart.
    accepts_of_others: u16,
    accepted_by_proposer: bool,
    terminal_rejections: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    offer: OfferAt,
    sender: Place,
    terminal: bool,
}

#[derive(Debug)]
pub enum Change {
    Proposed { proposal_id: SmolStr, proposer: Place, supersedes: Option<OfferAt> },
    Accepted { offer: OfferAt, sender: Place },
    Rejected(Refusal),
    Withdrawn { offer: OfferAt },
    Committed,
}

#[derive(Debug)]
pub enum Proposal {}

impl Mode for Proposal {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: "macp.mode.proposal.v1",
        aliases: &[],
        version: "1.0.0",
        title: "Proposal Mode",
        description: "Peers propose and counter-propose until they agree or one of them ends the negotiation.",
        determinism: Determinism::SemanticDeterministic,
        participant_model: "peer",
        message_types: &[SESSION_START, "Proposal", "CounterProposal", "Accept", "Reject", "Withdraw", COMMITMENT],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: true,
    };

    fn start(start: &Start<'_>) -> Result<State, Rejection> {
        if start.roster.is_empty() {
            return Err(Rejection::invalid("a proposal session needs participants"));
        }
        Ok(State { accepts: vec![None; start.roster.len()].into_boxed_slice(), ..State::default() })
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        match envelope.message_type.as_str() {
            COMMITMENT => commitment::authorize(view, envelope),
            _ => authorize_participant(view, envelope),
        }
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "Proposal" => judge_proposal(view, state, envelope),
            "CounterProposal" => judge_counter_proposal(view, state, envelope),
            "Accept" => judge_accept(view, state, envelope),
            "Reject" => judge_reject(view, state, envelope),
            "Withdraw" => judge_withdraw(view, state, envelope),
            COMMITMENT => judge_commitment(view, state, envelope),
            _ => Err(unknown_type("proposal", envelope)),
        }
    }

    fn apply(state: &mut State, change: Change) {
        match change {
            Change::Proposed { proposal_id, proposer, supersedes } => {
                state.by_id.insert(proposal_id.clone(), state.offers.len());
                state.counter_proposals += u64::from(supersedes.is_some());
                state.live += 1;
                state.offers.push(Offer::new(proposal_id, proposer, supersedes));
            }
            Change::Accepted { offer, sender } => state.move_accept(sender, offer),
            Change::Rejected(refusal) => {
                if refusal.terminal {
                    state.offers[refusal.offer].terminal_rejections += 1;
                    state.terminal_rejections += 1;
                }
                state.rejections.push(refusal);
            }
            Change::Withdrawn { offer } => {
                let offer = &mut state.offers[offer];
                offer.withdrawn = true;
                state.terminal_rejections -= offer.terminal_rejections;
                state.live -= 1;
            }
            Change::Committed => state.committed = true,
        }
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        let names = names(view);
        let name = |place: Place| names[usize::from(place)];
        let id = |offer: OfferAt| state.offers[offer].proposal_id.as_str();
        let proposals = state.offers.iter().map(|offer| {
            let description = json!({
                "proposal_id": offer.proposal_id.as_str(),
                "proposer": name(offer.proposer),
                "supersedes_proposal_id": offer.supersedes.map(id),
                "disposition": if offer.withdrawn { "Withdrawn" } else { "Live" },
            });
            (offer.proposal_id.as_str(), description)
        });
        let accepts = names
            .iter()
            .zip(&state.accepts)
            .filter_map(|(name, accept)| state.standing(*accept).map(|offer| (*name, offer.proposal_id.as_str())));
        let terminal_rejections = state
            .rejections
            .iter()
            .filter(|refusal| refusal.terminal && !state.offers[refusal.offer].withdrawn)
            .map(|refusal| json!({"proposal_id": id(refusal.offer), "sender": name(refusal.sender)}));
        let rejections = state.rejections.iter().map(|refusal| {
            json!({
                "proposal_id": id(refusal.offer),
                "sender": name(refusal.sender),
                "terminal": refusal.terminal,
            })
        });
        json!({
            "proposals": proposals.collect::<BTreeMap<_, _>>(),
            "accepts": accepts.collect::<BTreeMap<_, _>>(),
            "terminal_rejections": terminal_rejections.collect::<Vec<_>>(),
            "rejections": rejections.collect::<Vec<_>>(),
            "phase": state.phase(view).as_str(),
        })
    }
}

fn judge_proposal(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: ProposalPayload = decode(envelope)?;
    state.check_new(&payload.proposal_id)?;
    let proposer = sender_place(view, envelope)?;
    Ok(Response::Persist(Change::Proposed { proposal_id: payload.proposal_id.into(), proposer, supersedes: None }))
}

fn judge_counter_proposal(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: CounterProposalPayload = decode(envelope)?;
    check_not_blank("supersedes_proposal_id", &payload.supersedes_proposal_id)?;
    state.check_new(&payload.proposal_id)?;
    // It may have been withdrawn, and otherwise stays live.
    let supersedes = state.find(&payload.supersedes_proposal_id)?;
    let most = view.policy.rules.counter_proposals_max;
    if most > 0 && state.counter_proposals >= most {
        return Err(Rejection::invalid(format!(
            "the policy of the session allows {most} counter-proposals and no more"
        )));
    }
    let proposer = sender_place(view, envelope)?;
    let supersedes = Some(supersedes);
    Ok(Response::Persist(Change::Proposed { proposal_id: payload.proposal_id.into(), proposer, supersedes }))
}

fn judge_accept(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: AcceptPayload = decode(envelope)?;
    let offer = state.find_live(&payload.proposal_id)?;
    Ok(Response::Persist(Change::Accepted { offer, sender: sender_place(view, envelope)? }))
}

fn judge_reject(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: RejectPayload = decode(envelope)?;
    let offer = state.find_live(&payload.proposal_id)?;
    let terminal = payload.terminal || view.policy.rules.terminal_on_any_reject;
    Ok(Response::Persist(Change::Rejected(Refusal { offer, sender: sender_place(view, envelope)?, terminal })))
}

fn judge_withdraw(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: WithdrawPayload = decode(envelope)?;
    check_not_blank("proposal_id", &payload.proposal_id)?;
    let offer = state.find(&payload.proposal_id)?;
    if state.offers[offer].proposer != sender_place(view, envelope)? {
        return Err(Rejection::forbidden("only who made a proposal may withdraw it"));
    }
    state.check_live(offer)?;
    Ok(Response::Persist(Change::Withdrawn { offer }))
}

fn judge_commitment(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload = commitment::read(view, envelope)?;
    if !matches!(state.phase(view), Phase::Converged | Phase::TerminalRejected) {
        return Err(Rejection::invalid("a Commitment needs an agreement or a terminal rejection before it"));
    }
    evaluate::proposal(view.policy, state.counter_proposals, payload.outcome_positive)?;
    Ok(Response::PersistAndResolve { change: Change::Committed, resolution: envelope.payload.clone() })
}

impl Offer {
    fn new(proposal_id: SmolStr, proposer: Place, supersedes: Option<OfferAt>) -> Self {
        Offer {
            proposal_id,
            proposer,
            supersedes,
            withdrawn: false,
            accepts_of_others: 0,
            accepted_by_proposer: false,
            terminal_rejections: 0,
        }
    }
}

impl State {
    fn check_new(&self, proposal_id: &str) -> Result<(), Rejection> {
        check_not_blank("proposal_id", proposal_id)?;
        if self.by_id.contains_key(proposal_id) {
            return Err(Rejection::invalid(format!("there already is a proposal {proposal_id:?}")));
        }
        Ok(())
    }

    fn find(&self, proposal_id: &str) -> Result<OfferAt, Rejection> {
        if let Some(offer) = self.by_id.get(proposal_id) {
            return Ok(*offer);
        }
        Err(Rejection::invalid(format!("there is no proposal {proposal_id:?}")))
    }

    fn find_live(&self, proposal_id: &str) -> Result<OfferAt, Rejection> {
        let offer = self.find(proposal_id)?;
        self.check_live(offer).map(|()| offer)
    }

    fn check_live(&self, offer: OfferAt) -> Result<(), Rejection> {
        let offer = &self.offers[offer];
        if offer.withdrawn {
            return Err(Rejection::invalid(format!("the proposal {:?} is withdrawn", offer.proposal_id)));
        }
        Ok(())
    }

    fn move_accept(&mut self, sender: Place, to: OfferAt) {
        if let Some(from) = self.accepts[usize::from(sender)].replace(to) {
            let offer = &mut self.offers[from];
            if offer.proposer == sender {
                offer.accepted_by_proposer = false;
            } else {
                offer.accepts_of_others -= 1;
            }
        }
        let offer = &mut self.offers[to];
        if offer.proposer == sender {
            offer.accepted_by_proposer = true;
        } else {
            offer.accepts_of_others += 1;
        }
    }

    /// What an accept stands for: nothing once that is withdrawn.
    fn standing(&self, accept: Option<OfferAt>) -> Option<&Offer> {
        accept.map(|offer| &self.offers[offer]).filter(|offer| !offer.withdrawn)
    }

    fn phase(&self, view: &View<'_>) -> Phase {
        if self.committed {
            Phase::Committed
        } else if self.terminal_rejections > 0 {
            Phase::TerminalRejected
        } else if self.is_agreed(view) {
            Phase::Converged
        } else {
            Phase::Negotiating
        }
    }

    /// Whether some live proposal meets the criterion. Only what certain participants accept can, so nothing else is
    /// looked at: an agreement of all is what the first accepts, and one of all but the proposer is what the first or,
    /// if that is the proposer, the second accepts.
    fn is_agreed(&self, view: &View<'_>) -> bool {
        let others = self.accepts.len() - 1;
        let agreed_by_others = |offer: &Offer| usize::from(offer.accepts_of_others) == others;
        let mut leading = self.accepts.iter().take(2).filter_map(|accept| self.standing(*accept));
        match view.policy.rules.criterion {
            Criterion::AllParties => leading.any(|offer| offer.accepted_by_proposer && agreed_by_others(offer)),
            // There is nobody to ask.
            Criterion::Counterparty if others == 0 => self.live > 0,
            Criterion::Counterparty => leading.any(agreed_by_others),
            Criterion::Initiator => find_place(view.roster, view.initiator)
                .is_some_and(|initiator| self.standing(self.accepts[usize::from(initiator)]).is_some()),
        }
    }
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Negotiating => "Negotiating",
            Phase::Converged => "Converged",
            Phase::TerminalRejected => "TerminalRejected",
            Phase::Committed => "Committed",
        }
    }
}
