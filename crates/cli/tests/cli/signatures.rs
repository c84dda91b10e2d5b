//! Signed envelopes, from the keys file to the proof years later.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use macp_client::{Client, envelope};
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::signing::signing_bytes;
use macp_wire::v1::{Ack, Envelope};
use serde_json::json;

use crate::support::{Server, command, macp, run};

fn keys_json(keys: &[(&str, &str, &SigningKey)]) -> String {
    let keys = keys.iter().map(|(key_id, sender, key)| {
        let public_key = BASE64_STANDARD.encode(key.verifying_key().as_bytes());
        json!({ "key_id": key_id, "sender": sender, "public_key": public_key })
    });
    json!({ "keys": keys.collect::<Vec<_>>() }).to_string()
}

fn sign(envelope: &Envelope, key_id: &str, key: &SigningKey) -> EnvelopeSignature {
    let signature = key.sign(&signing_bytes(envelope)).to_bytes().to_vec().into();
    EnvelopeSignature { key_id: key_id.to_owned(), signature }
}

fn send(server: &Server, envelope: Envelope, signature: Option<EnvelopeSignature>) -> Ack {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(server.uri()).await.unwrap();
        match signature {
            Some(signature) => client.send_signed(envelope, signature).await.unwrap(),
            None => client.send(envelope).await.unwrap(),
        }
    })
}

#[test]
fn replay_6_required_signatures_are_checked_kept_and_proven_again() {
    let place = tempfile::tempdir().unwrap();
    let [alice, bob] = [7, 8].map(|byte| SigningKey::from_bytes(&[byte; 32]));
    let keys = place.path().join("keys.json");
    std::fs::write(&keys, keys_json(&[("k1", "alice", &alice)])).unwrap();
    let data = place.path().join("data");
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--signatures", "required", "--signing-keys-file"])
            .arg(&keys)
            .arg("--data")
            .arg(&data),
    );

    let start = envelope::start("s1", "decision", "alice", envelope::Start::default()).build();
    assert_eq!(send(&server, start.clone(), None).error.unwrap().code, "UNAUTHENTICATED");
    let forged = sign(&start, "k1", &bob);
    assert_eq!(send(&server, start.clone(), Some(forged)).error.unwrap().code, "UNAUTHENTICATED");
    let signature = sign(&start, "k1", &alice);
    assert!(send(&server, start, Some(signature)).ok);

    // Bob's key comes later, without a restart.
    let proposal = envelope::proposal("s1", "bob", "p1", "Deploy", "").build();
    let signature = sign(&proposal, "k2", &bob);
    assert!(!send(&server, proposal.clone(), Some(signature.clone())).ok);
    std::fs::write(&keys, keys_json(&[("k1", "alice", &alice), ("k2", "bob", &bob)])).unwrap();
    server.signal("HUP");
    assert_eq!(server.wait_for("reloaded")["keys"], 2);
    assert!(send(&server, proposal, Some(signature)).ok);
    let good = std::fs::read(&keys).unwrap();
    std::fs::write(&keys, "no keys").unwrap();
    server.signal("HUP");
    let line = server.wait_for("not reloaded, the old values stay");
    assert!(line["error"].as_str().unwrap().contains(keys.to_str().unwrap()), "{line}");
    std::fs::write(&keys, good).unwrap();

    let count = |value: serde_json::Value| {
        let number = |name: &str| value[name].as_u64().unwrap();
        (number("signatures_verified"), number("signatures_unchecked"))
    };
    assert_eq!(count(server.macp(&["--json", "verify", "s1"]).exits(0).value()), (2, 0));
    let here = ["--json", "verify", "s1", "--data", data.to_str().unwrap()];
    assert_eq!(count(macp(&here).exits(0).value()), (0, 2));
    let human = macp(&here[1..]).exits(0).stdout;
    assert!(human.ends_with("   signatures: 0 verified, 2 without a registered key\n"), "{human}");
    let with_keys = [here.as_slice(), &["--keys", keys.to_str().unwrap()]].concat();
    assert_eq!(count(macp(&with_keys).exits(0).value()), (2, 0));

    // A registry that gives the name to another key exposes the difference.
    std::fs::write(&keys, keys_json(&[("k1", "alice", &bob)])).unwrap();
    let found = macp(&with_keys).exits(1).value();
    assert_eq!(found["bad_sequence"], 1);
    std::fs::write(&keys, "no keys").unwrap();
    macp(&with_keys).exits(2);
    let started = run(command().args(["serve", "--memory", "--signing-keys-file"]).arg(&keys)).exits(2);
    assert!(started.stderr.contains("cannot read the signing keys"), "{started:?}");
}
