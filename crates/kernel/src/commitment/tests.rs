//! The published results, rebuilt by hand, and what no vector covers.

use macp_wire::v1::CommitmentRef;
use proptest::prelude::*;

use super::*;

const HASH_001: &str = "sha256:9f58e9d114d11860d48aa2bcb8cda458b9618b1cc8560595a802b68c4af85d41";

fn vector_001() -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: "c1".into(),
        action: "decision.approved".into(),
        authority_scope: "seam".into(),
        reason: "sealed by seam".into(),
        mode_version: "macp.mode.decision.v1".into(),
        policy_version: "1.0.0".into(),
        configuration_version: "1.0.0".into(),
        outcome_positive: true,
        supersedes: None,
    }
}

fn superseding(session_id: &str, commitment_hash: &str) -> Option<CommitmentRef> {
    Some(CommitmentRef { session_id: session_id.into(), commitment_hash: commitment_hash.into() })
}

/// A field of text or bytes.
fn delimited(number: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(body.len()).expect("short")];
    bytes.extend_from_slice(body);
    bytes
}

#[track_caller]
fn check_compute(payload: &CommitmentPayload, length: usize, expected: &str) {
    assert_eq!(canonical(payload).len(), length);
    assert_eq!(preimage(payload), format!("macp-commitment-hash/1:{}", canonical(payload)).as_bytes());
    assert_eq!(hash(payload), expected);
    assert!(is_canonical(expected));
    assert_eq!(verify(&payload.encode_to_vec(), expected), Verdict::Match);
}

#[test]
fn std_hash_8_computed_results() {
    check_compute(&vector_001(), 222, HASH_001);
    let chained = CommitmentPayload {
        commitment_id: "c2".into(),
        supersedes: superseding("prior-sess", HASH_001),
        ..vector_001()
    };
    check_compute(&chained, 355, "sha256:7cc490432ad6b25e9c19fc7c3a84f1e33abe497fca1fd5266ff0275db3650f9d");
    let empty = CommitmentPayload::default();
    check_compute(&empty, 155, "sha256:3240d1a7adb7bd9420ad5490182227ce699c9e4e465f7934885fe2ded939f32e");
    let empty_reference = CommitmentPayload { supersedes: superseding("", ""), ..empty };
    check_compute(&empty_reference, 207, "sha256:9776c22ef165f26817f89bb456cf6bc56a659eb1561a576f6ea9a435bd3291d7");
    assert_eq!(
        canonical(&empty_reference),
        concat!(
            r#"{"action":"","authority_scope":"","commitment_id":"","configuration_version":"","mode_version":"","#,
            r#""outcome_positive":false,"policy_version":"","reason":"","#,
            r#""supersedes":{"commitment_hash":"","session_id":""}}"#,
        )
    );
    let escapes = CommitmentPayload {
        commitment_id: "c5".into(),
        action: r#"decision."appro\ved""#.into(),
        authority_scope: "café".into(),
        reason: "ré\tsumé\n— naïve 🜂".into(),
        outcome_positive: false,
        ..vector_001()
    };
    check_compute(&escapes, 243, "sha256:03f8ac2b8172958504092ce9fe5154dbcfe300fd30a350453d4e4bd715822ab2");
}

#[test]
fn std_hash_8_verified_results() {
    let bytes = vector_001().encode_to_vec();
    assert_eq!(verify(&bytes, HASH_001), Verdict::Match);

    let unknown = [&bytes[..], &[0x9a, 0x06, 0x01, b'x']].concat();
    assert_eq!(verify(&unknown, HASH_001), Verdict::CannotVerify(Unhashable::UnknownField(99)));
    assert_eq!(verify(&bytes, &HASH_001.replacen('8', "9", 1)), Verdict::Mismatch);
    let digits = HASH_001.strip_prefix("sha256:").expect("canonical");
    assert_eq!(verify(&bytes, &format!("sha256:{}", digits.to_uppercase())), Verdict::Mismatch);
    assert_eq!(verify(&bytes, digits), Verdict::Mismatch);

    let known = CommitmentPayload { supersedes: superseding("s0", HASH_001), ..vector_001() };
    let reference = [&delimited(1, b"s0")[..], &delimited(2, HASH_001.as_bytes()), &delimited(3, b"z")].concat();
    let unknown = [&bytes[..], &delimited(9, &reference)].concat();
    let cannot = Verdict::CannotVerify(Unhashable::UnknownSupersedesField(3));
    assert_eq!(verify(&unknown, &hash(&known)), cannot);
    assert_eq!(cannot.as_str(), "cannot_verify");
}

#[test]
fn std_hash_5_there_is_one_way_to_write_a_hash() {
    assert!(is_canonical(HASH_001));
    let digits = &HASH_001[7..];
    let shorter = &HASH_001[..HASH_001.len() - 1];
    let upper = HASH_001.to_uppercase();
    let not_hexadecimal = HASH_001.replace('a', "g");
    let padded = format!("{HASH_001} ");
    let other = format!("sha512:{digits}");
    let longer = format!("{HASH_001}0");
    for claim in [digits, shorter, &upper, &not_hexadecimal, &padded, &other, &longer, "", "sha256:"] {
        assert!(!is_canonical(claim), "{claim:?}");
    }
}

#[test]
fn std_hash_6_merging_is_that_of_protobuf() {
    // No bytes at all are a payload of defaults.
    assert_eq!(verify(b"", &hash(&CommitmentPayload::default())), Verdict::Match);
    // The last scalar wins, and references are merged.
    let bytes = [
        delimited(1, b"first"),
        delimited(9, &delimited(1, b"session")),
        delimited(9, &delimited(2, b"hash")),
        delimited(1, b"last"),
        vec![8 << 3, 0x82, 0x00],
    ]
    .concat();
    let expected = CommitmentPayload {
        commitment_id: "last".into(),
        outcome_positive: true,
        supersedes: superseding("session", "hash"),
        ..CommitmentPayload::default()
    };
    assert_eq!(decode(&bytes), Ok(expected.clone()));
    assert_eq!(verify(&bytes, &hash(&expected)), Verdict::Match);
    // A reference without content is there all the same.
    let empty_reference = decode(&delimited(9, b"")).expect("hashable");
    assert_eq!(hash(&empty_reference), "sha256:9776c22ef165f26817f89bb456cf6bc56a659eb1561a576f6ea9a435bd3291d7");
}

#[test]
fn std_hash_6_bytes_that_cannot_be_verified() {
    use Unhashable::*;
    let check = |bytes: &[u8], expected: Unhashable| {
        // Whatever is claimed: the question of the fields comes first.
        for claim in ["", "sha256:", HASH_001] {
            assert_eq!(verify(bytes, claim), Verdict::CannotVerify(expected.clone()), "{bytes:?}");
        }
    };
    check(&[0x02, 0x00], UnknownField(0));
    check(&delimited(10, b""), UnknownField(10));
    check(b"{}", UnknownField(15));
    check(&[0x80], Truncated);
    check(&[0xff; 10], Varint);
    check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Varint);
    check(&[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00], UnknownField(u64::MAX >> 3));
    check(&[0x0a, 0x03, b'a', b'b'], Truncated);
    check(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Truncated);
    check(&[0x40], Truncated);
    check(&[0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Varint);
    check(&[0x09, 1, 2, 3, 4, 5, 6, 7], Truncated);
    check(&[0x0d, 1, 2, 3], Truncated);
    for wire_type in [3, 4, 6, 7] {
        check(&[1 << 3 | wire_type], WireType { field: 1, wire_type });
        check(&delimited(9, &[1 << 3 | wire_type]), WireType { field: 1, wire_type });
    }
    check(&delimited(9, &[0x0a]), Truncated);
    check(&delimited(9, &[0x02, 0x00]), UnknownSupersedesField(0));

    // Whole fields that are not what the message has: another wire type, and text that is no UTF-8.
    let bad: [&[u8]; 5] =
        [&[0x08, 0x01], &[0x42, 0x01, b'a'], &[0x48, 0x01], &[0x0a, 0x01, 0xff], &[0x4a, 0x03, 0x0a, 0x01, 0xff]];
    for bytes in bad {
        assert!(matches!(decode(bytes), Err(Undecodable(_))), "{bytes:?}");
    }
    check(&[0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x78, 0x00], UnknownField(15));
}

proptest! {
    #[test]
    fn any_bytes_get_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        match decode(&bytes) {
            Ok(payload) => prop_assert_eq!(verify(&bytes, &hash(&payload)), Verdict::Match),
            Err(unhashable) => prop_assert_eq!(verify(&bytes, HASH_001), Verdict::CannotVerify(unhashable)),
        }
    }

    /// What this program encodes it can verify, and no two texts of a field share a hash.
    #[test]
    fn any_payload_has_its_own_hash(id in any::<String>(), reason in any::<String>(), other in any::<String>()) {
        let payload = CommitmentPayload { commitment_id: id, reason, ..vector_001() };
        prop_assert_eq!(verify(&payload.encode_to_vec(), &hash(&payload)), Verdict::Match);
        let text = canonical(&payload);
        prop_assert_eq!(canonical::parse(text.as_bytes()).expect("canonical text is JSON"), projection(&payload));
        let changed = CommitmentPayload { reason: other, ..payload.clone() };
        prop_assert_eq!(hash(&changed) == hash(&payload), changed == payload);
    }
}
