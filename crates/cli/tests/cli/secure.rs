//! A server that authenticates and speaks TLS, as its operator and its users see it.

use std::path::Path;

use serde_json::{Value, json};

use crate::certificates::{Certificates, text};
use crate::support::{Run, Server, command, run};

const ALICE: &str = "alice-secret-0123456789";
const BOB: &str = "bob-secret-0123456789";

fn write_tokens(path: &Path, tokens: &[(&str, &str)]) {
    let entries: Vec<Value> = tokens.iter().map(|(token, sender)| json!({"token": token, "sender": sender})).collect();
    std::fs::write(path, json!(entries).to_string()).unwrap();
}

/// A server in memory with static tokens, and whatever else is said.
fn serve(tokens: &Path, more: &[&str]) -> Server {
    let tokens = text(tokens);
    let base = ["serve", "--listen", "127.0.0.1:0", "--memory", "--auth-tokens-file", &tokens];
    Server::with(command().args(base).args(more))
}

fn list(server: &str, more: &[&str]) -> Run {
    run(command().args(["session", "list", "--server", server]).args(more))
}

#[test]
fn tls_and_a_token_let_in_and_every_mistake_is_told_with_what_to_do() {
    let certificates = Certificates::new();
    let tokens = certificates.path("tokens.json");
    write_tokens(&tokens, &[(ALICE, "alice")]);
    let (certificate, key, ca) =
        (certificates.file("server.pem"), certificates.file("server.key"), certificates.file("ca.pem"));
    let server = serve(&tokens, &["--tls-cert-path", &certificate, "--tls-key-path", &key]);
    let secure = format!("https://{}", server.address);
    list(&secure, &["--ca", &ca, "--token", ALICE]).exits(0);
    // A name without a scheme, and variables instead of flags.
    run(command().args(["session", "list", "--server", &server.address]).env("MACP_CA", &ca).env("MACP_TOKEN", ALICE))
        .exits(0);

    let nameless = list(&secure, &["--ca", &ca]).exits(2);
    assert!(nameless.stderr.contains("UNAUTHENTICATED") && nameless.stderr.contains("--token"), "{nameless:?}");
    let unknown = list(&secure, &["--ca", &ca, "--token", BOB]).exits(2);
    assert_eq!(unknown.stderr, nameless.stderr, "STD-SEC-15");
    let distrust = list(&secure, &["--token", ALICE]).exits(2);
    assert!(distrust.stderr.contains("cannot connect to https://"), "{distrust:?}");
    let clear = list(&server.uri(), &["--token", ALICE]).exits(2);
    assert!(clear.stderr.contains("use https://"), "{clear:?}");
    let mixed = list(&server.uri(), &["--token", ALICE, "--ca", &ca]).exits(2);
    assert!(mixed.stderr.contains("is an address without TLS, but certificates are given"), "{mixed:?}");
    let missing = list(&secure, &["--ca", "/nowhere/ca.pem"]).exits(2);
    assert!(missing.stderr.contains("cannot read /nowhere/ca.pem"), "{missing:?}");
    for run in [nameless, unknown, distrust, clear, mixed] {
        assert!(!run.stderr.contains(ALICE) && !run.stderr.contains(BOB), "{run:?}");
    }

    let plain = serve(&tokens, &[]);
    let wrong = list(&format!("https://{}", plain.address), &["--ca", &ca, "--token", ALICE]).exits(2);
    assert!(wrong.stderr.contains("the server does not speak TLS; use http://"), "{wrong:?}");
}

#[test]
fn a_server_may_ask_clients_for_certificates() {
    let (certificates, stranger) = (Certificates::new(), Certificates::new());
    let tokens = certificates.path("tokens.json");
    write_tokens(&tokens, &[(ALICE, "alice")]);
    let (certificate, key, ca) =
        (certificates.file("server.pem"), certificates.file("server.key"), certificates.file("ca.pem"));
    let tls = ["--tls-cert-path", &certificate, "--tls-key-path", &key, "--tls-client-ca-path", &ca];
    let server = serve(&tokens, &tls);
    let secure = format!("https://{}", server.address);
    let base = ["--ca", &ca, "--token", ALICE];
    let with = |certificates: &Certificates| {
        let (certificate, key) = (certificates.file("client.pem"), certificates.file("client.key"));
        list(&secure, &[&base[..], &["--client-cert", &certificate, "--client-key", &key]].concat())
    };
    with(&certificates).exits(0);
    with(&stranger).exits(2);
    list(&secure, &base).exits(2);
    let half = list(&secure, &[&base[..], &["--client-cert", &certificates.file("client.pem")]].concat()).exits(2);
    assert!(half.stderr.contains("--client-key"), "{half:?}");
}

#[test]
fn files_that_cannot_be_used_stop_the_start_by_name() {
    let certificates = Certificates::new();
    let tokens = certificates.path("tokens.json");
    write_tokens(&tokens, &[(ALICE, "alice")]);
    let (certificate, key) = (certificates.file("server.pem"), certificates.file("server.key"));
    let fails = |more: &[&str], expected: &str| {
        let failed = run(command().args(["serve", "--listen", "127.0.0.1:0", "--memory"]).args(more)).exits(2);
        assert!(failed.stderr.contains(expected) && !failed.stderr.contains(ALICE), "{expected}: {failed:?}");
    };
    fails(&["--tls-cert-path", &key, "--tls-key-path", &certificate], "server.key holds no PEM block");
    fails(&["--egress-ca-path", &key], "server.key holds no PEM block");
    fails(&["--tls-cert-path", "/nowhere/c.pem", "--tls-key-path", &key], "cannot read /nowhere/c.pem");
    fails(&["--tls-cert-path", &certificate, "--tls-key-path", &certificates.file("client.key")], "TLS");
    fails(&["--auth-tokens-file", "/nowhere/t.json"], "/nowhere/t.json");
    std::fs::write(&tokens, format!(r#"[{{"token":"{ALICE}","sender":"alice","typo":true}}]"#)).unwrap();
    fails(&["--auth-tokens-file", &text(&tokens)], "entry 1 (sender \"alice\")");
    std::fs::write(&tokens, format!("[{{\"token\": \"{ALICE}\" \"sender\"")).unwrap();
    fails(&["--auth-tokens-file", &text(&tokens)], "is not valid JSON");
    fails(&["--auth-issuer", "https://issuer.example"], "MACP_AUTH_JWKS_URL");
    fails(&["--auth-issuer", "https://i.example", "--auth-jwks-url", "http://127.0.0.1:1/jwks"], "cannot fetch");
    fails(&["--listen", "0.0.0.0:0", "--auth-tokens-json", "x"], "--auth-tokens-json");
}

#[test]
fn sighup_rotates_tokens_and_a_bad_file_leaves_them() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.json");
    write_tokens(&tokens, &[(ALICE, "alice")]);
    let server = serve(&tokens, &[]);
    let code = |token: &str| list(&server.uri(), &["--token", token]).code;
    assert_eq!((code(ALICE), code(BOB)), (Some(0), Some(2)));

    write_tokens(&tokens, &[(BOB, "bob")]);
    server.signal("HUP");
    let line = server.wait_for("reloaded");
    assert_eq!(line["tokens"], 1, "{line}");
    assert!(line["unchanged"].as_str().unwrap().contains("restart"), "{line}");
    assert_eq!((code(ALICE), code(BOB)), (Some(2), Some(0)));

    // The name of the executor of plans is nobody else's, and whoever gives it away is told.
    write_tokens(&tokens, &[(ALICE, "macp-executor"), (BOB, "bob")]);
    server.signal("HUP");
    let reserved = "a static token has the name under which the runtime itself reports runs, and is never accepted; give \
                    it another sender, or set execution_identity";
    assert_eq!(server.wait_for(reserved)["sender"], "macp-executor");
    server.wait_for("reloaded");
    assert_eq!((code(ALICE), code(BOB)), (Some(2), Some(0)));

    std::fs::write(&tokens, "[{]").unwrap();
    server.signal("HUP");
    let line = server.wait_for("not reloaded, the old values stay");
    assert!(line["error"].as_str().unwrap().contains("tokens.json"), "{line}");
    assert_eq!((code(ALICE), code(BOB)), (Some(2), Some(0)));
    assert!(server.terminate().success());
}

/// Limits that any session could use up in an agent's name are told to the operator.
#[test]
fn limits_of_agents_that_sessions_get_around_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.json");
    write_tokens(&tokens, &[(ALICE, "alice")]);
    let config = directory.path().join("macp.toml");
    std::fs::write(&config, "[scopes.team]\nagents = [\"alice\"]\nskills = \"*\"\n").unwrap();
    let limits = ["--agent-cents-per-day", "5"];
    let config = text(&config);
    let scoped = [&limits[..], &["--config", &config]].concat();
    for (more, told) in [(&limits[..], true), (&scoped, false), (&[], false)] {
        let server = serve(&tokens, more);
        server.signal("HUP");
        let log = server.log_to("reloaded");
        let warned = log.iter().any(|line| line["message"].as_str().unwrap_or_default().contains("no scopes"));
        assert_eq!(warned, told, "{more:?}: {log:?}");
        assert!(server.terminate().success());
    }
}

/// Whatever is logged, at the highest level there is for our own code, no secret is in it.
#[test]
fn secrets_are_in_no_log() {
    let seed = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": "k1", "d": seed}).to_string();
    let list_of_tokens = json!([{"token": ALICE, "sender": "alice"}]).to_string();
    let mut command = command();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--memory", "--runtime-id", "here", "--log", "debug"])
        .env("MACP_AUTH_TOKENS_JSON", list_of_tokens)
        .env("MACP_RECEIPT_SIGNING_KEY", jwk);
    let server = Server::with(&mut command);
    list(&server.uri(), &["--token", ALICE]).exits(0);
    list(&server.uri(), &["--token", BOB]).exits(2);
    list(&server.uri(), &["--token", "not.a.token"]).exits(2);
    let start = ["session", "start", "c1", "--sender", "alice", "--token", ALICE];
    server.macp(&start).exits(0);
    server.signal("HUP");
    let log = server.log_to("reloaded");
    assert!(log.len() > 5, "{log:#?}");
    for line in log {
        let line = line.to_string();
        assert!([ALICE, BOB, seed].iter().all(|secret| !line.contains(secret)), "{line}");
    }
}
