//! Property tests: what must hold for any sequence of inputs, and that no bytes make anything panic.
//!
//! proptest prints the failing input and writes its seed beside this file, from where it is tried first the next time;
//! `PROPTEST_CASES` sets how many cases run.

mod invariants;

#[path = "invariants/decode.rs"]
mod decode;

use std::collections::BTreeMap;
use std::sync::Arc;

use invariants::{Script, Step, Tally, check, histories};
use macp_kernel::policy::{Policy, default_policy, validate};
use macp_kernel::trace::TracedVerdict;
use macp_kernel::{Caller, Command, Input, Limits, ProfileSetting, Registered, Session, SignatureCheck, State, step};
use macp_wire::v1::{CommitmentPayload, Envelope, PolicyDescriptor, SessionStartPayload};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use prost::Message;
use serde_json::json;

/// The default looks for a `lib.rs` to put seeds beside, and a test has none.
fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..ProptestConfig::default() }
}

fn script_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..2_500)
}

proptest! {
    #![proptest_config(config())]

    /// REPLAY-1, REPLAY-2, ADM-2, ADM-4, LIFE-1: see `invariants::check`.
    #[test]
    fn any_sequence_of_commands_keeps_every_invariant(bytes in script_bytes()) {
        check(&Script::from_bytes(&bytes));
    }

    /// Sessions do not know of each other: only the order within each of them counts.
    #[test]
    fn the_order_between_sessions_is_irrelevant(bytes in script_bytes(), picks in proptest::collection::vec(any::<u8>(), 400)) {
        let script = Script::from_bytes(&bytes);
        let shuffled = Script { steps: interleaved(&script.steps, &picks), ..script.clone() };
        prop_assert_eq!(histories(&script), histories(&shuffled));
    }

    /// STD-POL-2: rules that say nothing beyond their defaults decide as the default policy does.
    #[test]
    fn a_policy_of_defaults_decides_like_the_default_policy(bytes in script_bytes()) {
        let script = Script::from_bytes(&bytes);
        let plain = Arc::new(plain("policy.plainly"));
        prop_assert_eq!(verdicts(&governed(&script, default_policy())), verdicts(&governed(&script, &plain)));
    }

    #[test]
    fn no_bytes_make_any_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        decode::everything(&bytes);
    }

    /// Text that looks like what the readers expect gets further into them than noise does.
    #[test]
    fn no_text_makes_any_reader_panic(text in r#"\{("(value|proposal_id|convergence|strategy|threshold|weights|alice|confidence|supersedes)":?|"[a-zß]{0,3}"|-?[0-9]{1,21}(\.[0-9]+)?(e[0-9]{1,3})?|null|true|[\[\]{},:]){0,24}\}?"#) {
        decode::everything(text.as_bytes());
    }

    /// Every text field of an envelope takes any text.
    #[test]
    fn no_envelope_makes_admission_panic(
        fields in proptest::array::uniform6(".{0,8}"),
        timestamp_unix_ms in any::<i64>(),
        now in any::<i64>(),
        payload in proptest::collection::vec(any::<u8>(), 0..64),
        real_type in proptest::option::of(0..4_usize),
    ) {
        let [macp_version, mode, message_type, message_id, session_id, sender] = fields;
        let real = |real: usize| ["SessionStart", "Proposal", "Contribute", "Vote"][real].to_owned();
        let spelled = real_type.is_some();
        let envelope = Envelope {
            macp_version: if spelled { "1.0".into() } else { macp_version },
            mode: if spelled { String::new() } else { mode },
            message_type: real_type.map_or(message_type, real),
            message_id, session_id, sender, timestamp_unix_ms,
            payload: payload.into(),
        };
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
        let command = Command { caller: Caller::anonymous(), input };
        let mut slot: Option<Session> = None;
        for now in [now, now.wrapping_add(60_001), i64::MAX, i64::MIN] {
            step(&mut slot, &command, now, &Limits::default());
            let expire = Command { caller: Caller::anonymous(), input: Input::Touch };
            step(&mut slot, &expire, now, &Limits::default());
        }
    }
}

/// The same script with every standard session under one policy. Ids of the same length leave the bytes of a start as
/// many as they were, which count against a session's cap.
fn governed(script: &Script, policy: &Arc<Policy>) -> Script {
    let mut script = script.clone();
    // Where every session is classic no policy governs any.
    script.limits.profile = ProfileSetting::Auto;
    for step in &mut script.steps {
        let Input::Envelope { envelope, registered, .. } = &mut step.command.input else {
            continue;
        };
        registered.policy = Some(Arc::clone(policy));
        match envelope.message_type.as_str() {
            "SessionStart" => {
                let Ok(mut payload) = SessionStartPayload::decode(envelope.payload.clone()) else {
                    continue;
                };
                // Classic starts may name none.
                if !payload.policy_version.is_empty() && !payload.configuration_version.is_empty() {
                    payload.policy_version = policy.id().to_owned();
                    envelope.payload = payload.encode_to_vec().into();
                }
            }
            // Whoever names a policy names another one.
            "Commitment" => {
                let Ok(mut payload) = CommitmentPayload::decode(envelope.payload.clone()) else {
                    continue;
                };
                payload.policy_version.clear();
                envelope.payload = payload.encode_to_vec().into();
            }
            _ => {}
        }
    }
    script
}

/// The rules spelled out that say nothing: every one of them is its default.
fn plain(id: &str) -> Policy {
    let rules = json!({
        "voting": { "algorithm": "none", "threshold": 0.5, "quorum": { "type": "count", "value": 0 } },
        "objection_handling": {
            "critical_severity_vetoes": false, "veto_threshold": 1, "critical_objection_action": "deny",
        },
        "evaluation": { "required_before_voting": false, "minimum_confidence": 0 },
        "commitment": {
            "authority": "initiator_only", "designated_roles": [], "require_vote_quorum": false,
            "allow_decline_over_approval": false,
        },
        "acceptance": { "criterion": "all_parties", "implicit_accept_timeout_ms": 0 },
        "counter_proposal": { "max_rounds": 0 },
        "rejection": { "terminal_on_any_reject": false },
        "assignment": { "allow_reassignment_on_reject": false },
        "completion": { "require_output": false },
        "threshold": {},
        "abstention": { "counts_toward_quorum": false, "interpretation": "neutral" },
        "_note": "all of it is the default",
    });
    let descriptor = PolicyDescriptor {
        policy_id: id.to_owned(),
        mode: "*".into(),
        rules: rules.to_string(),
        schema_version: 3,
        ..PolicyDescriptor::default()
    };
    validate(&descriptor).expect("the defaults are valid")
}

/// What became of a step, as far as it does not name the policy.
#[derive(Debug, PartialEq)]
struct Became {
    verdict: TracedVerdict,
    dates: Vec<i64>,
    state: Option<State>,
    mode_state: Option<serde_json::Value>,
}

fn verdicts(script: &Script) -> Vec<Became> {
    let mut slots: BTreeMap<&str, Option<Session>> = BTreeMap::new();
    let mut verdicts = Vec::new();
    for Step { at_ms, session_id, command } in &script.steps {
        let slot = slots.entry(session_id).or_default();
        let outcome = step(slot, command, *at_ms, &script.limits);
        verdicts.push(Became {
            verdict: (&outcome.settled).into(),
            dates: outcome.entries.iter().map(|entry| entry.accepted_at_unix_ms).collect(),
            state: slot.as_ref().map(Session::state),
            mode_state: slot.as_ref().map(Session::describe_mode),
        });
    }
    verdicts
}

/// The same steps, in the same order within each session, in another order between them.
fn interleaved(steps: &[Step], picks: &[u8]) -> Vec<Step> {
    let mut queues: std::collections::BTreeMap<&str, std::collections::VecDeque<&Step>> =
        std::collections::BTreeMap::new();
    for step in steps {
        queues.entry(&step.session_id).or_default().push_back(step);
    }
    let mut order = Vec::with_capacity(steps.len());
    let mut picks = picks.iter().copied().cycle();
    while !queues.is_empty() {
        let pick = usize::from(picks.next().unwrap_or_default()) % queues.len();
        let session_id = *queues.keys().nth(pick).expect("the pick is within the queues");
        let queue = queues.get_mut(session_id).expect("it was just found");
        order.extend(queue.pop_front().cloned());
        if queue.is_empty() {
            queues.remove(session_id);
        }
    }
    order
}

/// Scripts out of fixed pseudo-random bytes reach every kind of verdict and every kind of end: the properties above are
/// about something.
#[test]
fn scripts_reach_every_verdict_and_every_end() {
    let mut tally = Tally::default();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..300 {
        let mut bytes = vec![0_u8; 2_400];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
        add(&mut tally, check(&Script::from_bytes(&bytes)));
    }
    println!("{tally:#?}");
    assert!(tally.accepted > 1_000 && tally.duplicates > 100 && tally.relayed > 100, "{tally:#?}");
    let codes = [
        "UNSUPPORTED_PROTOCOL_VERSION",
        "PAYLOAD_TOO_LARGE",
        "UNAUTHENTICATED",
        "INVALID_ENVELOPE",
        "RATE_LIMITED",
        "MODE_NOT_SUPPORTED",
        "SESSION_NOT_FOUND",
        "SESSION_NOT_OPEN",
        "FORBIDDEN",
        "POLICY_DENIED",
        "SESSION_ALREADY_EXISTS",
        "INVALID_REQUEST",
    ];
    for code in codes {
        assert!(tally.rejections.contains_key(code), "no {code} in {tally:#?}");
    }
    let ends = [
        "ttl",
        "overslept",
        "cancelled",
        "open",
        "suspended",
        "macp.mode.decision.v1",
        "macp.mode.multi_round.v1",
        "macp.mode.proposal.v1",
        "macp.mode.task.v1",
        "macp.mode.handoff.v1",
        "macp.mode.quorum.v1",
        "ext.multi_round.v1",
        "ext.drawn.v1",
    ];
    assert!(tally.synthetic > 20 && tally.kept > 10 && tally.pauses > 50 && tally.what_ifs > 20, "{tally:#?}");
    for end in ends {
        assert!(tally.ends.contains_key(end), "no end by {end} in {tally:#?}");
    }
}

fn add(sum: &mut Tally, tally: Tally) {
    sum.accepted += tally.accepted;
    sum.duplicates += tally.duplicates;
    sum.relayed += tally.relayed;
    sum.synthetic += tally.synthetic;
    sum.kept += tally.kept;
    sum.pauses += tally.pauses;
    sum.what_ifs += tally.what_ifs;
    for (code, count) in tally.rejections {
        *sum.rejections.entry(code).or_default() += count;
    }
    for (end, count) in tally.ends {
        *sum.ends.entry(end).or_default() += count;
    }
}
