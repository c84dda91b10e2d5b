//! Credentials and configuration of any bytes: each gets an answer, and none but a good one is believed.

mod support;

use macp_auth::{Authenticator, Given, JwksSource, Presented, Resolution, Settings};
use proptest::prelude::*;
use serde_json::json;

use support::{ED, ISSUER, authenticator, claims, encode, jwks, jwt};

/// Text that is nearly JSON: its words and signs in any order, and any others.
fn nearly_json() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "\\",
            "null",
            "true",
            "1e999",
            "-1",
            "\"keys\"",
            "\"kty\"",
            "\"OKP\"",
            "\"crv\"",
            "\"Ed25519\"",
            "\"x\"",
            "\"n\"",
            "\"e\"",
            "\"RSA\"",
            "\"token\"",
            "\"tokens\"",
            "\"sender\"",
            "\"alg\"",
            "\"kid\"",
            "\"roles\"",
            "\"allowed_modes\"",
            "\"max_open_sessions\"",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn believed(authenticator: &Authenticator, token: &str) -> bool {
    let presented = [Presented::Bearer(token), Presented::Token(token)];
    presented.into_iter().any(|presented| {
        let resolution = runtime().block_on(authenticator.resolve(presented));
        matches!(resolution, Resolution::Identity(_))
    })
}

fn issuer() -> Authenticator {
    runtime().block_on(authenticator(&[&ED.jwk]))
}

proptest! {
    /// Nobody is let in by a text that no issuer signed.
    #[test]
    fn std_sec_6_an_arbitrary_token_is_refused(token in any::<String>(), parts in prop::collection::vec(any::<Vec<u8>>(), 0..5)) {
        let authenticator = issuer();
        let encoded: Vec<_> = parts.iter().map(|part| encode(part)).collect();
        prop_assert!(!believed(&authenticator, &token));
        prop_assert!(!believed(&authenticator, &encoded.join(".")));
    }

    /// Nor by a token of which a single byte was changed.
    #[test]
    fn std_sec_6_a_changed_token_is_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let authenticator = issuer();
        let token = ED.sign(&claims(json!({})));
        prop_assert!(believed(&authenticator, &token));
        let mut changed = token.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        let changed = String::from_utf8_lossy(&changed).into_owned();
        prop_assume!(changed != token);
        prop_assert!(!believed(&authenticator, &changed));
    }

    /// Headers and claims that are signed and make no sense are answered all the same.
    #[test]
    fn std_sec_6_signed_nonsense_is_answered(header in nearly_json(), claims in nearly_json()) {
        let authenticator = issuer();
        let proper = r#"{"alg":"EdDSA"}"#;
        for header in [header.as_str(), proper] {
            prop_assert!(!believed(&authenticator, &ED.sign_raw(header, &claims)));
        }
    }

    /// A key set of any text is taken or refused, and never believes a stranger's token.
    #[test]
    fn std_sec_6_an_arbitrary_key_set_is_taken_or_refused(text in nearly_json()) {
        let settings = Settings { jwt: Some(jwt(JwksSource::Inline(text.clone().into()))), ..Settings::default() };
        if let Ok(authenticator) = runtime().block_on(Authenticator::start(settings)) {
            let stranger = ED.sign(&claims(json!({})));
            prop_assert!(!believed(&authenticator, &stranger));
        }
        let given = Given { issuer: Some(ISSUER.into()), jwks_json: Some(text.into()), ..Given::default() };
        let _taken_or_not = given.settings();
    }

    /// So is a list of tokens.
    #[test]
    fn std_sec_7_an_arbitrary_list_of_tokens_is_taken_or_refused(text in nearly_json(), token in any::<String>()) {
        let given = Given { tokens_json: Some(text.clone().into()), ..Given::default() };
        if let Ok(settings) = given.settings()
            && let Ok(authenticator) = runtime().block_on(Authenticator::start(settings))
        {
            // Only what the list itself spells out is believed.
            prop_assert!(!believed(&authenticator, &token) || text.contains(&token));
        }
    }
}

/// The one that is good, beside all that are not: the tests above would pass if nothing were believed.
#[test]
fn a_good_token_is_believed() {
    assert!(jwks(&[&ED.jwk]).contains("Ed25519"));
    assert!(believed(&issuer(), &ED.sign(&claims(json!({})))));
}
