//! Who is believed: JSON Web Tokens, static tokens, their rotation, and what each call asks for.

use std::sync::{Arc, Mutex};

use macp_auth::Given;
use macp_wire::v1::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Status};

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

#[tokio::test]
async fn std_sec_6_only_proper_tokens_of_the_issuer_are_believed() {
    let edge = Edge::believing(issuer()).await;
    let now = now_ms() / 1000;
    let header = |alg: &str| json!({"alg": alg, "kid": "k1"});
    let stranger = IssuerKey { kid: "k1", number: 2 };
    let good = KEY.token("alice", json!({}));
    let (signed, _) = good.rsplit_once('.').expect("a signature");
    let mut tampered = claims("alice", json!({}));
    tampered["sub"] = json!("mallory");
    let forged = KEY.sign(&header("EdDSA"), &tampered);
    let (_, signature) = good.rsplit_once('.').expect("a signature");
    let (forged, _) = forged.rsplit_once('.').expect("a signature");

    for (what, token) in [
        ("as it should be", good.clone()),
        ("expired within the leeway", KEY.token("alice", json!({"exp": now - 30}))),
        ("for several audiences", KEY.token("alice", json!({"aud": ["other", "macp-runtime"]}))),
        ("without a kid", KEY.sign(&json!({"alg": "EdDSA"}), &claims("alice", json!({})))),
    ] {
        edge.list_as(&token).await.unwrap_or_else(|status| panic!("{what}: {status:?}"));
    }
    for (what, token) in [
        ("expired", KEY.token("alice", json!({"exp": now - 120}))),
        ("without an end", KEY.token("alice", json!({"exp": null}))),
        ("not valid yet", KEY.token("alice", json!({"nbf": now + 600}))),
        ("of another issuer", KEY.token("alice", json!({"iss": "https://other.example"}))),
        ("of an issuer spelled otherwise", KEY.token("alice", json!({"iss": format!("{ISSUER}/")}))),
        ("for another audience", KEY.token("alice", json!({"aud": "other"}))),
        ("without a sender", KEY.token("", json!({}))),
        (
            "unsigned",
            format!(
                "{}.",
                KEY.sign(&json!({"alg": "none"}), &claims("alice", json!({}))).rsplit_once('.').expect("a signature").0
            ),
        ),
        ("said to be unsigned", KEY.sign(&header("none"), &claims("alice", json!({})))),
        ("of an algorithm that is not allowed", KEY.sign(&header("HS256"), &claims("alice", json!({})))),
        ("of an algorithm of another key", KEY.sign(&header("ES256"), &claims("alice", json!({})))),
        ("signed by a stranger", stranger.token("alice", json!({}))),
        ("of an unknown key", IssuerKey { kid: "k9", ..KEY }.token("alice", json!({}))),
        ("with other claims than were signed", format!("{forged}.{signature}")),
        ("without its signature", format!("{signed}.")),
        ("with scopes nobody can read", KEY.token("alice", json!({"macp_scopes": {"can_start_sessions": "yes"}}))),
        ("of no form at all", "a.b.c".to_owned()),
    ] {
        let status = refused(edge.list_as(&token).await, Code::Unauthenticated, "UNAUTHENTICATED");
        assert!(!status.message().contains(&token), "{what}: {status:?}");
        let ack = edge.send_as(&token, std_start(&sid(1), DECISION, &start_payload())).await;
        assert_eq!((ack.ok, ack_code(&ack)), (false, "UNAUTHENTICATED"), "{what}: {ack:?}");
    }
    edge.accept_as(&good, std_start(&sid(1), DECISION, &start_payload())).await;
    assert_eq!(edge.session_as(&good, &sid(1)).await.expect("alice's own").initiator, "alice");
    edge.shut_down().await;
}

/// STD-SEC-2, STD-SEC-3: where tokens are looked for, and that nothing falls through.
#[tokio::test]
async fn std_sec_3_a_failed_json_web_token_is_not_tried_as_anything_else() {
    let given = Given { tokens_json: team().tokens_json, ..issuer() };
    let edge = Edge::believing(given).await;
    edge.list_as(&KEY.token("alice", json!({}))).await.expect("a JSON Web Token");
    edge.list_as(&token_of("alice")).await.expect("a static token beside it");
    refused(edge.list_as("alice").await, Code::Unauthenticated, "UNAUTHENTICATED");
    let with_header = async |name: &'static str, value: String| {
        let mut request = tonic::Request::new(ListSessionsRequest::default());
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
        edge.runtime.clone().list_sessions(request).await
    };
    with_header("x-macp-token", token_of("alice")).await.expect("static tokens may come in the other header");
    for (name, value) in [
        ("x-macp-token", KEY.token("alice", json!({}))),
        ("authorization", format!("bearer {}", token_of("alice"))),
        ("authorization", format!("Basic {}", token_of("alice"))),
        ("authorization", token_of("alice")),
    ] {
        refused(with_header(name, value).await, Code::Unauthenticated, "UNAUTHENTICATED");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_sec_15_no_credential_and_an_unknown_one_hear_the_same() {
    for given in [team(), issuer()] {
        let edge = Edge::believing(given).await;
        let told = |status: Status| {
            let mut metadata = status.metadata().clone().into_headers();
            metadata.remove("date");
            (status.code(), status.message().to_owned(), format!("{metadata:?}"))
        };
        let unknown = told(edge.list_as("token-of-nobody-0123456789").await.expect_err("refused"));
        let request = ListSessionsRequest::default();
        let absent = told(edge.runtime.clone().list_sessions(request).await.expect_err("refused"));
        assert_eq!(unknown, absent);
        assert_eq!(unknown.0, Code::Unauthenticated);

        let envelope = || std_start(&sid(1), DECISION, &start_payload());
        let unknown = edge.send_as("token-of-nobody-0123456789", envelope()).await;
        let absent = edge.send(envelope()).await;
        assert_eq!(ack_code(&absent), "UNAUTHENTICATED");
        assert_eq!(unknown.error, absent.error);
        edge.shut_down().await;
    }
}

#[tokio::test]
async fn std_sec_15_a_refusal_tells_no_stranger_how_a_session_stands_and_nobody_whether_it_exists() {
    let edge = Edge::believing(team()).await;
    edge.accept_as(&token_of("alice"), std_start(&sid(1), DECISION, &start_payload())).await;
    for (token, code) in [("token-of-nobody-0123456789", "UNAUTHENTICATED"), (&token_of("carol"), "FORBIDDEN")] {
        let ack = edge.refuse_as(token, propose(&sid(1), "p"), code).await;
        assert_eq!(ack.session_state(), SessionState::Unspecified, "{code}");
    }
    let known = edge.send_as("token-of-nobody-0123456789", propose(&sid(1), "p")).await;
    let mut unknown = edge.send_as("token-of-nobody-0123456789", propose(&sid(2), "p")).await;
    unknown.session_id = sid(1);
    unknown.error.as_mut().expect("a refusal").session_id = sid(1);
    assert_eq!(unknown, known);
    // Whoever takes part is told.
    let ack = edge.refuse_as(&token_of("bob"), commit(&sid(1), "c"), "FORBIDDEN").await;
    assert_eq!(ack.session_state(), SessionState::Open);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_sec_9_nobody_speaks_for_another() {
    let edge = Edge::believing(team()).await;
    let (alice, bob) = (token_of("alice"), token_of("bob"));
    let as_bob = |envelope: Envelope| Envelope { sender: "bob".into(), ..envelope };
    edge.refuse_as(&alice, as_bob(std_start(&sid(1), DECISION, &start_payload())), "UNAUTHENTICATED").await;
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    edge.refuse_as(&alice, as_bob(propose(&sid(1), "p")), "UNAUTHENTICATED").await;
    edge.accept_as(&bob, as_bob(propose(&sid(1), "p"))).await;
    let spoofed = as_bob(start("classic"));
    edge.refuse_as(&alice, spoofed, "UNAUTHENTICATED").await;

    let frames = tokio_stream::iter([frame(as_bob(cast(&sid(1), "v", "p", "approve")))]);
    let request = authorized(&alice, frames);
    let mut stream = edge.runtime.clone().stream_session(request).await.expect("a stream").into_inner();
    let status = end(&mut stream).await.expect("a status ends it");
    assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"));
    edge.shut_down().await;
}

/// STD-RPC-2: some calls are for everyone, the others for nobody without a credential.
#[tokio::test]
async fn std_rpc_2_calls_are_open_or_closed_as_the_standard_says() {
    let edge = Edge::believing(team()).await;
    let mut client = edge.runtime.clone();
    client
        .initialize(InitializeRequest { supported_protocol_versions: vec!["1.0".into()], ..Default::default() })
        .await
        .expect("open");
    client.get_manifest(GetManifestRequest::default()).await.expect("open");
    client.list_modes(ListModesRequest {}).await.expect("open");
    client.list_ext_modes(ListExtModesRequest {}).await.expect("open");
    client.list_roots(ListRootsRequest {}).await.expect("open");
    client.watch_mode_registry(WatchModeRegistryRequest {}).await.expect("open");
    client.watch_roots(WatchRootsRequest {}).await.expect("open");
    client.get_receipt_keys(GetReceiptKeysRequest {}).await.expect("open");

    let session_id = sid(1);
    let closed = [
        client.get_session(GetSessionRequest { session_id: session_id.clone() }).await.err(),
        client.list_sessions(ListSessionsRequest::default()).await.err(),
        client
            .cancel_session(CancelSessionRequest { session_id: session_id.clone(), ..Default::default() })
            .await
            .err(),
        client
            .suspend_session(SuspendSessionRequest { session_id: session_id.clone(), ..Default::default() })
            .await
            .err(),
        client
            .resume_session(ResumeSessionRequest { session_id: session_id.clone(), ..Default::default() })
            .await
            .err(),
        client.watch_sessions(WatchSessionsRequest {}).await.err(),
        client.watch_signals(WatchSignalsRequest {}).await.err(),
        client.watch_policies(WatchPoliciesRequest {}).await.err(),
        client.stream_session(tokio_stream::iter([subscribe(&session_id, 0)])).await.err(),
        client.register_ext_mode(RegisterExtModeRequest::default()).await.err(),
        client.unregister_ext_mode(UnregisterExtModeRequest::default()).await.err(),
        client.promote_mode(PromoteModeRequest::default()).await.err(),
        client.register_policy(RegisterPolicyRequest::default()).await.err(),
        client.unregister_policy(UnregisterPolicyRequest::default()).await.err(),
        client.get_policy(GetPolicyRequest::default()).await.err(),
        client.list_policies(ListPoliciesRequest::default()).await.err(),
        client.what_if_replay(WhatIfReplayRequest::default()).await.err(),
        client.get_decision_receipt(GetDecisionReceiptRequest { session_id: session_id.clone() }).await.err(),
    ];
    for (index, status) in closed.into_iter().enumerate() {
        let status = status.unwrap_or_else(|| panic!("call {index} was let through"));
        assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"), "call {index}");
    }
    use macp_wire::history::v1 as history;
    let mut client = edge.history.clone();
    let closed = [
        client
            .get_session_log(history::GetSessionLogRequest { session_id: session_id.clone(), ..Default::default() })
            .await
            .err(),
        client.verify_session(history::VerifySessionRequest { session_id: session_id.clone() }).await.err(),
        client
            .replay_session(history::ReplaySessionRequest { session_id: session_id.clone(), ..Default::default() })
            .await
            .err(),
        client.export_session(history::ExportSessionRequest { session_id }).await.err(),
    ];
    for (index, status) in closed.into_iter().enumerate() {
        let status = status.unwrap_or_else(|| panic!("history call {index} was let through"));
        assert_eq!((status.code(), code(&status)), (Code::Unauthenticated, "UNAUTHENTICATED"), "history call {index}");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn tokens_and_keys_in_files_rotate_by_a_reload_and_a_bad_file_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tokens_file, jwks_file) = (directory.path().join("tokens.json"), directory.path().join("jwks.json"));
    let write = |path: &std::path::Path, text: &str| std::fs::write(path, text).expect("a file");
    let write_tokens = |entries: Value| write(&tokens_file, &entries.to_string());
    write_tokens(json!([entry("alice", json!({}))]));
    write(&jwks_file, &jwks(&[KEY]));
    let given = Given {
        issuer: Some(ISSUER.into()),
        jwks_file: Some(jwks_file.clone()),
        tokens_file: Some(tokens_file.clone()),
        ..Given::default()
    };
    let edge = Edge::believing(given).await;
    let second = IssuerKey { kid: "k2", number: 2 };
    let (old, new) = (KEY.token("alice", json!({})), second.token("alice", json!({})));
    let believed = async |credential: &str| edge.list_as(credential).await.is_ok();
    assert!(believed(&old).await && believed(&token_of("alice")).await);
    assert!(!believed(&new).await && !believed(&token_of("bob")).await);

    // Nothing happens before the reload, and nothing by halves.
    write_tokens(json!([entry("bob", json!({}))]));
    write(&jwks_file, "{");
    let problem = edge.server.reload_credentials().expect_err("a bad file").to_string();
    assert!(problem.contains("jwks.json") && !problem.contains("token-of"), "{problem}");
    assert!(believed(&old).await && believed(&token_of("alice")).await && !believed(&token_of("bob")).await);

    write(&jwks_file, &jwks(&[KEY, second]));
    let reloaded = edge.server.reload_credentials().expect("good files");
    assert_eq!((reloaded.tokens, reloaded.keys), (Some(1), Some(2)));
    assert!(believed(&old).await && believed(&new).await && believed(&token_of("bob")).await);
    assert!(!believed(&token_of("alice")).await, "a token that was taken away is not believed");

    write(&jwks_file, &jwks(&[second]));
    edge.server.reload_credentials().expect("good files");
    assert!(!believed(&old).await && believed(&new).await);
    edge.shut_down().await;
}

#[tokio::test]
async fn keys_at_a_url_rotate_by_themselves() {
    let published = Arc::new(Mutex::new(jwks(&[KEY])));
    let url = publish(Arc::clone(&published)).await;
    let given = Given { issuer: Some(ISSUER.into()), jwks_url: Some(url.into()), ..Given::default() };
    let edge = Edge::believing(given).await;
    edge.list_as(&KEY.token("alice", json!({}))).await.expect("a key that was published at the start");
    let second = IssuerKey { kid: "k2", number: 2 };
    *published.lock().expect("not poisoned") = jwks(&[second]);
    edge.list_as(&second.token("alice", json!({}))).await.expect("a key that was published since");
    refused(edge.list_as(&KEY.token("alice", json!({}))).await, Code::Unauthenticated, "UNAUTHENTICATED");
    edge.shut_down().await;
}

/// An issuer's web server, as small as one can be.
async fn publish(document: Arc<Mutex<String>>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/jwks", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let body = document.lock().expect("not poisoned").clone();
            let mut request = [0; 4096];
            if connection.read(&mut request).await.is_ok() {
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                // Who hung up does not want it.
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        }
    });
    url
}

/// Classic sessions know no credentials of their own, but a server that authenticates lets nobody past it.
#[tokio::test]
async fn classic_sessions_need_a_credential_where_there_is_authentication() {
    let edge = Edge::believing(team()).await;
    let (alice, bob, carol) = (token_of("alice"), token_of("bob"), token_of("carol"));
    edge.refuse(start("c1"), "UNAUTHENTICATED").await;
    edge.accept_as(&alice, start("c1")).await;
    let by = |sender: &str, envelope: Envelope| Envelope { sender: sender.into(), ..envelope };
    edge.refuse(by("bob", proposal("c1", "p")), "UNAUTHENTICATED").await;
    edge.accept_as(&bob, by("bob", proposal("c1", "p"))).await;
    assert_eq!(code(&edge.session("c1").await.expect_err("no credential")), "UNAUTHENTICATED");
    edge.session_as(&carol, "c1").await.expect("a session without a roster is open to all who are known");

    let roster = vec!["alice".to_owned(), "bob".to_owned()];
    let payload = macp_wire::classic::v1::SessionStartPayload { participants: roster, ..Default::default() };
    edge.accept_as(&alice, start_with("c2", payload)).await;
    edge.session_as(&bob, "c2").await.expect("a participant");
    refused(edge.session_as(&carol, "c2").await, Code::PermissionDenied, "FORBIDDEN");
    let ack = edge.send_as(&carol, by("carol", proposal("c2", "p"))).await;
    assert!(!ack.ok, "{ack:?}");
    edge.accept_as(&alice, proposal("c2", "p")).await;
    edge.accept_as(&bob, by("bob", vote("c2", "v"))).await;
    let ack = edge.accept_as(&alice, commitment("c2", "c")).await;
    assert_eq!(ack.session_state, RESOLVED);
    edge.shut_down().await;
}
