//! Handoff: the initiator offers its work to another participant, who accepts or declines.
//!
//! ```text
//!          HandoffOffer                HandoffAccept, or silence for as long as the policy says
//!  no offer ──────────▶ Offered ─────────────────────────────────────────────────────▶ Accepted
//!       ▲                  │ HandoffDecline
//!       └──── Declined ◀───┘ (the next offer names someone who has not declined)
//! ```
//!
//! An accepted or declined offer makes a Commitment possible. What silence does is in [`implicit`].
//!
//! Context-frozen. Inside the determinism boundary: the roster, the bound policy, the accepted envelopes, their order,
//! senders and payloads, among them the accepts the runtime wrote when time was up. Outside: the time at which it did
//! so, which is recorded and never judged again, and what a context means to its reader.

mod implicit;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use macp_wire::modes::handoff::v1::{
    HandoffAcceptPayload, HandoffContextPayload, HandoffDeclinePayload, HandoffOfferPayload,
};
use macp_wire::v1::Envelope;
use serde_json::json;
use smol_str::SmolStr;

use super::{
    COMMITMENT, Place, authorize_initiator, authorize_participant, check_not_empty, check_own_name, commitment, decode,
    find_place, sender_place, unknown_type,
};
use crate::mode::{Determinism, Mode, Response, Scheduled, Spec, Start, View};
use crate::{Profile, Rejection, SESSION_START};

pub(crate) use implicit::ID_PREFIX as IMPLICIT_ID_PREFIX;

/// A place in `offers`.
type OfferAt = usize;

/// There are never more offers than participants: one offer at a time, and none to who has declined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the order offered.
    offers: Vec<Offer>,
    by_id: BTreeMap<SmolStr, OfferAt>,
    accepted: bool,
    /// Who has declined, by place.
    declined: Box<[bool]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    handoff_id: SmolStr,
    target: SmolStr,
    disposition: Disposition,
    /// When it was accepted into history.
    offered_at_ms: i64,
    /// How long the session had been suspended until then.
    suspended_ms_at_offer: i64,
    /// How many there are; all are from the initiator.
    contexts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    Offered,
    Accepted,
    Declined,
}

#[derive(Debug)]
pub enum Change {
    Offered(Offer),
    ContextGiven { offer: OfferAt },
    Accepted { offer: OfferAt },
    Declined { offer: OfferAt, sender: Place },
}

#[derive(Debug)]
pub enum Handoff {}

impl Mode for Handoff {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: "macp.mode.handoff.v1",
        aliases: &[],
        version: "1.0.0",
        title: "Handoff Mode",
        description: "Work is offered to another participant, with its context; one commitment binds the outcome.",
        determinism: Determinism::ContextFrozen,
        participant_model: "delegated",
        message_types: &[
            SESSION_START,
            "HandoffOffer",
            "HandoffContext",
            implicit::MESSAGE_TYPE,
            "HandoffDecline",
            COMMITMENT,
        ],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: true,
    };

    fn start(start: &Start<'_>) -> Result<State, Rejection> {
        if start.roster.len() < 2 || !start.roster.contains(start.initiator) {
            return Err(Rejection::invalid("a handoff session needs its initiator and another one as participants"));
        }
        Ok(State { declined: vec![false; start.roster.len()].into_boxed_slice(), ..State::default() })
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        match envelope.message_type.as_str() {
            COMMITMENT => commitment::authorize(view, envelope),
            "HandoffOffer" => authorize_initiator(view, envelope),
            _ => authorize_participant(view, envelope),
        }
    }

    fn check_client(envelope: &Envelope) -> Result<(), Rejection> {
        implicit::check_client(envelope)
    }

    fn awaited(state: &State) -> Option<OfferAt> {
        state.open().map(|_| state.offers.len() - 1)
    }

    fn scheduled(view: &View<'_>, state: &State) -> Option<Scheduled> {
        implicit::scheduled(view, state.open()?)
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "HandoffOffer" => judge_offer(view, state, envelope),
            "HandoffContext" => judge_context(view, state, envelope),
            implicit::MESSAGE_TYPE => judge_accept(state, envelope),
            "HandoffDecline" => judge_decline(view, state, envelope),
            COMMITMENT => judge_commitment(view, state, envelope),
            _ => Err(unknown_type("handoff", envelope)),
        }
    }

    fn apply(state: &mut State, change: Change) {
        match change {
            Change::Offered(offer) => {
                state.by_id.insert(offer.handoff_id.clone(), state.offers.len());
                state.offers.push(offer);
            }
            Change::ContextGiven { offer } => state.offers[offer].contexts += 1,
            Change::Accepted { offer } => {
                state.offers[offer].disposition = Disposition::Accepted;
                state.accepted = true;
            }
            Change::Declined { offer, sender } => {
                state.offers[offer].disposition = Disposition::Declined;
                state.declined[usize::from(sender)] = true;
            }
        }
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        let offers = state.offers.iter().map(|offer| {
            let target = offer.target.as_str();
            let if_is = |disposition| (offer.disposition == disposition).then_some(target);
            let description = json!({
                "handoff_id": offer.handoff_id.as_str(),
                "target_participant": target,
                "offered_by": view.initiator,
                "disposition": offer.disposition.as_str(),
                "accepted_by": if_is(Disposition::Accepted),
                "declined_by": if_is(Disposition::Declined),
                "offered_at_ms": offer.offered_at_ms,
                "suspended_ms_at_offer": offer.suspended_ms_at_offer,
            });
            (offer.handoff_id.as_str(), description)
        });
        let contexts = state.offers.iter().filter(|offer| offer.contexts > 0).map(|offer| {
            let contexts = (0..offer.contexts).map(|_| json!({"sender": view.initiator}));
            (offer.handoff_id.as_str(), contexts.collect::<Vec<_>>())
        });
        json!({
            "offers": offers.collect::<BTreeMap<_, _>>(),
            "contexts": contexts.collect::<BTreeMap<_, _>>(),
        })
    }
}

fn judge_offer(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: HandoffOfferPayload = decode(envelope)?;
    check_not_empty("handoff_id", &payload.handoff_id)?;
    check_not_empty("target_participant", &payload.target_participant)?;
    if state.by_id.contains_key(payload.handoff_id.as_str()) {
        return Err(Rejection::invalid(format!("there already is an offer {:?}", payload.handoff_id)));
    }
    let target = find_place(view.roster, &payload.target_participant)
        .ok_or_else(|| Rejection::invalid("target_participant is no participant"))?;
    if payload.target_participant == envelope.sender {
        return Err(Rejection::invalid("target_participant is the one who offers"));
    }
    if let Some(open) = state.open() {
        return Err(Rejection::invalid(format!("the offer {:?} is still unanswered", open.handoff_id)));
    }
    if state.accepted {
        return Err(Rejection::invalid("an offer has been accepted, after which there is no other"));
    }
    if state.declined[usize::from(target)] {
        return Err(Rejection::invalid("target_participant has declined an earlier offer of this session"));
    }
    Ok(Response::Persist(Change::Offered(Offer {
        handoff_id: payload.handoff_id.into(),
        target: payload.target_participant.into(),
        disposition: Disposition::Offered,
        offered_at_ms: view.now_ms,
        suspended_ms_at_offer: view.suspension.accumulated_ms,
        contexts: 0,
    })))
}

/// An offer may be explained at any time, also once it is answered.
fn judge_context(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: HandoffContextPayload = decode(envelope)?;
    let offer = state.find(&payload.handoff_id)?;
    // Every offer is the initiator's.
    if envelope.sender != view.initiator {
        return Err(Rejection::forbidden("only who made an offer may give its context"));
    }
    Ok(Response::Persist(Change::ContextGiven { offer }))
}

fn judge_accept(state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: HandoffAcceptPayload = decode(envelope)?;
    let offer = state.find(&payload.handoff_id)?;
    state.check_target(offer, envelope)?;
    if payload.implicit {
        implicit::check_recorded(&state.offers[offer], &payload, envelope)?;
    } else {
        check_own_name("accepted_by", &payload.accepted_by, envelope)?;
    }
    state.check_unanswered(offer)?;
    Ok(Response::Persist(Change::Accepted { offer }))
}

fn judge_decline(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: HandoffDeclinePayload = decode(envelope)?;
    let offer = state.find(&payload.handoff_id)?;
    state.check_target(offer, envelope)?;
    check_own_name("declined_by", &payload.declined_by, envelope)?;
    state.check_unanswered(offer)?;
    let sender = sender_place(view, envelope)?;
    Ok(Response::Persist(Change::Declined { offer, sender }))
}

/// No policy of the handoff mode concerns the Commitment beyond who may send it.
fn judge_commitment(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    commitment::read(view, envelope)?;
    // All but the last offer are answered, or the last would not have been made.
    let is_answered = state.offers.len() > 1 || (state.open().is_none() && !state.offers.is_empty());
    if !is_answered {
        return Err(Rejection::invalid("a Commitment needs an accepted or declined offer before it"));
    }
    Ok(Response::Resolve(envelope.payload.clone()))
}

impl State {
    /// The offer that waits for an answer. Only the last one can.
    fn open(&self) -> Option<&Offer> {
        self.offers.last().filter(|offer| offer.disposition == Disposition::Offered)
    }

    fn find(&self, handoff_id: &str) -> Result<OfferAt, Rejection> {
        if let Some(offer) = self.by_id.get(handoff_id) {
            return Ok(*offer);
        }
        Err(Rejection::invalid(format!("there is no offer {handoff_id:?}")))
    }

    fn check_target(&self, offer: OfferAt, envelope: &Envelope) -> Result<(), Rejection> {
        if self.offers[offer].target == envelope.sender {
            return Ok(());
        }
        Err(Rejection::forbidden("the offer was made to another participant, who alone may answer it"))
    }

    fn check_unanswered(&self, offer: OfferAt) -> Result<(), Rejection> {
        match self.offers[offer].disposition {
            Disposition::Offered => Ok(()),
            Disposition::Accepted => Err(Rejection::invalid("the offer has been accepted already")),
            Disposition::Declined => Err(Rejection::invalid("the offer has been declined already")),
        }
    }
}

impl Disposition {
    fn as_str(self) -> &'static str {
        match self {
            Disposition::Offered => "Offered",
            Disposition::Accepted => "Accepted",
            Disposition::Declined => "Declined",
        }
    }
}
