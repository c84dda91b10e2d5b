//! No public type shows a secret in its `Debug` text.

mod support;

use std::time::Duration;

use macp_auth::{Authenticator, Given, JwksSource, Presented, Secret, Settings, TokenSource};
use serde_json::json;

use support::{ED, Signer, accepted, claims, jwks, jwt};

const SECRET: &str = "hunter2hunter2hunter2hunter2hunter2";

/// All the forms it could show up in.
fn check(text: &str) {
    let encoded = support::encode(SECRET.as_bytes());
    let bytes = format!("{:?}", SECRET.as_bytes());
    for form in ["hunter2", encoded.as_str(), bytes.trim_matches(['[', ']'])] {
        assert!(!text.contains(form), "{text}");
    }
}

#[tokio::test]
async fn debug_shows_no_secret() {
    let tokens = json!([{"token": SECRET, "sender": "alice"}]).to_string();
    let keys = jwks(&[&Signer::shared("s", SECRET.as_bytes()).jwk, &ED.jwk]);
    let url = format!("https://user:{SECRET}@i.example/{}?key={SECRET}#{SECRET}", "jwks");
    check(&format!("{:?}", Secret::new(SECRET)));
    check(&format!("{:#?}", TokenSource::Inline(tokens.as_str().into())));
    check(&format!("{:?}", [Presented::Bearer(SECRET), Presented::Token(SECRET)]));
    let remote = JwksSource::Url { url: url.clone(), ttl: Duration::ZERO, stale_max: Duration::ZERO };
    check(&format!("{remote:#?}"));
    let given = Given {
        jwks_json: Some(keys.as_str().into()),
        jwks_url: Some(url.as_str().into()),
        tokens_json: Some(tokens.as_str().into()),
        ..Given::default()
    };
    check(&format!("{given:#?}"));
    check(&format!("{:#?}", given.settings().unwrap_err()));

    let mut jwt = jwt(JwksSource::Inline(keys.into()));
    jwt.algorithms.insert(macp_auth::Algorithm::HS256);
    let settings = Settings { jwt: Some(jwt), tokens: Some(TokenSource::Inline(tokens.into())), ..Settings::default() };
    check(&format!("{settings:#?}"));
    let authenticator = Authenticator::start(settings).await.unwrap();
    accepted(&authenticator, SECRET).await;
    let token = ED.sign(&claims(json!({})));
    accepted(&authenticator, &token).await;
    let text = format!("{authenticator:#?} {:#?}", authenticator.resolve(Presented::Bearer(&token)).await);
    check(&text);
    assert!(!text.contains(&token), "{text}");
}
