//! Static tokens, the chain, roles, local development and reloading.

mod support;

use std::collections::BTreeMap;

use macp_auth::{
    Authenticator, JwksSource, Modes, Presented, Refusal, Reloaded, Resolution, RoleRights, Settings, TokenSource,
};
use serde_json::{Value, json};

use support::{ED, OTHER_RSA, RSA, accepted, authenticator, claims, jwks, jwt, refused};

const ALICE: &str = "alice-token-0123456789";
const BOB: &str = "bob-token-0123456789";

fn inline(tokens: &Value) -> Settings {
    Settings { tokens: Some(TokenSource::Inline(tokens.to_string().into())), ..Settings::default() }
}

async fn start(tokens: &Value) -> Authenticator {
    Authenticator::start(inline(tokens)).await.unwrap()
}

fn roles() -> BTreeMap<String, RoleRights> {
    let none = RoleRights::default();
    [
        ("canceller", RoleRights { cancel: true, ..none }),
        ("operator", RoleRights { suspend: true, cancel: true, ..none }),
        ("auditor", RoleRights { observe: true, ..none }),
    ]
    .map(|(name, rights)| (name.to_owned(), rights))
    .into()
}

#[tokio::test]
async fn a_token_gives_what_its_entry_says_std_sec_5() {
    let list = json!([
        {"token": ALICE, "sender": "alice"},
        {"token": BOB, "sender": "bob", "allowed_modes": ["macp.mode.task.v1"], "can_start_sessions": false,
         "max_open_sessions": 0, "can_manage_mode_registry": true, "is_observer": true, "roles": ["x"]},
        {"token": "carol-token-0123456789", "sender": "carol", "allowed_modes": [], "max_open_sessions": null},
    ]);
    for tokens in [list.clone(), json!({ "tokens": list })] {
        let authenticator = start(&tokens).await;
        assert!(authenticator.is_configured());
        let alice = accepted(&authenticator, ALICE).await;
        assert_eq!((alice.sender.as_str(), &alice.allowed_modes), ("alice", &Modes::All));
        assert!(alice.authenticated && alice.can_start_sessions);
        assert!(!alice.can_manage_mode_registry && !alice.is_observer && alice.max_open_sessions.is_none());
        let bob = accepted(&authenticator, BOB).await;
        assert!(bob.allowed_modes.allow("macp.mode.task.v1") && !bob.allowed_modes.allow("macp.mode.decision.v1"));
        assert!(!bob.can_start_sessions && bob.can_manage_mode_registry && bob.is_observer);
        assert_eq!(bob.max_open_sessions, Some(0));
        let carol = accepted(&authenticator, "carol-token-0123456789").await;
        assert_eq!((carol.allowed_modes, carol.max_open_sessions), (Modes::All, None));
    }
}

#[tokio::test]
async fn unknown_and_absent_sound_the_same_std_sec_15() {
    let authenticator = start(&json!([{"token": ALICE, "sender": "alice"}])).await;
    let unknown = [
        Presented::Absent,
        Presented::Bearer(""),
        Presented::Bearer("alice"),
        Presented::Bearer("alice-token-012345678"),
        Presented::Bearer("alice-token-01234567890"),
        Presented::Bearer("a.b.c"),
        Presented::Token("alice"),
    ];
    for presented in unknown {
        assert_eq!(authenticator.resolve(presented).await, Resolution::Refused(Refusal::Unknown), "{presented:?}");
    }
    accepted(&authenticator, ALICE).await;
    assert!(matches!(authenticator.resolve(Presented::Token(ALICE)).await, Resolution::Identity(_)));
}

#[tokio::test]
async fn what_holds_a_dot_belongs_to_the_jwt_resolver_std_sec_3() {
    let settings = Settings {
        jwt: Some(jwt(JwksSource::Inline(jwks(&[&ED.jwk]).into()))),
        ..inline(&json!([{"token": ALICE, "sender": "alice-by-token"}]))
    };
    let authenticator = Authenticator::start(settings).await.unwrap();
    let token = ED.sign(&claims(json!({})));
    assert_eq!(accepted(&authenticator, &token).await.sender, "alice");
    assert_eq!(accepted(&authenticator, ALICE).await.sender, "alice-by-token");
    assert_eq!(refused(&authenticator, "some.thing").await, Refusal::Malformed);
    assert_eq!(refused(&authenticator, "something").await, Refusal::Unknown);
    assert_eq!(authenticator.resolve(Presented::Absent).await, Resolution::Refused(Refusal::Unknown));
    // The other header carries static tokens only (STD-SEC-2).
    assert_eq!(authenticator.resolve(Presented::Token(&token)).await, Resolution::Refused(Refusal::Unknown));
}

#[tokio::test]
async fn with_jwt_alone_nothing_else_is_taken() {
    let authenticator = authenticator(&[&ED.jwk]).await;
    assert!(authenticator.is_configured());
    assert_eq!(refused(&authenticator, "alice").await, Refusal::Unknown);
    assert_eq!(authenticator.resolve(Presented::Absent).await, Resolution::Refused(Refusal::Unknown));
}

#[tokio::test]
async fn lists_with_mistakes_are_refused_by_place_and_never_by_token() {
    const SECRET: &str = "hunter2hunter2hunter2";
    let entry = |changes: Value| {
        let mut entry = json!({"token": SECRET, "sender": "alice"});
        entry.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        entry
    };
    let dotted = format!("{SECRET}.x");
    let spaced = format!("{SECRET} x");
    let cases = [
        (json!({}), "must be a list of entries"),
        (json!(SECRET), "must be a list of entries"),
        (json!({SECRET: {"sender": "alice"}}), "must be a list of entries"),
        (json!({"tokens": [], "more": SECRET}), "must be a list of entries"),
        (json!([SECRET]), "entry 1: it must be an object"),
        (json!([entry(json!({})), {"token": SECRET}]), "entry 2: sender must be a string"),
        (json!([entry(json!({"sender": ""}))]), "entry 1: sender must be"),
        (json!([entry(json!({"sender": "s".repeat(257)}))]), "sender must be a string of 1 to 256 bytes"),
        (json!([{"sender": "alice"}]), "entry 1 (sender \"alice\"): token must be"),
        (json!([{"sender": "alice", "token": [SECRET]}]), "token must be a string"),
        (json!([entry(json!({"token": dotted}))]), "(sender \"alice\"): its token holds a dot"),
        (json!([entry(json!({"token": spaced}))]), "spaces or characters other than printable ASCII"),
        (
            json!([entry(json!({})), entry(json!({"sender": "bob"}))]),
            "entry 2 (sender \"bob\") has the same token as entry 1 (sender \"alice\")",
        ),
        (
            json!([entry(json!({"zz": SECRET}))]),
            "member 3 of it (counted from 1) is not known; known are token, sender,",
        ),
        (json!([entry(json!({SECRET: true}))]), "is not known; known are"),
        (json!([entry(json!({"allowed_modes": SECRET}))]), "allowed_modes must be a list of strings"),
        (json!([entry(json!({"allowed_modes": null}))]), "allowed_modes must be a list of strings"),
        (json!([entry(json!({"is_observer": 1}))]), "is_observer must be true or false"),
        (json!([entry(json!({"max_open_sessions": 1.5}))]), "max_open_sessions must be a whole number"),
    ];
    for (list, expected) in cases {
        let error = Authenticator::start(inline(&list)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{text}\nexpected {expected}");
        assert!(text.starts_with("the inline tokens: "), "{text}");
        assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text} {error:?}");
    }
    let twice = format!(r#"[{{"token":"{SECRET}","sender":"alice","is_observer":false,"is_observer":true}}]"#);
    for text in [twice, format!("[{{\"token\": \"{SECRET}\" \"sender\""), format!("[{SECRET}]"), format!("[] {SECRET}")]
    {
        let settings = Settings { tokens: Some(TokenSource::Inline(text.into())), ..Settings::default() };
        let error = Authenticator::start(settings).await.unwrap_err();
        assert!(error.to_string().contains("not valid JSON: "), "{error}");
        assert!(error.to_string().contains("line 1 column"), "{error}");
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn roles_give_what_the_configuration_says_whatever_carries_them() {
    let list = json!([
        {"token": ALICE, "sender": "alice", "roles": ["canceller", "auditor"]},
        {"token": BOB, "sender": "bob", "roles": ["unheard-of"]},
    ]);
    let settings =
        Settings { jwt: Some(jwt(JwksSource::Inline(jwks(&[&ED.jwk]).into()))), roles: roles(), ..inline(&list) };
    let authenticator = Authenticator::start(settings).await.unwrap();
    let alice = accepted(&authenticator, ALICE).await;
    assert_eq!((alice.may_cancel, alice.may_suspend, alice.is_observer), (true, false, true));
    let bob = accepted(&authenticator, BOB).await;
    assert_eq!((bob.may_cancel, bob.may_suspend, bob.is_observer), (false, false, false));
    assert!(bob.roles.contains("unheard-of"));
    let cases = [
        (json!({"roles": ["operator"]}), (true, true, false)),
        (json!({"roles": "auditor"}), (false, false, true)),
        (json!({"roles": ["auditor"], "macp_scopes": {"roles": ["canceller"]}}), (true, false, true)),
        (json!({"macp_scopes": {"roles": ["operator"]}}), (true, true, false)),
        // Not our claim, so a shape that is not ours is no error; it gives nothing.
        (json!({"roles": {"operator": true}}), (false, false, false)),
        (json!({"roles": ["operator", 7]}), (false, false, false)),
        (json!({"roles": []}), (false, false, false)),
    ];
    for (changes, expected) in cases {
        let found = accepted(&authenticator, &ED.sign(&claims(changes.clone()))).await;
        assert_eq!((found.may_cancel, found.may_suspend, found.is_observer), expected, "{changes}");
    }
}

#[tokio::test]
async fn in_local_development_the_bearer_is_the_sender_std_sec_7() {
    let authenticator = Authenticator::start(Settings { roles: roles(), ..Settings::default() }).await.unwrap();
    assert!(!authenticator.is_configured() && !Authenticator::development().is_configured());
    assert_eq!(authenticator.resolve(Presented::Absent).await, Resolution::Absent);
    for name in ["alice", "agent://a.b/c", "a.b.c"] {
        let identity = accepted(&authenticator, name).await;
        assert_eq!(identity.sender, name);
        assert!(identity.can_start_sessions && identity.can_manage_mode_registry);
        assert_eq!(identity.allowed_modes, Modes::All);
        assert!(!identity.is_observer && !identity.may_cancel && !identity.may_suspend && !identity.authenticated);
    }
    assert!(matches!(authenticator.resolve(Presented::Token("bob")).await, Resolution::Identity(_)));
    assert_eq!(refused(&authenticator, "").await, Refusal::Unknown);
    // A token for another server would end up as a name in histories and logs.
    assert_eq!(refused(&authenticator, &RSA.sign(&claims(json!({})))).await, Refusal::NoSender);
    assert_eq!(authenticator.reload().unwrap(), Reloaded { tokens: None, keys: None });
}

struct Files {
    directory: tempfile::TempDir,
    authenticator: Authenticator,
}

impl Files {
    async fn new() -> Files {
        let directory = tempfile::tempdir().unwrap();
        let (tokens, keys) = (directory.path().join("tokens.json"), directory.path().join("jwks.json"));
        std::fs::write(&tokens, json!([{"token": ALICE, "sender": "alice"}]).to_string()).unwrap();
        std::fs::write(&keys, jwks(&[&RSA.jwk])).unwrap();
        let settings = Settings {
            jwt: Some(jwt(JwksSource::File(keys))),
            tokens: Some(TokenSource::File(tokens)),
            ..Settings::default()
        };
        Files { authenticator: Authenticator::start(settings).await.unwrap(), directory }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }
}

#[tokio::test]
async fn a_reload_takes_what_the_files_say_now() {
    let files = Files::new().await;
    let (old, new) = (RSA.sign(&claims(json!({}))), OTHER_RSA.sign(&claims(json!({}))));
    accepted(&files.authenticator, ALICE).await;
    accepted(&files.authenticator, &old).await;
    assert_eq!(refused(&files.authenticator, &new).await, Refusal::Key);

    files.write("tokens.json", &json!([{"token": BOB, "sender": "bob"}]).to_string());
    files.write("jwks.json", &jwks(&[&OTHER_RSA.jwk, &ED.jwk]));
    accepted(&files.authenticator, ALICE).await;
    assert_eq!(files.authenticator.reload().unwrap(), Reloaded { tokens: Some(1), keys: Some(2) });
    accepted(&files.authenticator, BOB).await;
    assert_eq!(refused(&files.authenticator, ALICE).await, Refusal::Unknown);
    accepted(&files.authenticator, &new).await;
    // It was good a moment ago, but the key that vouched for it is gone.
    assert_eq!(refused(&files.authenticator, &old).await, Refusal::Key);

    // The last token can be revoked.
    files.write("tokens.json", "[]");
    assert_eq!(files.authenticator.reload().unwrap().tokens, Some(0));
    assert_eq!(refused(&files.authenticator, BOB).await, Refusal::Unknown);
}

#[tokio::test]
async fn a_reload_that_fails_changes_nothing() {
    let files = Files::new().await;
    let token = RSA.sign(&claims(json!({})));
    let good_tokens = json!([{"token": BOB, "sender": "bob"}]).to_string();
    let cases = [
        ("jwks.json", r#"{"keys": []}"#, "jwks.json: none of its keys can be used"),
        ("jwks.json", "{\n  \"keys\": oops", "jwks.json is not valid JSON: expected value at line 2 column"),
        (
            "tokens.json",
            r#"[{"token": "x.y", "sender": "bob"}]"#,
            "tokens.json: entry 1 (sender \"bob\"): its token holds a dot",
        ),
    ];
    for (name, text, expected) in cases {
        files.write("tokens.json", &good_tokens);
        files.write("jwks.json", &jwks(&[&OTHER_RSA.jwk]));
        files.write(name, text);
        let error = files.authenticator.reload().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        accepted(&files.authenticator, ALICE).await;
        accepted(&files.authenticator, &token).await;
        assert_eq!(refused(&files.authenticator, BOB).await, Refusal::Unknown);
    }
    std::fs::remove_file(files.directory.path().join("tokens.json")).unwrap();
    let error = files.authenticator.reload().unwrap_err();
    assert!(error.to_string().starts_with("cannot read the tokens file "), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    accepted(&files.authenticator, ALICE).await;
}
