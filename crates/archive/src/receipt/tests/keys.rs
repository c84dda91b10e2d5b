//! Keys as they are configured and published.

use super::*;

/// The private key of RFC 8410, section 10.3, without and with its public part, and the public key of section 10.1.
const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
    -----END PRIVATE KEY-----\n";
const PEM_WITH_PUBLIC: &str = "-----BEGIN PRIVATE KEY-----\n\
    MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
    oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB\n\
    Z9w7lshQhqowtrbLDFw4rXAxZuE=\n\
    -----END PRIVATE KEY-----\n";
const PEM_X: &str = "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE";

/// The key of RFC 8037, appendix A.1.
const JWK_D: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
const JWK_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn jwk(change: impl FnOnce(&mut Value)) -> String {
    let mut jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "inside", "d": JWK_D, "x": JWK_X });
    change(&mut jwk);
    jwk.to_string()
}

fn without(member: &str) -> impl FnOnce(&mut Value) {
    move |jwk| drop(jwk.as_object_mut().expect("an object").remove(member))
}

#[test]
fn std_rcpt_5_a_signing_key_is_a_pem_text_with_a_kid_beside_it() {
    for text in [PEM.to_owned(), PEM_WITH_PUBLIC.to_owned(), PEM.replace('\n', "\r\n"), format!("\n  {PEM}\n\n")] {
        let key = SigningKey::parse(&text, Some("beside")).expect("a key");
        assert_eq!((key.kid(), key.public_key().x().as_str()), ("beside", PEM_X));
    }
    assert!(matches!(SigningKey::parse(PEM, None), Err(SigningKeyError::NoKid)));
    assert!(matches!(SigningKey::parse(PEM, Some("")), Err(SigningKeyError::Kid)));
    assert!(matches!(SigningKey::parse(PEM, Some(&"k".repeat(257))), Err(SigningKeyError::Kid)));
    assert!(SigningKey::parse(PEM, Some(&"k".repeat(256))).is_ok());
}

#[test]
fn std_rcpt_5_a_signing_key_is_a_private_jwk_whose_kid_agrees() {
    for (text, configured, kid) in [
        (jwk(|_| {}), None, "inside"),
        (jwk(|_| {}), Some("inside"), "inside"),
        (jwk(without("x")), None, "inside"),
        (jwk(without("kid")), Some("beside"), "beside"),
        (jwk(|jwk| (jwk["alg"], jwk["use"]) = (json!("EdDSA"), json!("sig"))), None, "inside"),
    ] {
        let key = SigningKey::parse(&text, configured).expect("a key");
        assert_eq!((key.kid(), key.public_key().x().as_str()), (kid, JWK_X));
    }
    let error = SigningKey::parse(&jwk(|_| {}), Some("beside")).unwrap_err();
    assert!(error.to_string().contains("\"inside\"") && error.to_string().contains("\"beside\""), "{error}");
    assert!(matches!(SigningKey::parse(&jwk(without("kid")), None), Err(SigningKeyError::NoKid)));
    assert!(matches!(SigningKey::parse(&jwk(|jwk| jwk["x"] = json!(PEM_X)), None), Err(SigningKeyError::PublicPart)));
    for (member, value) in [
        ("kty", json!("RSA")),
        ("crv", json!("X25519")),
        ("alg", json!("ES256")),
        ("use", json!("enc")),
        ("kid", json!("")),
        ("kid", json!(1)),
        ("d", json!(JWK_D.to_owned() + "=")),
        ("d", json!("AAAA")),
        ("d", json!(7)),
        ("x", json!("not base64")),
    ] {
        let error = SigningKey::parse(&jwk(|jwk| jwk[member] = value), None).unwrap_err();
        assert!(matches!(&error, SigningKeyError::Jwk(error) if error.member == member), "{member}: {error}");
    }
    for member in ["kty", "crv", "d"] {
        let error = SigningKey::parse(&jwk(without(member)), None).unwrap_err();
        assert!(matches!(&error, SigningKeyError::Jwk(error) if error.member == member), "{member}: {error}");
    }
}

#[test]
fn what_is_no_signing_key_is_told_apart() {
    let encrypted = PEM.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let elliptic = PEM.replace("PRIVATE", "EC PRIVATE");
    for (text, expected) in [
        ("", "neither"),
        ("secret", "neither"),
        (encrypted.as_str(), "encrypted"),
        (&elliptic, "no PKCS#8 PEM text"),
        (&PEM.replace("MC4C", "MC5C"), "no PKCS#8 PEM text"),
        ("{", "no JSON Web Key"),
        (r#"{"d":"secret","d":"secret"}"#, "no JSON Web Key"),
        (r#"{"d":"secret"}"#, "`kty` must be OKP"),
    ] {
        let error = SigningKey::parse(text, Some("kid")).unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}

#[test]
fn no_text_about_a_key_tells_the_key() {
    let seed = [7; 32];
    let key = signing_key(&seed, "shown");
    let shown = format!("{key:?} {key:#?}");
    assert!(shown.contains("shown"), "{shown}");
    assert_eq!(shown, "SigningKey { kid: \"shown\", .. } SigningKey {\n    kid: \"shown\",\n    ..\n}");
    let bad = [
        jwk(|jwk| jwk["x"] = json!(PEM_X)),
        jwk(|jwk| jwk["kty"] = json!(JWK_D)),
        jwk(|jwk| jwk["d"] = json!([JWK_D])),
        format!("{}x", jwk(|_| {})),
    ];
    for text in bad {
        let error = SigningKey::parse(&text, None).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(JWK_D) && !shown.contains(&JWK_D[..8]), "{shown}");
    }
}

#[test]
fn std_rcpt_5_published_keys_begin_with_the_active_one() {
    assert_eq!(PublicKeys::none().to_jwks(), r#"{"keys":[]}"#);
    let key = SigningKey::parse(PEM, Some("now")).expect("a key");
    let active = PublicKeys::none().with_active(&key).expect("one key");
    let published = |kid: &str, x: &str| {
        format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"{x}","alg":"EdDSA","use":"sig"}}"#)
    };
    assert_eq!(active.to_jwks(), format!(r#"{{"keys":[{}]}}"#, published("now", PEM_X)));

    // A retired key may come with members nobody needs, and the active one may be in the same file.
    let mut retired = parsed(&published("then", JWK_X));
    retired["key_ops"] = json!(["verify"]);
    let file = json!({ "keys": [retired, parsed(&published("now", PEM_X))] }).to_string();
    let all = PublicKeys::from_jwks(&file).expect("keys").with_active(&key).expect("two keys");
    let expected = format!(r#"{{"keys":[{},{}]}}"#, published("now", PEM_X), published("then", JWK_X));
    assert_eq!(all.to_jwks(), expected);
    assert_eq!(PublicKeys::from_jwks(&expected).expect("what is published can be read"), all);
    assert_eq!(all.iter().map(PublicKey::kid).collect::<Vec<_>>(), ["now", "then"]);

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keys.json");
    std::fs::write(&path, &file).expect("written");
    assert_eq!(PublicKeys::read(&path).expect("keys").len(), 2);
    let error = PublicKeys::read(&directory.path().join("none.json")).unwrap_err();
    assert!(error.to_string().contains("none.json"), "{error}");
}

#[test]
fn std_rcpt_5_a_public_set_with_anything_private_in_it_is_refused() {
    let public = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": JWK_X });
    let keys = |keys: &[&Value]| PublicKeys::from_jwks(&json!({ "keys": keys }).to_string());
    for member in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        let mut private = public.clone();
        private[member] = json!("secret");
        let error = keys(&[&public, &private]).unwrap_err();
        assert!(matches!(error, PublicKeysError::Private { member: found } if found == member), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
    assert!(matches!(PublicKeys::from_jwks(&jwk(|_| {})), Err(PublicKeysError::Private { member: "d" })));

    let mut other = public.clone();
    other["x"] = json!(PEM_X);
    for twice in [&public, &other] {
        let error = keys(&[&public, twice]).unwrap_err();
        assert!(matches!(&error, PublicKeysError::Twice { kid } if kid == "k"), "{error}");
    }
    let active = SigningKey::parse(PEM, Some("k")).expect("a key");
    let error = keys(&[&public]).expect("one key").with_active(&active).unwrap_err();
    assert!(matches!(error, PublicKeysError::Twice { .. }), "{error}");

    // Zero is a point of small order, and two is no point at all.
    let [weak, off_curve] = [0, 2].map(|lowest| {
        let mut point = [0; 32];
        point[0] = lowest;
        base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, point)
    });
    for (member, value) in [
        ("kty", json!("RSA")),
        ("crv", json!(null)),
        ("kid", json!(null)),
        ("x", json!("AAAA")),
        ("x", json!(weak)),
        ("x", json!(off_curve)),
        ("use", json!("enc")),
        ("alg", json!("RS256")),
    ] {
        let mut bad = public.clone();
        bad["kid"] = json!("bad");
        bad[member] = value;
        let error = keys(&[&public, &bad]).unwrap_err();
        let PublicKeysError::Key { number: 2, source } = &error else { panic!("{error:?}") };
        assert_eq!(source.member, member);
    }
    for text in ["[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[1]}"#, "1"] {
        assert!(matches!(PublicKeys::from_jwks(text), Err(PublicKeysError::Shape)), "{text}");
    }
    assert!(matches!(PublicKeys::from_jwks("{"), Err(PublicKeysError::Json(_))));
}
