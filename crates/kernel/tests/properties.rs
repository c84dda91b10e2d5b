//! Property tests: what must hold for any sequence of inputs, and that no bytes make anything panic.
//!
//! proptest prints the failing input and writes its seed beside this file, from where it is tried first the next time;
//! `PROPTEST_CASES` sets how many cases run.

mod invariants;

#[path = "invariants/decode.rs"]
mod decode;

use invariants::{Script, Step, Tally, check, histories};
use macp_kernel::{Caller, Command, Input, Limits, Session, SignatureCheck, step};
use macp_wire::v1::Envelope;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The default looks for a `lib.rs` to put seeds beside, and a test has none.
fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..ProptestConfig::default() }
}

fn script_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..1_500)
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
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent };
        let command = Command { caller: Caller::anonymous(), input };
        let mut slot: Option<Session> = None;
        for now in [now, now.wrapping_add(60_001), i64::MAX, i64::MIN] {
            step(&mut slot, &command, now, &Limits::default());
            let expire = Command { caller: Caller::anonymous(), input: Input::Expire };
            step(&mut slot, &expire, now, &Limits::default());
        }
    }
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
        let mut bytes = vec![0_u8; 1_200];
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
    ];
    for code in codes {
        assert!(tally.rejections.contains_key(code), "no {code} in {tally:#?}");
    }
    for end in ["ttl", "cancelled", "open", "macp.mode.decision.v1", "macp.mode.multi_round.v1"] {
        assert!(tally.ends.contains_key(end), "no end by {end} in {tally:#?}");
    }
}

fn add(sum: &mut Tally, tally: Tally) {
    sum.accepted += tally.accepted;
    sum.duplicates += tally.duplicates;
    sum.relayed += tally.relayed;
    for (code, count) in tally.rejections {
        *sum.rejections.entry(code).or_default() += count;
    }
    for (end, count) in tally.ends {
        *sum.ends.entry(end).or_default() += count;
    }
}
