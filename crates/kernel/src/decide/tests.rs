//! When the time at which something is due is looked for, and when it stays.

use std::sync::Arc;

use macp_wire::modes::handoff::v1::{HandoffContextPayload, HandoffDeclinePayload, HandoffOfferPayload};
use macp_wire::v1::{PolicyDescriptor, SessionStartPayload};

use super::*;
use crate::policy::Policy;
use crate::{Registered, SignatureCheck};

const START: i64 = 1_700_000_000_000;

/// A handoff session of `lead` under a policy that takes silence of a second for consent.
struct Handoff {
    slot: Option<Session>,
    now: i64,
    sent: u32,
}

impl Handoff {
    fn started() -> Self {
        let mut handoff = Handoff { slot: None, now: START, sent: 0 };
        let start = SessionStartPayload {
            participants: ["lead", "t", "u"].map(str::to_owned).into(),
            mode_version: "1.0.0".into(),
            configuration_version: "cfg-1".into(),
            policy_version: "silence".into(),
            ttl_ms: 60_000,
            ..SessionStartPayload::default()
        };
        handoff.send("lead", SESSION_START, &start);
        handoff
    }

    #[track_caller]
    fn step(&mut self, sender: &str, input: Input) {
        let command = Command { caller: Caller::identified(sender), input };
        let settled = step(&mut self.slot, &command, self.now, &Limits::default()).settled;
        assert!(matches!(settled, Settled::Accepted { .. }), "{settled:?}");
    }

    /// Takes a step and compares the time that is kept with the one a new look finds.
    #[track_caller]
    fn run(&mut self, sender: &str, input: Input) {
        self.step(sender, input);
        let session = self.session();
        let mut looked_for = session.clone();
        looked_for.reschedule();
        assert_eq!(session.position, looked_for.position);
    }

    fn message(&mut self, sender: &str, message_type: &str, payload: &impl Message) -> Input {
        self.sent += 1;
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.into(),
            mode: "macp.mode.handoff.v1".into(),
            message_type: message_type.into(),
            message_id: format!("m{}", self.sent),
            session_id: "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e5f".into(),
            sender: sender.into(),
            timestamp_unix_ms: 0,
            payload: payload.encode_to_vec().into(),
        };
        let policy = Policy::read(PolicyDescriptor {
            policy_id: "silence".into(),
            mode: "macp.mode.handoff.v1".into(),
            rules: r#"{"acceptance":{"implicit_accept_timeout_ms":1000}}"#.into(),
            schema_version: 3,
            ..PolicyDescriptor::default()
        });
        let registered = Registered { policy: Some(Arc::new(policy.expect("a policy"))), extension: None };
        Input::Envelope { envelope, signature: SignatureCheck::Absent, registered }
    }

    #[track_caller]
    fn send(&mut self, sender: &str, message_type: &str, payload: &impl Message) {
        let message = self.message(sender, message_type, payload);
        self.run(sender, message);
    }

    fn offer(&mut self, handoff_id: &str, target: &str) {
        let offer = HandoffOfferPayload {
            handoff_id: handoff_id.into(),
            target_participant: target.into(),
            ..HandoffOfferPayload::default()
        };
        self.send("lead", "HandoffOffer", &offer);
    }

    fn explain(&mut self, handoff_id: &str) {
        let context = HandoffContextPayload { handoff_id: handoff_id.into(), ..HandoffContextPayload::default() };
        self.send("lead", "HandoffContext", &context);
    }

    fn pause(&mut self, ms: i64) {
        self.run("lead", Input::Suspend { reason: String::new() });
        self.now += ms;
        self.run("lead", Input::Resume { reason: String::new() });
    }

    fn session(&mut self) -> &mut Session {
        self.slot.as_mut().expect("started")
    }
}

#[test]
fn what_moves_the_time_moves_it() {
    let mut handoff = Handoff::started();
    handoff.offer("h1", "t");
    assert_eq!(handoff.session().position.quiet_until_ms, START + 999);
    handoff.now += 300;
    handoff.explain("h1");
    handoff.pause(5_000);
    assert_eq!(handoff.session().position.quiet_until_ms, START + 5_999);
    let decline =
        HandoffDeclinePayload { handoff_id: "h1".into(), declined_by: "t".into(), ..HandoffDeclinePayload::default() };
    handoff.send("t", "HandoffDecline", &decline);
    assert_eq!(handoff.session().position.quiet_until_ms, START + 65_000);
    handoff.offer("h2", "u");
    handoff.pause(10);
    handoff.explain("h2");
    handoff.now += 2_000;
    handoff.run("lead", Input::Touch);
    assert_eq!(handoff.session().position.quiet_until_ms, START + 65_010);
    handoff.run("lead", Input::Cancel { reason: String::new() });
}

/// A walk over a thousand pauses with every message would be a thousand steps too many.
#[test]
fn a_message_that_moves_no_time_looks_for_none() {
    let mut handoff = Handoff::started();
    handoff.offer("h1", "t");
    let marked = handoff.session().position.quiet_until_ms - 7;
    handoff.session().position.quiet_until_ms = marked;
    let context = HandoffContextPayload { handoff_id: "h1".into(), ..HandoffContextPayload::default() };
    let message = handoff.message("lead", "HandoffContext", &context);
    handoff.step("lead", message);
    assert_eq!(handoff.session().position.quiet_until_ms, marked, "looked for although nothing moved it");
}
