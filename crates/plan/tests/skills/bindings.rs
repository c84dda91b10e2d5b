//! Secrets that are bound to hosts go nowhere else.

use std::sync::Arc;

use macp_plan::registry;
use macp_plan::skill::Skill;
use macp_plan::skills::SkillSettings;
use macp_plan::skills::llm_invoke::{LlmKind, LlmProvider};
use macp_plan_core::cause::Cause;
use serde_json::{Value, json};

use crate::server::{Server, answer};
use crate::world::{PATIENT, SECRET, call, expect_code, registry_with, settings};

fn bound(bindings: &[&str]) -> SkillSettings {
    let mut settings = settings();
    settings.egress.allow_private_hosts =
        ["shop.example", "eu.shop.example", "other.example"].map(str::to_owned).to_vec();
    settings.secrets.hosts = bindings.iter().map(|text| (*text).to_owned()).collect();
    settings
}

fn skill(settings: &SkillSettings) -> Arc<dyn Skill> {
    let names = ["shop.example", "eu.shop.example", "other.example"].map(|name| (name, "127.0.0.1"));
    registry_with(settings, &names).callable("http_call", "1.2.0").expect("http_call comes with the runtime")
}

fn port(server: &Server) -> String {
    server.address.port().to_string()
}

fn request(host: &str, port: &str, header: &str) -> Value {
    json!({"url": format!("http://{host}:{port}/"), "headers": {"x-key": header}})
}

/// Whether the secret arrived; where it must not, nothing is sent at all.
async fn arrives(skill: &dyn Skill, host: &str, header: &str) -> bool {
    let server = Server::answering(answer(200, &[], "")).await;
    let seen = call(skill, request(host, &port(&server), header), PATIENT).await;
    if seen.cause == Cause::EgressForbidden {
        expect_code(skill, &seen, "ERR_POLICY_VIOLATION");
        let told =
            "at /headers/x-key: the secret `token` is not available to this call; the server's log has the reason";
        assert_eq!(seen.message, told);
        assert!(server.requests().is_empty(), "nothing is sent");
        return false;
    }
    expect_code(skill, &seen, "OK_HTTP_CALL");
    assert!(server.only_request().header("x-key").unwrap().contains(SECRET));
    true
}

#[tokio::test]
async fn a_bound_secret_goes_to_its_hosts_alone() {
    let one = skill(&bound(&["token=shop.example"]));
    assert!(arrives(&*one, "shop.example", "Bearer secret://token").await);
    assert!(!arrives(&*one, "other.example", "Bearer secret://token").await);
    assert!(!arrives(&*one, "eu.shop.example", "secret://token").await, "a name below it is another host");
    assert!(!arrives(&*one, "127.0.0.1", "secret://token").await, "its address is another host");
    let several = skill(&bound(&["token=shop.example", " token = *.shop.example "]));
    assert!(arrives(&*several, "eu.shop.example", "secret://token").await);
    assert!(!arrives(&*several, "other.example", "secret://token").await);
    let another = skill(&bound(&["unused=shop.example"]));
    assert!(arrives(&*another, "other.example", "secret://token").await, "nobody bound this one");
}

/// The errors of a plan that names secrets do not show which of them exist, or where they may be sent.
#[tokio::test]
async fn a_secret_that_is_bound_elsewhere_looks_like_one_that_does_not_exist() {
    let server = Server::answering(answer(200, &[], "")).await;
    let skill = skill(&bound(&["token=shop.example"]));
    let seen = async |name: &str, header: &str| {
        let url = format!("http://other.example:{}/", port(&server));
        let mut headers = json!({"x-key": format!("secret://{name}")});
        // What else is wrong is not found out first.
        headers[header] = json!("y");
        let seen = call(&*skill, json!({"url": url, "headers": headers}), PATIENT).await;
        expect_code(&*skill, &seen, "ERR_POLICY_VIOLATION");
        assert!(seen.message.contains(name), "{}", seen.message);
        (seen.cause, seen.message.replace(name, "NAME"))
    };
    for header in ["x-other", "host"] {
        assert_eq!(seen("token", header).await, seen("absent", header).await, "{header}");
    }
    assert!(server.requests().is_empty());
}

/// `TOKEN` and `token` are the same variable, so that one binding holds for both.
#[tokio::test]
async fn another_spelling_is_no_way_around_a_binding() {
    let skill = skill(&bound(&["to-ken=shop.example"]));
    for name in ["to-ken", "to.ken", "TO_KEN", "To-Ken"] {
        let seen = call(&*skill, request("other.example", "9", &format!("secret://{name}")), PATIENT).await;
        assert_eq!(seen.cause, Cause::EgressForbidden, "{name}: {}", seen.message);
    }
}

#[tokio::test]
async fn the_key_of_a_provider_is_not_for_plans() {
    let provider = LlmProvider {
        name: "models".to_owned(),
        kind: LlmKind::OpenAi,
        base_url: "http://127.0.0.1:9".to_owned(),
        api_key: Some("token".to_owned()),
        models: None,
        max_tokens_field: None,
    };
    let with = |bindings: &[&str]| skill(&SkillSettings { providers: vec![provider.clone()], ..bound(bindings) });
    assert!(!arrives(&*with(&[]), "shop.example", "secret://token").await);
    assert!(!arrives(&*with(&[]), "127.0.0.1", "secret://token").await, "not even to the provider itself");
    assert!(arrives(&*with(&["token=shop.example"]), "shop.example", "secret://token").await);
    assert!(!arrives(&*with(&["token=shop.example"]), "other.example", "secret://token").await);
}

/// A redirect is the server's word, and does not take a secret to another host, not even to one it is bound to.
#[tokio::test]
async fn a_redirect_takes_no_secret_along() {
    let skill = skill(&bound(&["token=shop.example", "token=other.example"]));
    let other = Server::answering(answer(200, &[], "")).await;
    let location = format!("http://other.example:{}/", port(&other));
    let first = Server::answering(answer(307, &[("location", &location)], "")).await;
    let seen = call(&*skill, request("shop.example", &port(&first), "secret://token"), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    assert_eq!(first.only_request().header("x-key"), Some(SECRET));
    assert_eq!(other.only_request().header("x-key"), None);
}

#[test]
fn a_binding_that_cannot_be_read_is_refused() {
    for text in
        ["", "token", "=shop.example", "token=", "to ken=shop.example", "token=*.*", "token=https://shop.example"]
    {
        let told = registry::standard(&bound(&[text])).expect_err("must be refused").to_string();
        assert!(told.contains("bound_secrets") && told.contains(&format!("`{text}`")), "{told}");
    }
}
