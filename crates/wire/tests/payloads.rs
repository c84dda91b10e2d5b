//! Classic payloads in both encodings, and the promise that no bytes can make a decoder panic.

use std::error::Error as _;

use macp_wire::{
    classic, history,
    modes::{
        decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload},
        handoff, multi_round,
        multi_round::v1::ContributePayload,
        proposal, quorum, task,
    },
    payload::{self, ClassicPayload, Error},
    signature,
    v1::{self, CommitmentPayload, CommitmentRef},
};
use proptest::prelude::*;
use prost::Message;

#[track_caller]
fn check<P: ClassicPayload>(bytes: impl AsRef<[u8]>, expected: P) {
    assert_eq!(payload::decode::<P>(bytes.as_ref()).expect("a valid payload"), expected);
}

#[track_caller]
fn check_error<P: ClassicPayload>(bytes: impl AsRef<[u8]>, expected: &str) {
    let error = payload::decode::<P>(bytes.as_ref()).expect_err("an invalid payload");
    assert!(error.to_string().contains(expected), "{error} does not contain {expected:?}");
}

fn proposal(supporting_data: &'static [u8]) -> ProposalPayload {
    ProposalPayload {
        proposal_id: "p1".into(),
        option: "Deploy".into(),
        rationale: "Tests pass".into(),
        supporting_data: supporting_data.into(),
    }
}

fn commitment() -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: "c1".into(),
        action: "deploy".into(),
        authority_scope: "team".into(),
        reason: "agreed".into(),
        mode_version: "1.0.0".into(),
        policy_version: "p".into(),
        configuration_version: "c".into(),
        outcome_positive: true,
        supersedes: Some(CommitmentRef { session_id: "s0".into(), commitment_hash: "ab".into() }),
    }
}

#[test]
fn json_of_every_type() {
    check(
        r#"{"proposal_id":"p1","option":"Deploy","rationale":"Tests pass","supporting_data":"aGk="}"#,
        proposal(b"hi"),
    );
    check(
        r#"{"proposal_id":"p1","recommendation":"APPROVE","confidence":0.95,"reason":"solid"}"#,
        EvaluationPayload {
            proposal_id: "p1".into(),
            recommendation: "APPROVE".into(),
            confidence: 0.95,
            reason: "solid".into(),
        },
    );
    check(
        r#"{"proposal_id":"p1","reason":"no review","severity":"high"}"#,
        ObjectionPayload { proposal_id: "p1".into(), reason: "no review".into(), severity: "high".into() },
    );
    check(
        r#"{"proposal_id":"p1","vote":"approve","reason":"good"}"#,
        VotePayload { proposal_id: "p1".into(), vote: "approve".into(), reason: "good".into() },
    );
    check(
        r#"{"commitment_id":"c1","action":"deploy","authority_scope":"team","reason":"agreed",
            "mode_version":"1.0.0","policy_version":"p","configuration_version":"c",
            "outcome_positive":true,"supersedes":{"session_id":"s0","commitment_hash":"ab"}}"#,
        commitment(),
    );
    check(r#"{"value":"option_a"}"#, ContributePayload { value: "option_a".into() });
    check(r#"{"value":""}"#, ContributePayload::default());
}

#[test]
fn absent_fields_take_their_defaults_and_unknown_ones_are_ignored() {
    check("{}", ProposalPayload::default());
    check("{ } \n", EvaluationPayload::default());
    check("{}", ObjectionPayload::default());
    check("{}", VotePayload::default());
    check("{}", CommitmentPayload::default());
    check(
        r#"{"supersedes":{}}"#,
        CommitmentPayload { supersedes: Some(CommitmentRef::default()), ..CommitmentPayload::default() },
    );
    check(
        r#"{"color":null,"nested":{"a":[1,{"b":-2.5e3}]},"vote":"reject","proposalId":"p9"}"#,
        VotePayload { vote: "reject".into(), ..VotePayload::default() },
    );
    check_error::<ContributePayload>("{}", "`value` is missing");
}

#[test]
fn protobuf_of_every_type() {
    check(proposal(b"\0\xff").encode_to_vec(), proposal(b"\0\xff"));
    check(commitment().encode_to_vec(), commitment());
    check(
        b"\x0a\x02p1\x12\x07approve",
        VotePayload { proposal_id: "p1".into(), vote: "approve".into(), reason: String::new() },
    );
    check("", EvaluationPayload::default());
    check("", CommitmentPayload::default());
    check("", ContributePayload::default());
    check_error::<VotePayload>("resolve", "not valid protobuf");
    check_error::<VotePayload>(b"\x0a\x05p1", "not valid protobuf");
}

#[test]
fn the_first_byte_alone_chooses_the_encoding() {
    // JSON behind a blank is not JSON, and something that starts like JSON is never tried as protobuf.
    check_error::<VotePayload>(" {}", "not valid protobuf");
    check_error::<VotePayload>(b"\xef\xbb\xbf{}", "not valid protobuf");
    check_error::<VotePayload>(b"{\x7c", "not valid JSON");
    check_error::<VotePayload>(r#"["vote"]"#, "not valid protobuf");
    check(b"\x0a\x02{}", ContributePayload { value: "{}".into() });
}

#[test]
fn base64_padded_or_not_in_the_standard_alphabet() {
    let with = |text: &str| format!(r#"{{"supporting_data":"{text}"}}"#);
    let data = |bytes: &'static [u8]| ProposalPayload { supporting_data: bytes.into(), ..ProposalPayload::default() };
    check(with(""), data(b""));
    check(with("aA=="), data(b"h"));
    check(with("aA"), data(b"h"));
    check(with("+/+/"), data(b"\xfb\xff\xbf"));
    for bad in ["-_-_", "a", "aA=", "aB==", "aA==aA==", "a A=", "aGk=\\n"] {
        check_error::<ProposalPayload>(with(bad), "`supporting_data` is not valid base64");
    }
}

#[test]
fn numbers() {
    let confidence = |text: &str| format!(r#"{{"confidence":{text}}}"#);
    for (text, number) in [("1", 1.0), ("-2", -2.0), ("0.1", 0.1), ("1e-3", 0.001)] {
        check(confidence(text), EvaluationPayload { confidence: number, ..EvaluationPayload::default() });
    }
    for bad in ["1e999", "NaN", "Infinity", "01", ".5"] {
        check_error::<EvaluationPayload>(confidence(bad), "not valid JSON");
    }
}

#[test]
fn wrong_types_and_null() {
    for bad in ["null", "1", "true", "[]", "{}", r#"["approve"]"#] {
        check_error::<VotePayload>(format!(r#"{{"vote":{bad}}}"#), "`vote` must be a string");
    }
    check_error::<ContributePayload>(r#"{"value":null}"#, "`value` must be a string");
    check_error::<ProposalPayload>(r#"{"supporting_data":[104]}"#, "`supporting_data` must be a string");
    for bad in ["null", r#""0.5""#, "true"] {
        let text = format!(r#"{{"confidence":{bad}}}"#);
        check_error::<EvaluationPayload>(text, "`confidence` must be a number");
    }
    for bad in ["null", "1", r#""true""#] {
        let text = format!(r#"{{"outcome_positive":{bad}}}"#);
        check_error::<CommitmentPayload>(text, "`outcome_positive` must be true or false");
    }
    for bad in ["null", r#""s0""#, "[]"] {
        let text = format!(r#"{{"supersedes":{bad}}}"#);
        check_error::<CommitmentPayload>(text, "`supersedes` must be an object");
    }
    check_error::<CommitmentPayload>(r#"{"supersedes":{"session_id":7}}"#, "`session_id` must be a string");
}

#[test]
fn keys_given_twice() {
    for bad in [
        r#"{"vote":"approve","vote":"reject"}"#,
        r#"{"vote":"approve","vote":"approve"}"#,
        // The same key, once escaped.
        r#"{"vote":"approve","\u0076ote":"reject"}"#,
        r#"{"x":1,"x":2}"#,
        r#"{"x":{"y":1,"y":2}}"#,
        r#"{"x":[{"y":1,"y":2}]}"#,
    ] {
        check_error::<VotePayload>(bad, "a key is given twice");
    }
}

#[test]
fn malformed_json() {
    for bad in [
        b"{".as_slice(),
        b"{}{}",
        b"{} x",
        b"{}\0",
        b"{\"vote\":\"approve\",}",
        b"{'vote':'approve'}",
        b"{\"vote\":\"\xff\"}",
        b"{\"vote\":\"\xed\xa0\x80\"}",
        b"{\"vote\":\"\\ud800\"}",
        b"{\"vote\":\"a\nb\"}",
        b"{\"vote\":\"a\"",
        b"{1:2}",
    ] {
        check_error::<VotePayload>(bad, "not valid JSON");
    }
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    check_error::<VotePayload>(deep, "recursion limit");
}

#[test]
fn errors_never_repeat_the_payload() {
    for bad in [
        r#"{"vote":"s3cret","reason":5}"#,
        r#"{"confidence":"s3cret"}"#,
        r#"{"confidence":s3cret}"#,
        r#"{"supporting_data":"s3cret!"}"#,
        r#"{"s3cret":1,"s3cret":2}"#,
        r#"{"supersedes":"s3cret"}"#,
        r#"{"value":1,"s3cret":"s3cret"}"#,
        "\n\x30s3cret",
    ] {
        let errors = [
            payload::decode::<ProposalPayload>(bad.as_bytes()).err(),
            payload::decode::<EvaluationPayload>(bad.as_bytes()).err(),
            payload::decode::<VotePayload>(bad.as_bytes()).err(),
            payload::decode::<CommitmentPayload>(bad.as_bytes()).err(),
            payload::decode::<ContributePayload>(bad.as_bytes()).err(),
        ];
        assert!(errors.iter().any(Option::is_some), "{bad} is valid for all");
        for error in errors.iter().flatten() {
            let text = format!("{error} {:?}", error.source().map(ToString::to_string));
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn json_cannot_express_every_number() {
    for confidence in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let payload = EvaluationPayload { confidence, ..EvaluationPayload::default() };
        let error = payload::encode_json(&payload).expect_err("not finite");
        assert!(matches!(error, Error::NotFinite { field: "confidence" }), "{error}");
    }
}

#[test]
fn json_as_written() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("JSON is UTF-8");
    let payload = ContributePayload { value: "a\"b".into() };
    assert_eq!(text(payload::encode_json(&payload).expect("writes")), r#"{"value":"a\"b"}"#);
    let written = text(payload::encode_json(&CommitmentPayload::default()).expect("writes"));
    assert!(!written.contains("supersedes"), "{written}");
    let written = text(payload::encode_json(&proposal(b"h")).expect("writes"));
    assert!(written.contains(r#""supporting_data":"aA==""#), "{written}");
}

/// Every decoder that input from outside can reach.
fn decode_all(bytes: &[u8]) {
    let _ = payload::decode::<ProposalPayload>(bytes);
    let _ = payload::decode::<EvaluationPayload>(bytes);
    let _ = payload::decode::<ObjectionPayload>(bytes);
    let _ = payload::decode::<VotePayload>(bytes);
    let _ = payload::decode::<CommitmentPayload>(bytes);
    let _ = payload::decode::<ContributePayload>(bytes);

    fn message<M: Message + Default>(bytes: &[u8]) {
        if let Ok(message) = M::decode(bytes) {
            // What decodes has one encoding, which decodes again.
            let encoded = message.encode_to_vec();
            let again = M::decode(encoded.as_slice()).expect("our own encoding decodes");
            assert_eq!(again.encode_to_vec(), encoded);
        }
    }
    message::<v1::Envelope>(bytes);
    message::<v1::SendRequest>(bytes);
    message::<v1::StreamSessionRequest>(bytes);
    message::<v1::SessionStartPayload>(bytes);
    message::<v1::SessionCancelPayload>(bytes);
    message::<v1::CommitmentPayload>(bytes);
    message::<v1::SignalPayload>(bytes);
    message::<v1::ProgressPayload>(bytes);
    message::<classic::v1::SessionStartPayload>(bytes);
    message::<history::v1::Entry>(bytes);
    message::<signature::v1::EnvelopeSignature>(bytes);
    message::<proposal::v1::ProposalPayload>(bytes);
    message::<proposal::v1::CounterProposalPayload>(bytes);
    message::<proposal::v1::AcceptPayload>(bytes);
    message::<proposal::v1::RejectPayload>(bytes);
    message::<proposal::v1::WithdrawPayload>(bytes);
    message::<task::v1::TaskRequestPayload>(bytes);
    message::<task::v1::TaskAcceptPayload>(bytes);
    message::<task::v1::TaskRejectPayload>(bytes);
    message::<task::v1::TaskUpdatePayload>(bytes);
    message::<task::v1::TaskCompletePayload>(bytes);
    message::<task::v1::TaskFailPayload>(bytes);
    message::<handoff::v1::HandoffOfferPayload>(bytes);
    message::<handoff::v1::HandoffContextPayload>(bytes);
    message::<handoff::v1::HandoffAcceptPayload>(bytes);
    message::<handoff::v1::HandoffDeclinePayload>(bytes);
    message::<quorum::v1::ApprovalRequestPayload>(bytes);
    message::<quorum::v1::ApprovePayload>(bytes);
    message::<quorum::v1::RejectPayload>(bytes);
    message::<quorum::v1::AbstainPayload>(bytes);
    message::<multi_round::v1::ContributePayload>(bytes);
}

/// JSON-like text: far more of it gets deep into the parser than of plain noise.
fn json_like() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(",".to_owned()),
        Just(":".to_owned()),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("\"value\"".to_owned()),
        Just("\"supporting_data\"".to_owned()),
        Just("\"supersedes\"".to_owned()),
        Just("\"confidence\"".to_owned()),
        any::<f64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| format!("{text:?}")),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| format!("{{{}", tokens.concat()).into())
}

fn check_round_trip<P: ClassicPayload>(payload: P) -> Result<(), TestCaseError> {
    let json = payload::encode_json(&payload).expect("finite numbers only");
    prop_assert_eq!(json.first(), Some(&b'{'));
    prop_assert_eq!(&payload::decode::<P>(&json).expect("our own JSON decodes"), &payload);

    let protobuf = payload.encode_to_vec();
    prop_assert_ne!(protobuf.first(), Some(&b'{'));
    prop_assert_eq!(&payload::decode::<P>(&protobuf).expect("our own protobuf decodes"), &payload);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        decode_all(&bytes);
    }

    #[test]
    fn no_json_panics(bytes in json_like()) {
        decode_all(&bytes);
    }

    #[test]
    fn no_damaged_entry_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let envelope = v1::Envelope {
            session_id: "s-1".into(),
            payload: commitment().encode_to_vec().into(),
            ..v1::Envelope::default()
        };
        let entry = history::v1::Entry {
            sequence: 1,
            input: Some(history::v1::entry::Input::Envelope(envelope)),
            binding: Some(Box::new(history::v1::Binding {
                participants: vec!["alice".into(), "bob".into()],
                roots: vec![v1::Root { uri: "file:///".into(), name: "root".into() }],
                ..history::v1::Binding::default()
            })),
            ..history::v1::Entry::default()
        };
        let mut bytes = entry.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        decode_all(&bytes);
        decode_all(&bytes[..at]);
    }

    #[test]
    fn round_trips(texts in prop::array::uniform7(any::<String>()), data: Vec<u8>,
        confidence in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        outcome_positive: bool, superseding: bool,
    ) {
        let [a, b, c, d, e, f, g] = texts;
        check_round_trip(ProposalPayload {
            proposal_id: a.clone(), option: b.clone(), rationale: c.clone(), supporting_data: data.into(),
        })?;
        check_round_trip(EvaluationPayload {
            proposal_id: a.clone(), recommendation: b.clone(), confidence, reason: c.clone(),
        })?;
        check_round_trip(ObjectionPayload { proposal_id: a.clone(), reason: b.clone(), severity: c.clone() })?;
        check_round_trip(VotePayload { proposal_id: a.clone(), vote: b.clone(), reason: c.clone() })?;
        check_round_trip(ContributePayload { value: a.clone() })?;
        let supersedes = superseding
            .then(|| CommitmentRef { session_id: b.clone(), commitment_hash: c.clone() });
        check_round_trip(CommitmentPayload {
            commitment_id: a, action: b, authority_scope: c, reason: d, mode_version: e, policy_version: f,
            configuration_version: g, outcome_positive, supersedes,
        })?;
    }
}
