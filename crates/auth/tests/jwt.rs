//! JSON Web Tokens of each algorithm, good and bad (STD-SEC-6).

mod support;

use std::sync::Arc;

use macp_auth::{Algorithm, Authenticator, JwksSource, JwtSettings, Modes, Presented, Refusal, Resolution, Settings};
use serde_json::{Value, json};

use support::{
    EC, ED, ISSUER, OTHER_RSA, RSA, Signer, accepted, authenticator, claims, encode, jwks, jwt, now, refused, shared,
};

async fn all() -> Authenticator {
    authenticator(&[&RSA.jwk, &EC.jwk, &ED.jwk]).await
}

#[tokio::test]
async fn every_default_algorithm_is_accepted_with_and_without_a_key_id() {
    let authenticator = all().await;
    for signer in [&*RSA, &*EC, &*ED] {
        for kid in [Some(signer.kid()), None] {
            let identity = accepted(&authenticator, &signer.sign_with(kid, &claims(json!({})))).await;
            assert_eq!(identity.sender, "alice");
            assert!(identity.authenticated && identity.can_start_sessions);
            assert_eq!(identity.allowed_modes, Modes::All);
            assert!(!identity.can_manage_mode_registry && !identity.is_observer);
            assert!(!identity.may_cancel && !identity.may_suspend);
            assert_eq!(identity.max_open_sessions, None);
        }
    }
}

#[tokio::test]
async fn keys_without_an_id_are_tried_for_any_token() {
    let authenticator = authenticator(&[&OTHER_RSA.without_kid(), &RSA.without_kid()]).await;
    accepted(&authenticator, &RSA.sign(&claims(json!({})))).await;
    accepted(&authenticator, &OTHER_RSA.sign_with(None, &claims(json!({})))).await;
}

#[tokio::test]
async fn every_claim_is_checked() {
    let authenticator = all().await;
    let now = now();
    let cases = [
        (json!({"exp": now - 61}), Refusal::Expired),
        (json!({"exp": 0}), Refusal::Expired),
        (json!({"exp": null}), Refusal::Claims),
        (json!({"exp": "never"}), Refusal::Claims),
        (json!({"exp": -1}), Refusal::Claims),
        (json!({"exp": 1e300}), Refusal::Claims),
        (json!({"nbf": now + 90}), Refusal::NotYetValid),
        (json!({"nbf": "later"}), Refusal::Claims),
        (json!({"iss": "https://other.example/"}), Refusal::Issuer),
        (json!({"iss": "https://issuer.example"}), Refusal::Issuer),
        (json!({"iss": null}), Refusal::Claims),
        (json!({"iss": [ISSUER]}), Refusal::Claims),
        (json!({"aud": "other"}), Refusal::Audience),
        (json!({"aud": []}), Refusal::Audience),
        (json!({"aud": null}), Refusal::Claims),
        (json!({"aud": ["macp-runtime", 7]}), Refusal::Claims),
        (json!({"sub": null}), Refusal::Subject),
        (json!({"sub": ""}), Refusal::Subject),
        (json!({"sub": 7}), Refusal::Subject),
        (json!({"sub": "a".repeat(257)}), Refusal::Subject),
    ];
    for (changes, expected) in cases {
        assert_eq!(refused(&authenticator, &ED.sign(&claims(changes.clone()))).await, expected, "{changes}");
    }
}

#[tokio::test]
async fn clocks_may_differ_by_a_minute() {
    let authenticator = all().await;
    for changes in [
        json!({"exp": now() - 50}),
        json!({"exp": now() as f64 + 0.5}),
        json!({"nbf": now() + 50}),
        json!({"aud": ["other", "macp-runtime"]}),
        json!({"sub": "a".repeat(256)}),
    ] {
        accepted(&authenticator, &ED.sign(&claims(changes))).await;
    }
}

/// The identity is the very same one, so nothing was verified a second time.
#[tokio::test]
async fn a_signature_is_not_checked_for_every_message() {
    let authenticator = all().await;
    let token = RSA.sign(&claims(json!({})));
    let first = shared(&authenticator, &token).await;
    assert!(Arc::ptr_eq(&first, &shared(&authenticator, &token).await));
    let other = RSA.sign(&claims(json!({"jti": "other"})));
    assert!(!Arc::ptr_eq(&first, &shared(&authenticator, &other).await));
}

#[tokio::test]
async fn a_known_token_is_refused_once_it_has_expired() {
    let authenticator = all().await;
    let token = ED.sign(&claims(json!({"exp": now() - 58})));
    accepted(&authenticator, &token).await;
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while let Resolution::Identity(_) = authenticator.resolve(Presented::Bearer(&token)).await {
        assert!(std::time::Instant::now() < patience, "still good");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(refused(&authenticator, &token).await, Refusal::Expired);
}

#[tokio::test]
async fn a_signature_must_be_good_and_by_a_known_key() {
    let authenticator = all().await;
    let good = claims(json!({}));
    // Signed by a stranger who claims to be a known key.
    let forged = OTHER_RSA.sign_with(Some(RSA.kid()), &good);
    assert_eq!(refused(&authenticator, &forged).await, Refusal::Signature);
    assert_eq!(refused(&authenticator, &OTHER_RSA.sign_with(None, &good)).await, Refusal::Signature);
    assert_eq!(refused(&authenticator, &OTHER_RSA.sign(&good)).await, Refusal::Key);
    // A key of another kind than the header says.
    let mixed = ED.sign_with(Some(RSA.kid()), &good);
    assert_eq!(refused(&authenticator, &mixed).await, Refusal::Algorithm);
    for signer in [&*RSA, &*EC, &*ED] {
        let token = signer.sign(&good);
        accepted(&authenticator, &token).await;
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let other = encode(claims(json!({"sub": "mallory"})).to_string().as_bytes());
        assert_eq!(refused(&authenticator, &format!("{header}.{other}.{signature}")).await, Refusal::Signature);
        assert_eq!(refused(&authenticator, &format!("{signed}.")).await, Refusal::Signature);
        assert_eq!(refused(&authenticator, &format!("{signed}.{}", encode(&[0; 64]))).await, Refusal::Signature);
    }
}

#[tokio::test]
async fn unsigned_tokens_are_never_taken() {
    let authenticator = all().await;
    let payload = encode(claims(json!({})).to_string().as_bytes());
    for algorithm in ["none", "None", "NONE", ""] {
        let header = encode(json!({"alg": algorithm, "typ": "JWT"}).to_string().as_bytes());
        for signature in ["", "AAAA"] {
            let token = format!("{header}.{payload}.{signature}");
            assert_eq!(refused(&authenticator, &token).await, Refusal::Algorithm, "{algorithm:?}");
        }
    }
}

/// The public key is public: nobody may use it as if it were a shared secret.
#[tokio::test]
async fn a_public_key_is_no_shared_secret() {
    let jwt = JwtSettings {
        algorithms: [Algorithm::RS256, Algorithm::EdDSA, Algorithm::HS256].into(),
        ..jwt(JwksSource::Inline(jwks(&[&RSA.jwk, &ED.jwk, &Signer::shared("hs-1", &[7; 32]).jwk]).into()))
    };
    let lenient = Authenticator::start(Settings { jwt: Some(jwt), ..Settings::default() }).await.unwrap();
    let strict = all().await;
    let decode = |text: &Value| {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap()
    };
    let secrets = [
        (RSA.kid(), decode(&RSA.jwk["n"])),
        (RSA.kid(), RSA.jwk["n"].as_str().unwrap().as_bytes().to_vec()),
        (RSA.kid(), RSA.jwk.to_string().into_bytes()),
        (ED.kid(), decode(&ED.jwk["x"])),
    ];
    for (kid, secret) in secrets {
        let forger = Signer::shared("x", &secret);
        for kid in [Some(kid), None, Some("hs-1".to_owned())] {
            let token = forger.sign_with(kid, &claims(json!({})));
            assert_eq!(refused(&strict, &token).await, Refusal::Algorithm);
            let refusal = refused(&lenient, &token).await;
            assert!(matches!(refusal, Refusal::Algorithm | Refusal::Signature), "{refusal:?}");
        }
    }
}

#[tokio::test]
async fn shared_secrets_work_only_by_choice() {
    let signer = Signer::shared("hs-1", b"a secret of at least thirty-two bytes");
    let keys = JwksSource::Inline(jwks(&[&signer.jwk, &RSA.jwk]).into());
    let chosen = JwtSettings { algorithms: [Algorithm::HS256].into(), ..jwt(keys.clone()) };
    let chosen = Authenticator::start(Settings { jwt: Some(chosen), ..Settings::default() }).await.unwrap();
    accepted(&chosen, &signer.sign(&claims(json!({})))).await;
    assert_eq!(refused(&chosen, &RSA.sign(&claims(json!({})))).await, Refusal::Algorithm);
    let default = Authenticator::start(Settings { jwt: Some(jwt(keys)), ..Settings::default() }).await.unwrap();
    assert_eq!(refused(&default, &signer.sign(&claims(json!({})))).await, Refusal::Algorithm);
}

#[tokio::test]
async fn what_is_malformed_costs_little_and_gives_nothing() {
    let authenticator = all().await;
    let good = claims(json!({})).to_string();
    let twice = good.replacen('{', "{\"sub\":\"mallory\",", 1);
    let tokens = [
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        "a.b".to_owned(),
        "a.b.c".to_owned(),
        "e30.e30.".to_owned(),
        format!("{}.", ED.sign(&claims(json!({})))),
        format!(".{}", ED.sign(&claims(json!({})))),
        format!("{}=", ED.sign(&claims(json!({})))),
        ED.sign_raw(r#"{"alg":"EdDSA","crit":["exp"]}"#, &good),
        ED.sign_raw(r#"{"alg":"EdDSA","typ":"logout+jwt"}"#, &good),
        ED.sign_raw(r#"{"alg":"EdDSA","kid":7}"#, &good),
        ED.sign_raw(r#"{"alg":"EdDSA","alg":"none"}"#, &good),
        ED.sign_raw(r#"{"alg":"EdDSA"}"#, "[]"),
        ED.sign_raw(r#"{"alg":"EdDSA"}"#, &twice),
        ED.sign_raw(r#"{"alg":"EdDSA"}"#, &"[".repeat(4000)),
    ];
    for token in tokens {
        assert_eq!(refused(&authenticator, &token).await, Refusal::Malformed, "{token}");
    }
    let long = ED.sign(&claims(json!({"padding": "x".repeat(16 * 1024)})));
    assert_eq!(refused(&authenticator, &long).await, Refusal::TooLong);
    for header in [r#"{"alg":"EdDSA","typ":"at+JWT"}"#, r#"{"alg":"Ed25519"}"#, r#"{"alg":"EdDSA","jku":"https://x"}"#]
    {
        accepted(&authenticator, &ED.sign_raw(header, &good)).await;
    }
}

#[tokio::test]
async fn scopes_are_read_and_an_empty_list_of_modes_is_none() {
    let authenticator = all().await;
    let scoped = |scopes: Value| ED.sign(&claims(json!({"macp_scopes": scopes})));
    let token = scoped(json!({"allowed_modes": ["macp.mode.decision.v1"], "can_start_sessions": false,
        "max_open_sessions": 3, "can_manage_mode_registry": true, "is_observer": true, "roles": ["lead"]}));
    let identity = accepted(&authenticator, &token).await;
    assert!(
        identity.allowed_modes.allow("macp.mode.decision.v1") && !identity.allowed_modes.allow("macp.mode.task.v1")
    );
    assert!(!identity.can_start_sessions && identity.can_manage_mode_registry && identity.is_observer);
    assert_eq!(identity.max_open_sessions, Some(3));
    assert!(identity.roles.contains("lead"));

    let none = accepted(&authenticator, &scoped(json!({"allowed_modes": []}))).await;
    assert!(!none.allowed_modes.allow("macp.mode.decision.v1"));
    assert_eq!(accepted(&authenticator, &scoped(json!({}))).await.allowed_modes, Modes::All);

    let bad = [
        json!(null),
        json!("all"),
        json!({"allowed_mode": ["x"]}),
        json!({"allowed_modes": null}),
        json!({"allowed_modes": "x"}),
        json!({"allowed_modes": [7]}),
        json!({"is_observer": "false"}),
        json!({"max_open_sessions": -1}),
        json!({"roles": "lead"}),
    ];
    for scopes in bad {
        // Written out, since a null would take the claim away.
        let mut claims = claims(json!({}));
        claims["macp_scopes"] = scopes.clone();
        assert_eq!(refused(&authenticator, &ED.sign(&claims)).await, Refusal::Scopes, "{scopes}");
    }
}

#[tokio::test]
async fn key_sets_are_checked_when_they_are_read() {
    let start = |keys: String| async move {
        let jwt = jwt(JwksSource::Inline(keys.into()));
        Authenticator::start(Settings { jwt: Some(jwt), ..Settings::default() }).await
    };
    let with = |signer: &Signer, name: &str, value: Value| {
        let mut jwk = signer.jwk.clone();
        jwk[name] = value;
        jwk
    };
    let short = encode(&[0xff; 128]);
    let bad = [
        ("{".to_owned(), "not valid JSON"),
        ("[]".to_owned(), "must be an object whose member `keys` is a list"),
        (jwks(&[]), "none of its keys can be used"),
        (jwks(&[&json!(7)]), "key 1: it is not an object"),
        (jwks(&[&with(&RSA, "use", json!("enc"))]), "not meant for signatures"),
        (jwks(&[&with(&RSA, "key_ops", json!(["sign"]))]), "not meant for verifying"),
        (jwks(&[&with(&RSA, "alg", json!("RS512"))]), "algorithm (alg)"),
        (jwks(&[&with(&RSA, "alg", json!("ES256"))]), "algorithm (alg)"),
        (jwks(&[&with(&RSA, "d", json!("AQAB"))]), "private part"),
        (jwks(&[&with(&RSA, "n", json!(short))]), "2048 to 8192 bits"),
        (jwks(&[&with(&RSA, "n", json!("not base64!"))]), "unpadded base64url"),
        (jwks(&[&with(&EC, "crv", json!("P-521"))]), "its curve"),
        (jwks(&[&with(&EC, "x", json!(encode(&[1; 32])))]), "no point of P-256"),
        (jwks(&[&with(&ED, "x", json!(encode(&[1; 31])))]), "32 bytes"),
        (jwks(&[&with(&ED, "kty", json!("XYZ"))]), "its type (kty)"),
        (jwks(&[&Signer::shared("s", &[1; 32]).jwk]), "HS256 is not among the allowed algorithms"),
    ];
    for (keys, expected) in bad {
        let text = start(keys.clone()).await.expect_err(&keys).to_string();
        assert!(text.contains(expected), "{text}\n{keys}");
        assert!(text.contains("the inline key set (JWKS)"), "{text}");
    }
    // A key for another purpose beside a good one does no harm.
    let authenticator = start(jwks(&[&with(&RSA, "use", json!("enc")), &ED.jwk])).await.unwrap();
    accepted(&authenticator, &ED.sign(&claims(json!({})))).await;

    let secret = |bytes: usize| {
        let keys = JwksSource::Inline(jwks(&[&Signer::shared("s", &vec![1; bytes]).jwk, &RSA.jwk]).into());
        let algorithms = [Algorithm::HS256, Algorithm::RS256].into();
        Authenticator::start(Settings { jwt: Some(JwtSettings { algorithms, ..jwt(keys) }), ..Settings::default() })
    };
    let text = secret(31).await.unwrap_err().to_string();
    assert!(text.contains("no usable key of type oct") && text.contains("at least 32 bytes"), "{text}");
    assert!(secret(32).await.is_ok());
}
