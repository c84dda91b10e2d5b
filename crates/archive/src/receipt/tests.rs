//! The published cases rebuilt from their material, and what they leave open.

mod keys;
mod verification;

use macp_kernel::commitment;
use macp_wire::v1::{CommitmentPayload, CommitmentRef};
use prost::Message;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::*;

/// The key of the published example.
const EXAMPLE_X: &str = "TDVzkxaSf6_Oxu7mmn5TbCkF80s8Ulh33qKQsi0gnZM";
const EXAMPLE_JWS: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImV4YW1wbGUtMSJ9..\
    ZYdZZzXE60Tf8tcerB76f59c9wR7f10mjp032gK9IG22284kkVMJBbCITtpgfnnEuNSqHFY9TUaLgAgMFh8PBQ";

fn signing_key(seed: &[u8; 32], kid: &str) -> SigningKey {
    let d = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, seed);
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "d": d });
    SigningKey::parse(&jwk.to_string(), None).expect("a key")
}

fn example_key() -> SigningKey {
    signing_key(&Sha256::digest("macp-receipt example key").into(), "example-1")
}

fn example_trust() -> PublicKeys {
    PublicKeys::new([PublicKey::from_x("example-1", EXAMPLE_X).expect("a key")]).expect("one key")
}

/// The commitment of the published example: hash vector 002.
fn example_commitment() -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: "c2".into(),
        action: "decision.approved".into(),
        authority_scope: "seam".into(),
        reason: "sealed by seam".into(),
        mode_version: "macp.mode.decision.v1".into(),
        policy_version: "1.0.0".into(),
        configuration_version: "1.0.0".into(),
        outcome_positive: true,
        supersedes: Some(CommitmentRef {
            session_id: "prior-sess".into(),
            commitment_hash: "sha256:9f58e9d114d11860d48aa2bcb8cda458b9618b1cc8560595a802b68c4af85d41".into(),
        }),
    }
}

fn example_request(resolution: &[u8]) -> ReceiptRequest<'_> {
    ReceiptRequest {
        session_id: "0192f1a4-7c3e-7b2a-9f10-5d2c8e4b6a01",
        mode: "macp.mode.decision.v1",
        resolution,
        semantics_revision: 4,
        runtime_id: "example",
        issued_at_ms: 1_792_843_200_999,
    }
}

/// The body of the published example, which has no wire member.
fn example_body() -> Map<String, Value> {
    let mut body = issue::body(&example_request(&example_commitment().encode_to_vec())).expect("a receipt");
    body.remove("commitment_wire_b64").expect("always written");
    body
}

fn parsed(receipt: &str) -> Value {
    serde_json::from_str(receipt).expect("JSON")
}

#[test]
fn std_rcpt_7_the_published_example_is_signed_to_the_byte() {
    let key = example_key();
    assert_eq!(key.public_key().x(), EXAMPLE_X);
    let receipt = issue::attest(example_body(), Some(&key));
    let members = parsed(&receipt);
    assert_eq!(members["attestations"], json!([{ "type": "jws", "jws": EXAMPLE_JWS }]));
    assert_eq!(members["issuer"], "runtime:example");
    assert_eq!(members["issued_at"], "2026-10-24T12:00:00Z");
    assert_eq!(members["semantics_rev"], json!({ "implementation": "macp-runtime", "rev": 4 }));
    let hash = "sha256:7cc490432ad6b25e9c19fc7c3a84f1e33abe497fca1fd5266ff0275db3650f9d";
    assert_eq!(members["commitment_hash"], hash);
    let verification = verify(&receipt, &example_trust());
    assert_eq!(verification.verdict, Verdict::Attested);
    assert_eq!(verification.attestations[0].kid.as_deref(), Some("example-1"));
}

#[test]
fn std_rcpt_1_an_issued_receipt_is_canonical_and_whole() {
    let payload = CommitmentPayload { commitment_id: "é\"\n".into(), ..CommitmentPayload::default() };
    let resolution = payload.encode_to_vec();
    let request = ReceiptRequest {
        session_id: "s",
        mode: "macp.mode.quorum.v1",
        resolution: &resolution,
        semantics_revision: macp_kernel::SEMANTICS_REVISION,
        runtime_id: "here",
        issued_at_ms: 0,
    };
    let receipt = issue(&request, None).expect("a receipt");
    let expected = [
        r#"{"attestations":[],"commitment":{"action":"","authority_scope":"","commitment_id":"é\"\n","#,
        r#""configuration_version":"","mode_version":"","outcome_positive":false,"policy_version":"","reason":""},"#,
        &format!(r#""commitment_hash":"{}","commitment_wire_b64":"CgTDqSIK","#, commitment::hash(&payload)),
        r#""issued_at":"1970-01-01T00:00:00Z","issuer":"runtime:here","mode":"macp.mode.quorum.v1","#,
        r#""receipt_format":"macp-receipt/1","semantics_rev":{"implementation":"macp-runtime","#,
        &format!(r#""rev":{}}},"session_id":"s"}}"#, macp_kernel::SEMANTICS_REVISION),
    ]
    .concat();
    assert_eq!(receipt, expected);
    assert_eq!(verify(&receipt, &PublicKeys::none()).verdict, Verdict::IntegrityOnly);

    let signed = issue(&request, Some(&example_key())).expect("a receipt");
    assert_eq!(signed, issue(&request, Some(&example_key())).expect("a receipt"), "signatures are deterministic");
    let mut members = parsed(&signed);
    let attestations = members["attestations"].take();
    members["attestations"] = json!([]);
    assert_eq!(members, parsed(&receipt), "a signature changes nothing else");
    let jws = attestations[0]["jws"].as_str().expect("a JWS");
    assert!(jws.starts_with("eyJhbGciOiJFZERTQSIsImtpZCI6ImV4YW1wbGUtMSJ9.."), "{jws}");
    assert_eq!(verify(&signed, &example_trust()).verdict, Verdict::Attested);
}

#[test]
fn std_rcpt_3_there_is_no_receipt_without_a_hashable_commitment_of_a_standard_mode() {
    let resolution = example_commitment().encode_to_vec();
    for mode in ["decision", "proposal", "task", "handoff", "quorum"] {
        let mode = format!("macp.mode.{mode}.v1");
        assert!(issue(&ReceiptRequest { mode: &mode, ..example_request(&resolution) }, None).is_ok(), "{mode}");
    }
    for mode in ["ext.multi_round.v1", "macp.mode.multi_round.v1", "decision", ""] {
        let error = issue(&ReceiptRequest { mode, ..example_request(&resolution) }, None).unwrap_err();
        assert_eq!(error, IssueError::Mode { mode: mode.to_owned() });
        assert!(error.is_for_good());
    }
    let unknown = [&resolution[..], &[0x9a, 0x06, 0x01, b'x']].concat();
    for bad in [&unknown[..], br#"{"commitment_id":"c2"}"#, &resolution[..5]] {
        let error = issue(&example_request(bad), None).unwrap_err();
        assert!(matches!(error, IssueError::Resolution(_)) && error.is_for_good(), "{error:?}");
    }
    let nameless = ReceiptRequest { runtime_id: "", ..example_request(&resolution) };
    let timeless = ReceiptRequest { issued_at_ms: -1, ..example_request(&resolution) };
    for (request, text) in [(nameless, "configure a runtime id"), (timeless, "check the clock")] {
        let error = issue(&request, None).unwrap_err();
        assert!(!error.is_for_good() && error.to_string().contains(text), "{error}");
    }
    // Bytes that say nothing are a commitment of defaults, written out in full.
    let empty = issue(&example_request(b""), None).expect("a receipt");
    assert_eq!(parsed(&empty)["commitment"].as_object().expect("an object").len(), 8);
    assert_eq!(parsed(&empty)["commitment_wire_b64"], "");
    assert_eq!(verify(&empty, &PublicKeys::none()).integrity, Some(Integrity::Match));
}
