//! What a verifier makes of receipts, good and bad.

use super::*;

/// Verifies and describes: integrity, attestations and verdict, as the published cases do.
fn judged(receipt: &Value, trusted: &PublicKeys) -> String {
    let verification = verify(&receipt.to_string(), trusted);
    let integrity = verification.integrity.map_or("-", Integrity::as_str);
    let attestations: Vec<_> = verification.attestations.iter().map(|it| it.outcome.as_str()).collect();
    let is_stopped = matches!(verification.verdict, Verdict::Refused | Verdict::Unverified);
    assert_eq!(verification.problem.is_some(), is_stopped, "{verification:?}");
    format!("{integrity} / {} / {}", attestations.join(", "), verification.verdict.as_str())
}

fn signed(body: Map<String, Value>) -> Value {
    parsed(&issue::attest(body, Some(&example_key())))
}

fn with(mut receipt: Value, change: impl FnOnce(&mut Value)) -> Value {
    change(&mut receipt);
    receipt
}

fn base64(bytes: &[u8]) -> Value {
    json!(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes))
}

/// The example with a wire member, signed with it.
fn wired(wire: Value) -> Value {
    let mut body = example_body();
    body.insert("commitment_wire_b64".to_owned(), wire);
    signed(body)
}

#[test]
fn std_rcpt_7_published_cases() {
    let trusted = example_trust();
    let check = |receipt: Value, expected: &str| assert_eq!(judged(&receipt, &trusted), expected);
    let example = signed(example_body());

    check(example.clone(), "match / valid / attested");
    let mut body = example_body();
    body.insert("transcript".to_owned(), json!({ "digest_alg": "x", "digest": "sha256:ab", "message_count": 7 }));
    check(parsed(&issue::attest(body, None)), "match /  / integrity_only");
    check(with(example.clone(), |it| it["commitment"]["reason"] = json!("edited")), "mismatch /  / unverified");
    check(with(example.clone(), |it| it["issuer"] = json!("runtime:other")), "match / invalid / integrity_only");
    let other = parsed(&issue::attest(example_body(), Some(&signing_key(&[2; 32], "example-2"))));
    check(other.clone(), "match / unknown_key / integrity_only");
    let both = json!([other["attestations"][0], example["attestations"][0]]);
    check(with(example.clone(), |it| it["attestations"] = both), "match / unknown_key, valid / attested");
    // {"alg":"HS256","kid":"example-1"}
    let jws = EXAMPLE_JWS.replace("eyJhbGciOiJFZERTQSIs", "eyJhbGciOiJIUzI1NiIs");
    check(
        with(example.clone(), |it| it["attestations"][0]["jws"] = json!(jws)),
        "match / unsupported / integrity_only",
    );
    let vendor = json!([{ "type": "vendor", "binds": "other", "value": "opaque" }]);
    check(with(example.clone(), |it| it["attestations"] = vendor), "match / unsupported / integrity_only");
    check(with(example, |it| it["receipt_format"] = json!("macp-receipt/2")), "- /  / refused");
    check(wired(base64(&example_commitment().encode_to_vec())), "match / valid / attested");
    check(wired(json!("not base64!")), "cannot_verify /  / unverified");
    let another = CommitmentPayload { reason: "a different reason".into(), ..example_commitment() };
    check(wired(base64(&another.encode_to_vec())), "mismatch /  / unverified");
}

#[test]
fn std_rcpt_6_what_is_no_receipt_is_refused() {
    for (text, problem) in [
        ("", "no JSON text"),
        ("{", "no JSON text"),
        ("[]", "a JSON object"),
        ("{}", "does not say"),
        (r#"{"receipt_format":1}"#, "does not say"),
        (r#"{"receipt_format":"macp-receipt/10"}"#, "macp-receipt/10"),
        (r#"{"receipt_format":"macp-receipt/1","receipt_format":"macp-receipt/1"}"#, "given twice"),
    ] {
        let verification = verify(text, &example_trust());
        assert_eq!((verification.verdict, verification.integrity), (Verdict::Refused, None), "{text}");
        assert!(verification.problem.as_deref().is_some_and(|it| it.contains(problem)), "{verification:?}");
    }
}

#[test]
fn std_rcpt_6_integrity_is_judged_before_anything_else() {
    let trusted = example_trust();
    let cannot = |change: &dyn Fn(&mut Value), problem: &str| {
        let receipt = with(signed(example_body()), change);
        assert_eq!(judged(&receipt, &trusted), "cannot_verify /  / unverified", "{problem}");
        let found = verify(&receipt.to_string(), &trusted).problem.expect("a problem");
        assert!(found.contains(problem), "{found}");
    };
    cannot(&|it| drop(it.as_object_mut().expect("an object").remove("commitment")), "no commitment");
    cannot(&|it| it["commitment"] = json!([]), "no commitment");
    cannot(&|it| it["commitment"]["tenth"] = json!(""), "commitment.tenth is not covered");
    cannot(&|it| it["commitment"]["action"] = json!(null), "commitment.action must be a text");
    cannot(&|it| it["commitment"]["outcome_positive"] = json!(1), "commitment.outcome_positive must be");
    cannot(&|it| it["commitment"]["supersedes"] = json!(null), "commitment.supersedes must be an object");
    cannot(&|it| it["commitment"]["supersedes"]["third"] = json!(""), "commitment.supersedes.third is not covered");
    cannot(&|it| it["commitment"]["supersedes"]["session_id"] = json!(1), "supersedes.session_id must be a text");
    cannot(&|it| it["commitment_wire_b64"] = json!(7), "not base64");
    // Standard base64 with its padding, and no other.
    cannot(&|it| it["commitment_wire_b64"] = json!("CgJjMg"), "not base64");
    cannot(&|it| it["commitment_wire_b64"] = base64(&[0x9a, 0x06, 0x01, b'x']), "field 99");

    let mismatch = |change: &dyn Fn(&mut Value)| {
        assert_eq!(judged(&with(signed(example_body()), change), &trusted), "mismatch /  / unverified");
    };
    mismatch(&|it| drop(it.as_object_mut().expect("an object").remove("commitment_hash")));
    mismatch(&|it| it["commitment_hash"] = json!(it["commitment_hash"].as_str().expect("text").to_uppercase()));
    mismatch(&|it| drop(it["commitment"].as_object_mut().expect("an object").remove("supersedes")));
    mismatch(&|it| it["commitment"]["supersedes"] = json!({}));
}

#[test]
fn std_rcpt_6_members_that_are_left_out_count_as_defaults() {
    let resolution = CommitmentPayload { action: "a".into(), ..CommitmentPayload::default() }.encode_to_vec();
    let receipt = parsed(&issue(&example_request(&resolution), None).expect("a receipt"));
    let shorter = with(receipt, |it| it["commitment"] = json!({ "action": "a" }));
    assert_eq!(judged(&shorter, &PublicKeys::none()), "match /  / integrity_only");
}

#[test]
fn std_rcpt_6_an_attestation_fits_one_receipt_in_one_form() {
    let trusted = example_trust();
    let example = signed(example_body());
    // The text may be laid out in any way, what is signed is canonical.
    let pretty = serde_json::to_string_pretty(&example).expect("JSON");
    assert_eq!(verify(&pretty, &trusted).verdict, Verdict::Attested);
    // Whatever is added, taken away or changed is noticed, members nobody knows too.
    for member in ["session_id", "mode", "semantics_rev", "issuer", "issued_at"] {
        let without = with(example.clone(), |it| drop(it.as_object_mut().expect("an object").remove(member)));
        assert_eq!(judged(&without, &trusted), "match / invalid / integrity_only", "{member}");
    }
    for (member, value) in [("extra", json!(1)), ("semantics_rev", json!(null)), ("\u{1f600}", json!([1.5]))] {
        let changed = with(example.clone(), |it| it[member] = value.clone());
        assert_eq!(judged(&changed, &trusted), "match / invalid / integrity_only", "{member}");
        let mut body = example_body();
        body.insert(member.to_owned(), value);
        assert_eq!(judged(&signed(body), &trusted), "match / valid / attested", "{member}");
    }
    // A number that readers do not agree on has no canonical form, so no signature is over it.
    let vague = with(example, |it| it["semantics_rev"]["rev"] = json!((1_u64 << 53) + 1));
    assert_eq!(judged(&vague, &trusted), "match / invalid / integrity_only");
}

#[test]
fn std_rcpt_6_attestations_of_every_shape_get_an_outcome() {
    let trusted = example_trust();
    let (header, signature) = EXAMPLE_JWS.split_once("..").expect("detached");
    let encoded = |header: &str| base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, header);
    let with_header = |text: &str| format!("{}..{signature}", encoded(text));
    for (jws, expected) in [
        (EXAMPLE_JWS.to_owned(), "valid"),
        (String::new(), "invalid"),
        (format!("{header}.{signature}"), "invalid"),
        (format!("{header}.e30.{signature}"), "invalid"),
        (format!("{header}..{signature}."), "invalid"),
        (format!("{header}..{signature}="), "invalid"),
        (format!("{header}..{}", &signature[..80]), "invalid"),
        (format!("{header}.."), "invalid"),
        (format!("{header}..not base64"), "invalid"),
        (format!("not base64..{signature}"), "invalid"),
        (format!("..{signature}"), "invalid"),
        (with_header("[]"), "invalid"),
        (with_header(r#"{"alg":"EdDSA","kid":"example-1","kid":"example-1"}"#), "invalid"),
        // The same header, written another way, was not signed.
        (with_header(r#"{"kid":"example-1","alg":"EdDSA"}"#), "invalid"),
        (with_header(r#"{"kid":"example-1"}"#), "unsupported"),
        (with_header(r#"{"alg":"none","kid":"example-1"}"#), "unsupported"),
        (with_header(r#"{"alg":"EdDSA","kid":"example-1","crit":["b64"],"b64":false}"#), "unsupported"),
        (with_header(r#"{"alg":"EdDSA"}"#), "unknown_key"),
        (with_header(r#"{"alg":"EdDSA","kid":"example-2"}"#), "unknown_key"),
        (with_header(r#"{"alg":"EdDSA","kid":1}"#), "unknown_key"),
    ] {
        let receipt = with(signed(example_body()), |it| it["attestations"][0]["jws"] = json!(jws));
        let verdict = if expected == "valid" { "attested" } else { "integrity_only" };
        assert_eq!(judged(&receipt, &trusted), format!("match / {expected} / {verdict}"), "{jws}");
    }
    for (attestations, expected) in [
        (json!(null), ""),
        (json!({}), ""),
        (json!([]), ""),
        (json!([1, null, "jws", {}, { "type": 1 }]), "unsupported, unsupported, unsupported, unsupported, unsupported"),
        (json!([{ "type": "jws" }, { "type": "jws", "jws": 1 }]), "invalid, invalid"),
        (json!([{ "jws": EXAMPLE_JWS }, { "type": "JWS", "jws": EXAMPLE_JWS }]), "unsupported, unsupported"),
    ] {
        let receipt = with(signed(example_body()), |it| it["attestations"] = attestations);
        assert_eq!(judged(&receipt, &trusted), format!("match / {expected} / integrity_only"));
    }
    // A key that is trusted under another id is not the one that is named.
    let renamed = PublicKeys::new([PublicKey::from_x("example-2", EXAMPLE_X).expect("a key")]).expect("one key");
    assert_eq!(judged(&signed(example_body()), &renamed), "match / unknown_key / integrity_only");
}
