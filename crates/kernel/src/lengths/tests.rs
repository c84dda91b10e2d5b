//! Every kind of bound at its edge, and that no payload of a mode is missing from the table.

use macp_wire::FILE_DESCRIPTOR_SET;
use prost::Message;

use super::*;

type Set<P> = fn(&mut P, String);

/// A field takes as many bytes as its bound allows, and is named when there is one more.
#[track_caller]
fn check<P: Bounded + Default>(bytes_max: usize, fields: &[(&str, Set<P>)]) {
    for (field, set) in fields {
        let with = |length| {
            let mut payload = P::default();
            set(&mut payload, "x".repeat(length));
            payload.check_lengths()
        };
        assert_eq!(with(bytes_max), Ok(()), "{field}");
        let rejection = with(bytes_max + 1).expect_err(field);
        assert_eq!(rejection.code, macp_wire::codes::Code::InvalidEnvelope);
        let expected = format!("{field} is {} bytes long, at most {bytes_max} are allowed", bytes_max + 1);
        assert_eq!(rejection.message, expected);
    }
}

#[test]
fn wire_6_names_and_ids_in_payloads() {
    check::<v1::CommitmentPayload>(
        ID_BYTES_MAX,
        &[
            ("commitment_id", |it, word| it.commitment_id = word),
            ("authority_scope", |it, word| it.authority_scope = word),
            ("policy_version", |it, word| it.policy_version = word),
            ("supersedes.session_id", |it, word| {
                it.supersedes = Some(v1::CommitmentRef { session_id: word, ..Default::default() });
            }),
        ],
    );
    check::<decision::v1::EvaluationPayload>(ID_BYTES_MAX, &[("recommendation", |it, word| it.recommendation = word)]);
    check::<decision::v1::ObjectionPayload>(ID_BYTES_MAX, &[("severity", |it, word| it.severity = word)]);
    check::<proposal::v1::ProposalPayload>(ID_BYTES_MAX, &[("tags", |it, word| it.tags = vec!["t".into(), word])]);
    check::<task::v1::TaskFailPayload>(ID_BYTES_MAX, &[("error_code", |it, word| it.error_code = word)]);
    check::<quorum::v1::ApprovalRequestPayload>(ID_BYTES_MAX, &[("request_id", |it, word| it.request_id = word)]);
    check::<quorum::v1::ApprovalRequestPayload>(TEXT_BYTES_MAX, &[("action", |it, word| it.action = word)]);
    check::<v1::CommitmentPayload>(TEXT_BYTES_MAX, &[("action", |it, word| it.action = word)]);
    check::<handoff::v1::HandoffContextPayload>(
        HANDOFF_ID_BYTES_MAX,
        &[("handoff_id", |it, word| it.handoff_id = word)],
    );
    check::<v1::SignalPayload>(ID_BYTES_MAX, &[("signal_type", |it, word| it.signal_type = word)]);
    check::<v1::ProgressPayload>(
        STANDARD_MESSAGE_ID_BYTES_MAX,
        &[("target_message_id", |it, word| it.target_message_id = word)],
    );
    check::<v1::SessionStartPayload>(
        ID_BYTES_MAX,
        &[("participants", |it, word| it.participants = vec!["a".into(), word])],
    );
    check::<classic::v1::SessionStartPayload>(
        ID_BYTES_MAX,
        &[("a root's name", |it, word| it.roots = vec![v1::Root { name: word, ..Default::default() }])],
    );
}

#[test]
fn wire_6_texts_in_payloads() {
    check::<classic::v1::SessionStartPayload>(
        TEXT_BYTES_MAX,
        &[
            ("intent", |it, text| it.intent = text),
            ("a root's uri", |it, text| it.roots = vec![v1::Root { uri: text, ..Default::default() }]),
        ],
    );
    check::<v1::CommitmentPayload>(TEXT_BYTES_MAX, &[("reason", |it, text| it.reason = text)]);
    check::<decision::v1::ProposalPayload>(
        TEXT_BYTES_MAX,
        &[("option", |it, text| it.option = text), ("rationale", |it, text| it.rationale = text)],
    );
    check::<task::v1::TaskRequestPayload>(
        TEXT_BYTES_MAX,
        &[("title", |it, text| it.title = text), ("instructions", |it, text| it.instructions = text)],
    );
    check::<v1::ProgressPayload>(TEXT_BYTES_MAX, &[("message", |it, text| it.message = text)]);
    check::<multi_round::v1::ContributePayload>(CONTRIBUTION_BYTES_MAX, &[("value", |it, text| it.value = text)]);
}

/// Attached bytes, and what a start is never refused for, are bounded by the payload alone.
#[test]
fn what_is_attached_is_free() {
    let long = || "x".repeat(900_000);
    let proposal = decision::v1::ProposalPayload { supporting_data: long().into(), ..Default::default() };
    assert_eq!(proposal.check_lengths(), Ok(()));
    let start = v1::SessionStartPayload { context_id: long(), ..Default::default() };
    assert_eq!(start.check_lengths(), Ok(()));
}

/// No mode has a payload that the table leaves out; the compiler sees to the fields.
#[test]
fn every_payload_of_a_mode_is_in_the_table() {
    let table = include_str!("../lengths.rs");
    let payloads = payloads_of_modes(FILE_DESCRIPTOR_SET);
    assert!(payloads.len() > 20, "{payloads:?}");
    for (module, message) in payloads {
        assert!(table.contains(&format!("{module}::v1::{message} {{")), "{module}::v1::{message}");
    }
}

/// As much of a descriptor set as names the payloads of modes.
fn payloads_of_modes(set: &[u8]) -> Vec<(String, String)> {
    #[derive(Clone, PartialEq, Message)]
    struct Set {
        #[prost(message, repeated, tag = "1")]
        files: Vec<File>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct File {
        #[prost(string, tag = "2")]
        package: String,
        #[prost(message, repeated, tag = "4")]
        messages: Vec<Named>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }
    let set = Set::decode(set).expect("our own descriptors");
    let of_file = |file: File| {
        let module = file.package.strip_prefix("macp.modes.")?.strip_suffix(".v1")?.to_owned();
        Some(file.messages.into_iter().map(move |message| (module.clone(), message.name)))
    };
    set.files.into_iter().filter_map(of_file).flatten().collect()
}
