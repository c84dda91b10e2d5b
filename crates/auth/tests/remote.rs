//! Keys from a URL: fetching, rotation, staleness.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use macp_auth::{Authenticator, Error, JwksSource, Presented, Refusal, Resolution, Settings};
use serde_json::json;

use support::server::Server;
use support::{EC, ED, RSA, accepted, claims, jwks, jwt, refused, shared};

const LONG: Duration = Duration::from_secs(3600);

async fn start_at(url: String, ttl: Duration, stale_max: Duration) -> Result<Authenticator, Error> {
    let jwt = jwt(JwksSource::Url { url, ttl, stale_max });
    Authenticator::start(Settings { jwt: Some(jwt), ..Settings::default() }).await
}

async fn start(server: &Server, ttl: Duration, stale_max: Duration) -> Authenticator {
    start_at(server.url(), ttl, stale_max).await.unwrap()
}

/// Asks until the answer is the expected one.
async fn wait_for(authenticator: &Authenticator, token: &str, expected: Option<Refusal>) {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let found = match authenticator.resolve(Presented::Bearer(token)).await {
            Resolution::Refused(refusal) => Some(refusal),
            _ => None,
        };
        if found == expected {
            return;
        }
        assert!(Instant::now() < patience, "still {found:?}, expected {expected:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn keys_are_fetched_once_and_then_kept() {
    let server = Server::start(&jwks(&[&ED.jwk, &EC.jwk])).await;
    let authenticator = start(&server, LONG, LONG).await;
    for _ in 0..20 {
        accepted(&authenticator, &ED.sign(&claims(json!({})))).await;
        accepted(&authenticator, &EC.sign_with(None, &claims(json!({})))).await;
    }
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_rotated_key_is_found_at_once_and_strangers_cause_few_fetches() {
    let server = Server::start(&jwks(&[&ED.jwk])).await;
    let authenticator = start(&server, LONG, LONG).await;
    let (old, new) = (ED.sign(&claims(json!({}))), EC.sign(&claims(json!({}))));
    accepted(&authenticator, &old).await;
    server.serve(&jwks(&[&EC.jwk]));
    // All who come with the new key wait for the one fetch.
    let all = tokio::join!(
        authenticator.resolve(Presented::Bearer(&new)),
        authenticator.resolve(Presented::Bearer(&new)),
        authenticator.resolve(Presented::Bearer(&new)),
    );
    for resolution in [all.0, all.1, all.2] {
        assert!(matches!(resolution, Resolution::Identity(_)), "{resolution:?}");
    }
    assert_eq!(server.requests(), 2);
    for number in 0..50 {
        let stranger = RSA.sign_with(Some(format!("stranger-{number}")), &claims(json!({})));
        assert_eq!(refused(&authenticator, &stranger).await, Refusal::Key);
    }
    // What was verified under the old keys went with them.
    assert_eq!(refused(&authenticator, &old).await, Refusal::Key);
    assert_eq!(server.requests(), 2, "at most one early fetch in 30 seconds");
}

#[tokio::test]
async fn keys_are_refreshed_in_the_background() {
    let server = Server::start(&jwks(&[&ED.jwk])).await;
    let authenticator = start(&server, Duration::from_millis(50), LONG).await;
    let (old, new) = (ED.sign(&claims(json!({}))), EC.sign_with(None, &claims(json!({}))));
    let first = shared(&authenticator, &old).await;
    assert_eq!(refused(&authenticator, &new).await, Refusal::Algorithm);
    while server.requests() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The same answer is the same keys, so what was verified is still known.
    assert!(Arc::ptr_eq(&first, &shared(&authenticator, &old).await));
    server.serve(&jwks(&[&EC.jwk]));
    // Without a key id nothing is fetched early, so this is the work of the timer.
    wait_for(&authenticator, &new, None).await;
}

#[tokio::test]
async fn a_reload_fetches_in_the_background() {
    let server = Server::start(&jwks(&[&ED.jwk])).await;
    let authenticator = start(&server, LONG, LONG).await;
    server.serve(&jwks(&[&EC.jwk]));
    assert_eq!(authenticator.reload().unwrap().keys, None);
    wait_for(&authenticator, &EC.sign_with(None, &claims(json!({}))), None).await;
}

#[tokio::test]
async fn stale_keys_serve_for_a_while_and_then_no_longer() {
    let server = Server::start(&jwks(&[&ED.jwk])).await;
    let authenticator = start(&server, Duration::from_millis(50), Duration::from_millis(1500)).await;
    let token = ED.sign(&claims(json!({})));
    let begin = Instant::now();
    server.fail();
    let requests = server.requests();
    while server.requests() < requests + 3 {
        assert!(begin.elapsed() < Duration::from_secs(20), "no more fetches");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if begin.elapsed() < Duration::from_millis(1000) {
        accepted(&authenticator, &token).await;
    }
    // Known tokens end with the keys, too.
    wait_for(&authenticator, &token, Some(Refusal::KeysUnavailable)).await;
    assert!(begin.elapsed() >= Duration::from_millis(1200), "{:?}", begin.elapsed());
    // A set without a usable key is no better than none.
    server.serve(&jwks(&[]));
    assert_eq!(refused(&authenticator, &token).await, Refusal::KeysUnavailable);
    server.serve(&jwks(&[&ED.jwk]));
    wait_for(&authenticator, &token, None).await;
}

#[tokio::test]
async fn without_keys_there_is_no_start() {
    let server = Server::start(&jwks(&[&ED.jwk])).await;
    let problem = |url: String| async { start_at(url, LONG, LONG).await.unwrap_err().to_string() };

    server.fail();
    let text = problem(format!("{}?secret=hunter2", server.url())).await;
    assert!(text.contains("cannot fetch the key set (JWKS) at http://127.0.0.1:"), "{text}");
    assert!(text.contains("503") && !text.contains("hunter2"), "{text}");

    server.serve("<html>hello</html>");
    assert!(problem(server.url()).await.contains("not valid JSON"), "HTML is no key set");
    server.serve(&" ".repeat(1024 * 1024 + 1));
    assert!(problem(server.url()).await.contains("larger than 1048576 bytes"));

    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = unused.local_addr().unwrap().port();
    drop(unused);
    let text = problem(format!("http://127.0.0.1:{port}/?secret=hunter2")).await;
    assert!(text.contains("refused") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn redirects_stay_where_keys_may_come_from() {
    let target = Server::start(&jwks(&[&ED.jwk])).await;
    let server = Server::start("").await;
    server.redirect(&target.url());
    let authenticator = start(&server, LONG, LONG).await;
    accepted(&authenticator, &ED.sign(&claims(json!({})))).await;
    for elsewhere in ["http://192.0.2.1/jwks", "https://127.0.0.1:1/jwks", "ftp://127.0.0.1/jwks", "file:///etc/passwd"]
    {
        server.redirect(elsewhere);
        let text = start_at(server.url(), LONG, LONG).await.unwrap_err().to_string();
        // Schemes that are not HTTP are not followed at all, so the redirect itself is the answer.
        assert!(text.contains("must not come from") || text.contains("302"), "{elsewhere}: {text}");
    }
    server.redirect(&server.url());
    let text = start_at(server.url(), LONG, LONG).await.unwrap_err().to_string();
    assert!(text.contains("redirects too often"), "{text}");
}

#[tokio::test]
async fn dropping_it_ends_the_fetching() {
    let server = Server::start(&jwks(&[&ED.jwk])).await;
    let authenticator = start(&server, Duration::from_millis(20), LONG).await;
    let begin = Instant::now();
    while server.requests() < 3 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it must be fetched again and again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(authenticator);
    // One may be under way still.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let requests = server.requests();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.requests(), requests);
}
