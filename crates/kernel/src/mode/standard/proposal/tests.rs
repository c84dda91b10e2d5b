//! The rules of the proposal mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope};
use macp_wire::modes::proposal::v1::{
    AcceptPayload, CounterProposalPayload, ProposalPayload, RejectPayload, WithdrawPayload,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Proposal;
use crate::mode::standard::harness::{Table, refuse_start};

fn proposal(proposal_id: &str) -> ProposalPayload {
    ProposalPayload { proposal_id: proposal_id.into(), summary: "long text".into(), ..Default::default() }
}

fn counter(proposal_id: &str, supersedes: &str) -> CounterProposalPayload {
    CounterProposalPayload {
        proposal_id: proposal_id.into(),
        supersedes_proposal_id: supersedes.into(),
        ..Default::default()
    }
}

fn accept(proposal_id: &str) -> AcceptPayload {
    AcceptPayload { proposal_id: proposal_id.into(), reason: String::new() }
}

fn reject(proposal_id: &str, terminal: bool) -> RejectPayload {
    RejectPayload { proposal_id: proposal_id.into(), terminal, reason: String::new() }
}

fn withdraw(proposal_id: &str) -> WithdrawPayload {
    WithdrawPayload { proposal_id: proposal_id.into(), reason: String::new() }
}

fn open() -> Table<Proposal> {
    Table::new("buyer", &["buyer", "seller"])
}

/// With a proposal of the seller.
fn proposed() -> Table<Proposal> {
    let mut table = open();
    table.accept("seller", "Proposal", &proposal("p1"));
    table
}

fn phase(table: &Table<Proposal>) -> Value {
    table.describe()["phase"].clone()
}

fn criterion(criterion: &str) -> Value {
    json!({"acceptance": {"criterion": criterion}})
}

#[test]
fn std_prop_1_roster_and_authority() {
    assert_eq!(refuse_start::<Proposal>("buyer", &[]), InvalidEnvelope);
    // Also the initiator, if it does not take part.
    let mut table: Table<Proposal> = Table::new("lead", &["buyer", "seller"]);
    for sender in ["lead", "outsider"] {
        assert_eq!(table.refuse(sender, "Proposal", &proposal("p1")), Forbidden);
        assert_eq!(table.refuse(sender, "CounterProposal", &counter("p2", "p1")), Forbidden);
        assert_eq!(table.refuse(sender, "Accept", &accept("p1")), Forbidden);
        assert_eq!(table.refuse(sender, "Reject", &reject("p1", true)), Forbidden);
        assert_eq!(table.refuse(sender, "Withdraw", &withdraw("p1")), Forbidden);
    }
    assert_eq!(table.refuse_commit("buyer", "proposal.accepted", true), Forbidden);
}

#[test]
fn std_core_35_36_unknown_types() {
    for unknown in ["Vote", "SessionCancel", "SessionSuspend", "SessionResume"] {
        assert_eq!(open().refuse_bytes("buyer", unknown, &b""[..]), InvalidEnvelope);
        assert_eq!(open().refuse_bytes("outsider", unknown, &b""[..]), Forbidden);
    }
}

#[test]
fn std_prop_2_proposal() {
    let mut table = open();
    assert_eq!(table.refuse_bytes("buyer", "Proposal", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "Proposal", &proposal(" ")), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "Proposal", &proposal(&"p".repeat(257))), InvalidEnvelope);
    table.accept("buyer", "Proposal", &proposal("p1"));
    assert_eq!(table.refuse("seller", "Proposal", &proposal("p1")), InvalidEnvelope);
}

#[test]
fn std_prop_2_counter_proposal() {
    let mut table = proposed();
    assert_eq!(table.refuse_bytes("buyer", "CounterProposal", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "CounterProposal", &counter(" ", "p1")), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "CounterProposal", &counter("p2", " ")), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "CounterProposal", &counter("p1", "p1")), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "CounterProposal", &counter("p2", "p9")), InvalidEnvelope);
    table.accept("buyer", "CounterProposal", &counter("p2", "p1"));
    // What is superseded stays live, and what is withdrawn can still be superseded.
    table.accept("buyer", "Accept", &accept("p1"));
    table.accept("seller", "Withdraw", &withdraw("p1"));
    table.accept("buyer", "CounterProposal", &counter("p3", "p1"));
}

#[test]
fn std_prop_2_rounds() {
    let mut table = proposed().governed(json!({"counter_proposal": {"max_rounds": 1}}));
    table.accept("buyer", "CounterProposal", &counter("p2", "p1"));
    assert_eq!(table.refuse("seller", "CounterProposal", &counter("p3", "p2")), InvalidEnvelope);
    table.accept("seller", "Proposal", &proposal("p3"));
    table.accept("seller", "Accept", &accept("p2"));
    table.accept("buyer", "Accept", &accept("p2"));
    table.commit("buyer", "proposal.accepted", true);
}

#[test]
fn std_prop_2_accept_and_reject_need_a_live_proposal() {
    let mut table = proposed();
    for proposal_id in ["", "p9"] {
        assert_eq!(table.refuse("buyer", "Accept", &accept(proposal_id)), InvalidEnvelope);
        assert_eq!(table.refuse("buyer", "Reject", &reject(proposal_id, false)), InvalidEnvelope);
    }
    table.accept("seller", "Withdraw", &withdraw("p1"));
    assert_eq!(table.refuse("buyer", "Accept", &accept("p1")), InvalidEnvelope);
    assert_eq!(table.refuse("buyer", "Reject", &reject("p1", true)), InvalidEnvelope);
}

#[test]
fn std_prop_2_withdraw() {
    let mut table = proposed();
    table.accept("buyer", "CounterProposal", &counter("p2", "p1"));
    assert_eq!(table.refuse("seller", "Withdraw", &withdraw(" ")), InvalidEnvelope);
    assert_eq!(table.refuse("seller", "Withdraw", &withdraw("p9")), InvalidEnvelope);
    assert_eq!(table.refuse("seller", "Withdraw", &withdraw("p2")), Forbidden);
    table.accept("buyer", "Withdraw", &withdraw("p2"));
    assert_eq!(table.refuse("buyer", "Withdraw", &withdraw("p2")), InvalidEnvelope);
    // Whose it is comes before whether it still is.
    assert_eq!(table.refuse("seller", "Withdraw", &withdraw("p2")), Forbidden);
}

#[test]
fn std_prop_4_all_parties_and_moved_accepts() {
    let mut table = proposed();
    table.accept("buyer", "CounterProposal", &counter("p2", "p1"));
    table.accept("buyer", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Negotiating");
    assert_eq!(table.refuse_commit("buyer", "proposal.accepted", true), InvalidEnvelope);
    table.accept("seller", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Converged");
    // The same again changes nothing, another one undoes it.
    table.accept("seller", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Converged");
    table.accept("seller", "Accept", &accept("p2"));
    assert_eq!(phase(&table), "Negotiating");
    table.accept("buyer", "Accept", &accept("p2"));
    assert_eq!(phase(&table), "Converged");
    table.accept("buyer", "Withdraw", &withdraw("p2"));
    assert_eq!(phase(&table), "Negotiating");
    table.accept("buyer", "Accept", &accept("p1"));
    table.accept("seller", "Accept", &accept("p1"));
    table.commit("buyer", "proposal.accepted", true);
    assert_eq!(phase(&table), "Committed");
}

#[test]
fn std_prop_4_counterparty() {
    let mut table = proposed().governed(criterion("counterparty"));
    assert_eq!(phase(&table), "Negotiating");
    table.accept("seller", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Negotiating");
    table.accept("buyer", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Converged");

    let mut alone = Table::<Proposal>::new("a", &["a"]).governed(criterion("counterparty"));
    assert_eq!(phase(&alone), "Negotiating");
    alone.accept("a", "Proposal", &proposal("p1"));
    assert_eq!(phase(&alone), "Converged");
    alone.accept("a", "Withdraw", &withdraw("p1"));
    assert_eq!(phase(&alone), "Negotiating");
}

#[test]
fn std_prop_4_initiator() {
    let mut table = proposed().governed(criterion("initiator"));
    table.accept("seller", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Negotiating");
    table.accept("buyer", "Accept", &accept("p1"));
    assert_eq!(phase(&table), "Converged");

    let mut apart = Table::<Proposal>::new("lead", &["a"]).governed(criterion("initiator"));
    apart.accept("a", "Proposal", &proposal("p1"));
    apart.accept("a", "Accept", &accept("p1"));
    assert_eq!(phase(&apart), "Negotiating");
}

#[test]
fn std_prop_3_4_terminal_rejections() {
    let mut table = proposed();
    table.accept("buyer", "Reject", &reject("p1", false));
    assert_eq!(phase(&table), "Negotiating");
    table.accept("buyer", "Reject", &reject("p1", true));
    assert_eq!(phase(&table), "TerminalRejected");
    // It outweighs an agreement, until what it is about is withdrawn.
    table.accept("seller", "Proposal", &proposal("p2"));
    table.accept("buyer", "Accept", &accept("p2"));
    table.accept("seller", "Accept", &accept("p2"));
    assert_eq!(phase(&table), "TerminalRejected");
    table.accept("seller", "Withdraw", &withdraw("p1"));
    assert_eq!(phase(&table), "Converged");

    let mut strict = proposed().governed(json!({"rejection": {"terminal_on_any_reject": true}}));
    strict.accept("buyer", "Reject", &reject("p1", false));
    assert_eq!(phase(&strict), "TerminalRejected");
    strict.commit("buyer", "proposal.rejected", false);
}

#[test]
fn std_prop_5_directions_are_free() {
    let mut table = proposed();
    table.accept("buyer", "Reject", &reject("p1", true));
    table.commit("buyer", "proposal.accepted", true);
}

#[test]
fn std_prop_6_state() {
    let mut table = proposed();
    table.accept("buyer", "CounterProposal", &counter("p2", "p1"));
    table.accept("buyer", "Accept", &accept("p2"));
    table.accept("seller", "Accept", &accept("p1"));
    table.accept("buyer", "Reject", &reject("p1", true));
    table.accept("seller", "Reject", &reject("p2", true));
    table.accept("seller", "Reject", &reject("p2", false));
    table.accept("buyer", "Withdraw", &withdraw("p2"));
    let offer = |id: &str, proposer: &str, supersedes: Value, disposition: &str| {
        json!({
            "proposal_id": id,
            "proposer": proposer,
            "supersedes_proposal_id": supersedes,
            "disposition": disposition,
        })
    };
    assert_eq!(
        table.describe(),
        json!({
            "proposals": {
                "p1": offer("p1", "seller", Value::Null, "Live"),
                "p2": offer("p2", "buyer", json!("p1"), "Withdrawn"),
            },
            "accepts": {"seller": "p1"},
            "terminal_rejections": [{"proposal_id": "p1", "sender": "buyer"}],
            "rejections": [
                {"proposal_id": "p1", "sender": "buyer", "terminal": true},
                {"proposal_id": "p2", "sender": "seller", "terminal": true},
                {"proposal_id": "p2", "sender": "seller", "terminal": false},
            ],
            "phase": "TerminalRejected",
        })
    );
}

#[derive(Clone, Debug)]
enum Step {
    Propose,
    Accept(usize),
    Reject(usize, bool),
    Withdraw(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Propose),
        6 => (0..4_usize).prop_map(Step::Accept),
        1 => (0..4_usize, any::<bool>()).prop_map(|(offer, terminal)| Step::Reject(offer, terminal)),
        1 => (0..4_usize).prop_map(Step::Withdraw),
    ]
}

/// The phase as the standard words it, by looking at everything.
fn phase_from_scratch(table: &Table<Proposal>, criterion: &str) -> &'static str {
    let state = table.describe();
    let accepts = state["accepts"].as_object().unwrap();
    let accepted_by = |name: &str, id: &str| accepts.get(name).is_some_and(|accepted| accepted == id);
    let agreed = state["proposals"].as_object().unwrap().iter().any(|(id, offer)| {
        offer["disposition"] == "Live"
            && match criterion {
                "all_parties" => table.roster.iter().all(|name| accepted_by(name, id)),
                "counterparty" => {
                    table.roster.iter().filter(|name| offer["proposer"] != *name).all(|name| accepted_by(name, id))
                }
                _ => accepted_by(table.initiator, id),
            }
    });
    match state["terminal_rejections"].as_array().unwrap().is_empty() {
        false => "TerminalRejected",
        true if agreed => "Converged",
        true => "Negotiating",
    }
}

proptest! {
    #[test]
    fn std_prop_4_the_phase_is_the_one_found_by_looking_at_everything(
        criterion_name in prop_oneof![Just("all_parties"), Just("counterparty"), Just("initiator")],
        participants in 1..4_usize,
        steps in proptest::collection::vec((0..3_usize, step()), 0..40),
    ) {
        let names = &["a", "b", "c"][..participants];
        let mut table = Table::<Proposal>::new("b", names).governed(criterion(criterion_name));
        let mut proposals = 0;
        for (sender, step) in steps {
            let sender = names[sender % participants];
            let id = |offer: usize| format!("p{offer}");
            let (message_type, payload) = match step {
                Step::Propose => {
                    proposals += 1;
                    ("Proposal", prost::Message::encode_to_vec(&proposal(&id(proposals - 1))))
                }
                Step::Accept(offer) => ("Accept", prost::Message::encode_to_vec(&accept(&id(offer)))),
                Step::Reject(offer, terminal) => {
                    ("Reject", prost::Message::encode_to_vec(&reject(&id(offer), terminal)))
                }
                Step::Withdraw(offer) => ("Withdraw", prost::Message::encode_to_vec(&withdraw(&id(offer)))),
            };
            let envelope = table.envelope(sender, message_type, payload);
            // Some steps name what does not exist; these change nothing.
            let _ = table.submit(&envelope);
            prop_assert_eq!(phase(&table), phase_from_scratch(&table, criterion_name));
        }
    }
}
