//! What a credential is good for: modes, starting, observing, roles, registries; and what others do not see.

use std::time::Duration;

use macp_auth::{Given, RoleRights};
use macp_wire::history::v1 as history;
use macp_wire::v1::stream_session_response::Response as Delivery;
use macp_wire::v1::*;
use serde_json::json;
use tokio_stream::StreamExt;
use tonic::{Code, Status};

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

const TASK: &str = "macp.mode.task.v1";

#[tokio::test]
async fn std_sec_10_a_scope_names_the_modes_and_whether_to_start() {
    let scoped = |scopes: serde_json::Value| KEY.token("alice", json!({"macp_scopes": scopes}));
    let begin = |number: u32| std_start(&sid(number), DECISION, &start_payload());
    let given = Given {
        tokens_json: tokens(&json!([
            entry("carol", json!({"allowed_modes": [TASK]})),
            entry("dora", json!({"allowed_modes": []})),
            entry("bob", json!({"can_start_sessions": false})),
        ]))
        .tokens_json,
        ..issuer()
    };
    let edge = Edge::believing(given).await;

    // In a list of tokens no mode is every mode; in a claim it is none.
    edge.refuse_as(&token_of("carol"), begin(1), "FORBIDDEN").await;
    edge.accept_as(&token_of("dora"), begin(1)).await;
    edge.refuse_as(&scoped(json!({"allowed_modes": []})), begin(2), "FORBIDDEN").await;
    edge.refuse_as(&scoped(json!({"allowed_modes": [TASK]})), begin(2), "FORBIDDEN").await;
    edge.refuse_as(&scoped(json!({"can_start_sessions": false})), begin(2), "FORBIDDEN").await;
    edge.accept_as(&scoped(json!({"allowed_modes": [DECISION]})), begin(2)).await;
    edge.accept_as(&scoped(json!({})), begin(3)).await;

    // Not allowed to start is still allowed to take part.
    edge.refuse_as(&token_of("bob"), begin(4), "FORBIDDEN").await;
    edge.accept_as(&token_of("bob"), propose(&sid(2), "p")).await;
    // The scope counts for every envelope, and before the session is asked. How that stands is told to those who take
    // part in it.
    let narrow = scoped(json!({"allowed_modes": [TASK]}));
    assert_eq!(edge.refuse_as(&narrow, commit(&sid(2), "c"), "FORBIDDEN").await.session_state, OPEN);
    assert_eq!(edge.refuse_as(&narrow, propose(&sid(99), "p"), "FORBIDDEN").await.session_state, UNSPECIFIED);
    let ack = edge.refuse_as(&token_of("carol"), commit(&sid(2), "c"), "FORBIDDEN").await;
    assert_eq!(ack.session_state, UNSPECIFIED);
    edge.shut_down().await;
}

#[tokio::test]
async fn wire_3_a_refusal_of_a_session_that_was_not_asked_tells_its_state_to_those_it_concerns() {
    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.message_limit_per_minute = Some(1);
    })
    .await;
    let alice = token_of("alice");
    edge.accept_as(&alice, Envelope { sender: String::new(), ..start("classic") }).await;
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    let nobody_listed = SessionStartPayload { participants: Vec::new(), ..start_payload() };
    edge.accept_as(&alice, std_start(&sid(2), DECISION, &nobody_listed)).await;
    let classic = || Envelope { sender: String::new(), ..proposal("classic", "p") };
    for (who, states) in [
        ("alice", [OPEN, OPEN, OPEN, UNSPECIFIED]),
        ("bob", [OPEN, OPEN, UNSPECIFIED, UNSPECIFIED]),
        ("carol", [OPEN, UNSPECIFIED, UNSPECIFIED, UNSPECIFIED]),
        ("olga", [OPEN, OPEN, OPEN, UNSPECIFIED]),
    ] {
        let token = token_of(who);
        // Uses up the share.
        edge.refuse_as(&token, propose(&sid(99), "p"), "SESSION_NOT_FOUND").await;
        let envelopes = [classic(), propose(&sid(1), "p"), propose(&sid(2), "p"), propose(&sid(99), "p")];
        for (envelope, state) in envelopes.into_iter().zip(states) {
            let ack = edge.refuse_as(&token, envelope, "RATE_LIMITED").await;
            assert_eq!(ack.session_state, state, "{who} of {}", ack.session_id);
        }
        let impostor = Envelope { sender: "somebody".into(), ..propose(&sid(1), "p") };
        let ack = edge.refuse_as(&token, impostor, "UNAUTHENTICATED").await;
        assert_eq!(ack.session_state, states[1], "{who}");
    }
    let ack = edge.refuse_as("token-of-nobody-0123456789", classic(), "UNAUTHENTICATED").await;
    assert_eq!(ack.session_state, UNSPECIFIED);
    edge.shut_down().await;
}

/// Every way to look into a session, with what it answers.
async fn looks(edge: &Edge, identity: &str, session_id: &str) -> Vec<(&'static str, Option<Status>)> {
    let id = || session_id.to_owned();
    let (mut runtime, mut history_client) = (edge.runtime.clone(), edge.history.clone());
    let candidate = Some(policy("candidate", DECISION, "{}"));
    let what_if = WhatIfReplayRequest { session_id: id(), candidate };
    let log = history::GetSessionLogRequest { session_id: id(), ..Default::default() };
    let replay = history::ReplaySessionRequest { session_id: id(), ..Default::default() };
    vec![
        ("GetSession", edge.session_as(identity, session_id).await.err()),
        ("WhatIfReplay", runtime.what_if_replay(authorized(identity, what_if)).await.err()),
        (
            "GetDecisionReceipt",
            runtime
                .get_decision_receipt(authorized(identity, GetDecisionReceiptRequest { session_id: id() }))
                .await
                .err(),
        ),
        ("GetSessionLog", history_client.get_session_log(authorized(identity, log)).await.err()),
        (
            "VerifySession",
            history_client
                .verify_session(authorized(identity, history::VerifySessionRequest { session_id: id() }))
                .await
                .err(),
        ),
        ("ReplaySession", history_client.replay_session(authorized(identity, replay)).await.err()),
        (
            "ExportSession",
            history_client
                .export_session(authorized(identity, history::ExportSessionRequest { session_id: id() }))
                .await
                .err(),
        ),
    ]
}

async fn first_delivery(edge: &Edge, identity: &str, session_id: &str) -> Delivery {
    // Not closed by the client, so that the stream lasts.
    let frames = tokio_stream::iter([subscribe(session_id, 0)]).chain(tokio_stream::pending());
    let stream = edge.runtime.clone().stream_session(authorized(identity, frames)).await.expect("a stream");
    next(&mut stream.into_inner()).await.response.expect("a delivery")
}

async fn listed(edge: &Edge, identity: &str) -> Vec<String> {
    edge.list_as(identity).await.expect("a page").sessions.into_iter().map(|session| session.session_id).collect()
}

#[tokio::test]
async fn std_rpc_4_a_session_is_seen_by_its_own_and_by_observers_only() {
    let edge = Edge::believing(team()).await;
    let [alice, bob, carol, olga, admin] = ["alice", "bob", "carol", "olga", "admin"].map(token_of);
    edge.resolve_between(&alice, &bob, &sid(1)).await;
    for insider in [&alice, &bob, &olga] {
        for (call, status) in looks(&edge, insider, &sid(1)).await {
            assert!(status.is_none(), "{call}: {status:?}");
        }
        assert_eq!(listed(&edge, insider).await, [sid(1)]);
        assert!(matches!(first_delivery(&edge, insider, &sid(1)).await, Delivery::Envelope(_)));
    }
    for stranger in [&carol, &admin] {
        for (call, status) in looks(&edge, stranger, &sid(1)).await {
            let status = status.unwrap_or_else(|| panic!("{call} let a stranger in"));
            assert_eq!((status.code(), code(&status)), (Code::PermissionDenied, "FORBIDDEN"), "{call}");
        }
        assert_eq!(listed(&edge, stranger).await, Vec::<String>::new());
        match first_delivery(&edge, stranger, &sid(1)).await {
            Delivery::Error(error) => assert_eq!(error.code, "FORBIDDEN"),
            other => panic!("{other:?} went to a stranger"),
        }
    }
    // What does not exist is told as such, so that who waits for a session can wait.
    for (call, status) in looks(&edge, &carol, &sid(9)).await {
        let status = status.expect("refused");
        assert_eq!((status.code(), code(&status)), (Code::NotFound, "SESSION_NOT_FOUND"), "{call}");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn watches_tell_of_sessions_only_to_those_who_may_read_them() {
    let edge = Edge::believing(team()).await;
    let [alice, bob, carol, olga] = ["alice", "bob", "carol", "olga"].map(token_of);
    let begin = |number: u32| std_start(&sid(number), DECISION, &start_payload());
    let watch = async |identity: &str| {
        let answer = edge.runtime.clone().watch_sessions(authorized(identity, WatchSessionsRequest {})).await;
        answer.expect("a watch").into_inner()
    };
    edge.accept_as(&alice, begin(1)).await;
    let (mut by_bob, mut by_carol, mut by_olga) = (watch(&bob).await, watch(&carol).await, watch(&olga).await);
    let of =
        |response: WatchSessionsResponse| response.event.and_then(|event| event.session).expect("a session").session_id;
    assert_eq!(of(next(&mut by_bob).await), sid(1));
    assert_eq!(of(next(&mut by_olga).await), sid(1));
    edge.accept_as(&alice, begin(2)).await;
    // Carol's own comes last, so whatever else was for her would have come before.
    let own = SessionStartPayload { participants: vec!["carol".into(), "dora".into()], ..start_payload() };
    edge.accept_as(&carol, std_start(&sid(3), DECISION, &own)).await;
    assert_eq!(of(next(&mut by_carol).await), sid(3));
    assert_eq!(of(next(&mut by_bob).await), sid(2));
    assert_eq!([of(next(&mut by_olga).await), of(next(&mut by_olga).await)], [sid(2), sid(3)]);
    let silence = tokio::time::timeout(Duration::from_millis(200), by_bob.next()).await;
    assert!(silence.is_err(), "bob heard of carol's session: {silence:?}");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_sec_13_an_observer_reads_and_does_nothing_else() {
    let edge = Edge::believing(team()).await;
    let [alice, olga] = ["alice", "olga"].map(token_of);
    edge.accept_as(&alice, std_start(&sid(1), DECISION, &start_payload())).await;
    edge.refuse_as(&olga, propose(&sid(1), "p"), "FORBIDDEN").await;
    edge.refuse_as(&olga, commit(&sid(1), "c"), "FORBIDDEN").await;
    for answer in [edge.cancel_as(&olga, &sid(1)).await, edge.suspend_as(&olga, &sid(1)).await] {
        refused(answer, Code::PermissionDenied, "FORBIDDEN");
    }
    let register = RegisterPolicyRequest { policy_descriptor: Some(policy("p", DECISION, "{}")) };
    let answer = edge.runtime.clone().register_policy(authorized(&olga, register)).await;
    refused(answer, Code::PermissionDenied, "FORBIDDEN");
    assert_eq!(edge.session_as(&olga, &sid(1)).await.expect("readable").state, OPEN);
    edge.shut_down().await;
}

#[tokio::test]
async fn ext_6_roles_entitle_to_what_is_configured_and_to_nothing_else() {
    let list = json!([
        entry("alice", json!({})),
        entry("bob", json!({})),
        entry("cora", json!({"roles": ["canceller"]})),
        entry("sven", json!({"roles": ["pauser", "unheard-of"]})),
        entry("oona", json!({"roles": ["auditor"]})),
        entry("una", json!({"roles": ["unheard-of"]})),
    ]);
    let none = RoleRights::default();
    let roles = [
        ("canceller".to_owned(), RoleRights { cancel: true, ..none }),
        ("pauser".to_owned(), RoleRights { suspend: true, ..none }),
        ("auditor".to_owned(), RoleRights { observe: true, ..none }),
    ];
    let edge = Edge::believing(Given { roles: roles.into(), ..tokens(&list) }).await;
    let [alice, bob, cora, sven, oona, una] = ["alice", "bob", "cora", "sven", "oona", "una"].map(token_of);
    for number in [1, 2] {
        edge.accept_as(&alice, std_start(&sid(number), DECISION, &start_payload())).await;
    }
    let forbidden = |answer: Result<Ack, Status>| refused(answer, Code::PermissionDenied, "FORBIDDEN");
    for powerless in [&bob, &oona, &una, &sven] {
        forbidden(edge.cancel_as(powerless, &sid(1)).await);
    }
    for powerless in [&bob, &oona, &una, &cora] {
        forbidden(edge.suspend_as(powerless, &sid(1)).await);
    }
    assert!(edge.suspend_as(&sven, &sid(1)).await.expect("may").ok);
    // Who may hold a session is told how it stands.
    let again = edge.suspend_as(&sven, &sid(1)).await.expect("an Ack");
    assert_eq!((again.ok, again.session_state()), (false, SessionState::Suspended));
    forbidden(edge.resume_as(&cora, &sid(1)).await);
    assert!(edge.resume_as(&sven, &sid(1)).await.expect("may").ok);
    assert!(edge.cancel_as(&cora, &sid(1)).await.expect("may").ok);
    assert_eq!(edge.session_as(&alice, &sid(1)).await.expect("her own").state, CANCELLED);

    // The right to act gives no right to read, and the right to read none to act.
    for blind in [&cora, &sven, &una] {
        refused(edge.session_as(blind, &sid(2)).await, Code::PermissionDenied, "FORBIDDEN");
    }
    edge.session_as(&oona, &sid(2)).await.expect("an auditor reads");
    edge.refuse_as(&cora, commit(&sid(2), "c"), "FORBIDDEN").await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_3_registries_are_changed_by_administrators_only() {
    let edge = Edge::believing(team()).await;
    let [alice, admin] = ["alice", "admin"].map(token_of);
    let register = || RegisterPolicyRequest { policy_descriptor: Some(policy("p1", DECISION, "{}")) };
    let mode = || RegisterExtModeRequest { mode_descriptor: Some(notes_mode("ext.notes.v1")) };
    let forget = || UnregisterPolicyRequest { policy_id: "p1".into() };
    let mut client = edge.runtime.clone();
    for status in [
        client.register_policy(authorized(&alice, register())).await.err(),
        client.unregister_policy(authorized(&alice, forget())).await.err(),
        client.register_ext_mode(authorized(&alice, mode())).await.err(),
        client
            .unregister_ext_mode(authorized(&alice, UnregisterExtModeRequest { mode: "ext.notes.v1".into() }))
            .await
            .err(),
        client
            .promote_mode(authorized(&alice, PromoteModeRequest { mode: "ext.notes.v1".into(), ..Default::default() }))
            .await
            .err(),
    ] {
        let status = status.expect("not for everyone");
        assert_eq!((status.code(), code(&status)), (Code::PermissionDenied, "FORBIDDEN"));
    }
    assert!(client.register_policy(authorized(&admin, register())).await.expect("may").into_inner().ok);
    assert!(client.register_ext_mode(authorized(&admin, mode())).await.expect("may").into_inner().ok);
    assert!(client.unregister_policy(authorized(&admin, forget())).await.expect("may").into_inner().ok);
    edge.shut_down().await;

    let edge = Edge::with(|settings| {
        settings.auth = settled(team());
        settings.policies_read_only = true;
    })
    .await;
    let mut client = edge.runtime.clone();
    for status in [
        client.register_policy(authorized(&admin, register())).await.err(),
        client.unregister_policy(authorized(&admin, forget())).await.err(),
    ] {
        assert_eq!(code(&status.expect("read-only")), "REGISTRY_READ_ONLY");
    }
    let status = client.register_policy(authorized(&alice, register())).await.expect_err("not hers");
    assert_eq!(code(&status), "FORBIDDEN");
    edge.shut_down().await;
}

impl Edge {
    async fn resolve_between(&self, alice: &str, bob: &str, session_id: &str) {
        self.accept_as(alice, std_start(session_id, DECISION, &start_payload())).await;
        self.accept_as(bob, propose(session_id, "p")).await;
        self.accept_as(alice, commit(session_id, "c")).await;
    }
}
