//! A skill as an author writes it: it calls out through the governed client, and its plans are tried on a stage.

use std::sync::Arc;
use std::time::Duration;

use macp_plan::outbound::{Method, PERMISSION, Request};
use macp_plan::registry::Registry;
use macp_plan::secrets::Held;
use macp_plan::skill::{Call, Calling, Observation, Skill};
use macp_plan::testkit::{ScriptedSkill, Stage, check_skill, script_of};
use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::journal::Body;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::server::{Reply, Server, answer, json_answer};
use crate::world::{PATIENT, SECRET, registry, settings};

/// Tells a shop that an order is paid.
#[derive(Debug)]
struct MarkPaid {
    metadata: SkillMetadata,
}

impl MarkPaid {
    fn new() -> Arc<Self> {
        Self::with_permissions(&[PERMISSION])
    }

    fn with_permissions(permissions: &[&str]) -> Arc<Self> {
        // A declaration to begin with; every field can be said otherwise.
        let metadata = ScriptedSkill::new("mark_paid", "1.0.0")
            .effect("http_request", "shop", Idempotency::Keyed)
            .declare(|metadata| metadata.permissions = permissions.iter().map(|it| (*it).to_owned()).collect())
            .metadata()
            .clone();
        Arc::new(Self { metadata })
    }

    async fn tell(&self, call: Call<'_>) -> Observation {
        let url = call.parameters.get("url").and_then(Value::as_str).unwrap_or_default();
        let request =
            Request::new(Method::POST, url).header("authorization", "Bearer secret://token").body("{\"paid\":true}");
        let patience = call.parameters.get("patience_ms").and_then(Value::as_u64).map(Duration::from_millis);
        let Ok(mut told) = tokio::time::timeout(patience.unwrap_or(PATIENT), call.http.send(request)).await else {
            return Observation::new(Cause::InputInvalid, "the shop is too slow for this order");
        };
        if let (Ok(_), Some(next)) = (&told, call.parameters.get("then").and_then(Value::as_str)) {
            told = call.http.send(Request::new(Method::GET, next)).await;
        }
        match told {
            Ok(answer) => Observation::new(Cause::http(answer.status), "the shop answered")
                .with_output(json!({"told": String::from_utf8_lossy(&answer.body)}))
                .with_retry_after_ms(answer.retry_after_ms),
            Err(no_answer) => no_answer.into(),
        }
    }
}

impl PureSkill for MarkPaid {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, _parameters: &Map<String, Value>) -> Vec<Effect> {
        vec![Effect { kind: "http_request".to_owned(), target: "shop".to_owned(), idempotency: Idempotency::Keyed }]
    }

    fn usage_bound(&self, _parameters: &Map<String, Value>) -> Usage {
        Usage { requests: 1, ..Usage::default() }
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        parameters.get("url").and_then(Value::as_str).map(|_| ()).ok_or_else(|| "at /url: it is missing".to_owned())
    }
}

impl Skill for MarkPaid {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(self.tell(call))
    }
}

fn plan(url: &str) -> Value {
    json!({
        "plan_id": "paid", "agent_id": "clerk", "goal": "Mark the order as paid",
        // A plan names the secrets it lets its skills use.
        "steps": [{"step_id": "mark", "skill_id": "mark_paid", "skill_version": "1.0.0",
                   "parameters": {"url": url, "as": "secret://token"}}],
        "context": {"budget_cents": 1, "allowed_skills": ["mark_paid"]},
    })
}

#[tokio::test]
async fn the_client_of_a_skill_is_governed() {
    let server = Server::start(vec![
        Reply::Bytes(answer(503, &[], "")),
        Reply::Bytes(json_answer(200, &json!({"by": format!("Bearer {SECRET}")}))),
    ])
    .await;
    let stage_of = |skill: Arc<MarkPaid>| Stage::new(registry(&settings())).with(skill).secret("token", SECRET);
    let performed = stage_of(MarkPaid::new()).run(&plan(&server.url("/orders/7"))).await;
    performed.ends("OK", 1, 0).step("mark", "OK", 2).replays();
    let told = format!("{:?}", performed);
    assert!(!told.contains(SECRET) && told.contains("[secret token]"), "what the shop sends back is scrubbed");
    let requests = server.requests();
    let keys: Vec<_> = requests.iter().map(|request| request.header("idempotency-key").unwrap().to_owned()).collect();
    assert!(keys[0].starts_with("aos1-") && keys[0] == keys[1], "the same effect has the same key: {keys:?}");
    assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {SECRET}").as_str()));

    // What is not allowed is not reached, whoever wrote the skill.
    let mut closed = settings();
    closed.egress = macp_plan::egress::Settings::default();
    let denied = Stage::new(registry(&closed)).with(MarkPaid::new()).secret("token", SECRET);
    denied.run(&plan(&server.url("/orders/7"))).await.ends("ERR_POLICY_VIOLATION", 0, 0);
    let mut bound = settings();
    bound.secrets.hosts = vec!["token=shop.example".to_owned()];
    let elsewhere = Stage::new(registry(&bound)).with(MarkPaid::new()).secret("token", SECRET);
    elsewhere.run(&plan(&server.url("/orders/7"))).await.ends("ERR_POLICY_VIOLATION", 0, 0);
    let alone = Stage::new(Registry::new()).with(MarkPaid::new()).secret("token", SECRET);
    alone.run(&plan(&server.url("/orders/7"))).await.ends("ERR_POLICY_VIOLATION", 0, 0);
    // AOS-83: the step decides which secrets its skill may use, not the skill and not what it has read.
    let mut silent = plan(&server.url("/orders/7"));
    silent["steps"][0]["parameters"]["as"] = json!("nobody");
    stage_of(MarkPaid::new()).run(&silent).await.ends("ERR_VALIDATION_FAILED", 0, 0);
    // AOS-68: what a skill does not declare nobody could withhold, so it does not have it.
    let undeclared = stage_of(MarkPaid::with_permissions(&[]));
    undeclared.run(&plan(&server.url("/orders/7"))).await.ends("ERR_POLICY_VIOLATION", 0, 0);
    assert_eq!(server.requests().len(), requests.len());
}

/// The check makes real calls with the client that a plan would have, so that it sees what they come to.
#[tokio::test]
async fn the_check_calls_out() {
    let server = Server::answering(answer(302, &[], "")).await;
    let sample = crate::world::object(json!({"url": server.url("/orders/7"), "as": "secret://token"}));
    let secrets = Held::default().with("token", SECRET);
    let checked = check_skill(&*MarkPaid::new(), &[sample], &registry(&settings()), &secrets, PATIENT).await;
    checked.unwrap_or_else(|findings| panic!("{findings}"));
    assert_eq!(server.only_request().header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
}

/// AOS-42: what a skill reports is about the whole call. A request that was never sent does not undo the one before it.
#[tokio::test]
async fn a_later_request_that_fails_proves_nothing_about_an_earlier_one() {
    for (status, code) in [(200, "ERR_UNKNOWN"), (404, "ERR_POLICY_VIOLATION")] {
        let server = Server::answering(answer(status, &[], "")).await;
        let mut plan = plan(&server.url("/orders/7"));
        plan["steps"][0]["parameters"]["then"] = json!("https://evil.example/");
        let stage = Stage::new(registry(&settings())).with(MarkPaid::new()).secret("token", SECRET);
        stage.run(&plan).await.ends(code, 0, 0).replays();
        server.only_request();
    }
}

/// AOS-42: a skill that waits no longer for its request does not know what became of it, whatever it reports.
#[tokio::test]
async fn a_request_that_is_dropped_half_way_may_have_taken_effect() {
    let server = Server::start(vec![Reply::ThenHang(Vec::new())]).await;
    let mut plan = plan(&server.url("/orders/7"));
    plan["steps"][0]["parameters"]["patience_ms"] = json!(300);
    let stage = Stage::new(registry(&settings())).with(MarkPaid::new()).secret("token", SECRET);
    stage.run(&plan).await.ends("ERR_UNKNOWN", 0, 0).replays();
}

/// AOS-42, AOS-80: the same holds where the later request is answered. That what it looks for is not there proves nothing
/// about what was done before, and the other way round it does.
#[tokio::test]
async fn an_answer_to_a_later_request_proves_nothing_about_an_earlier_one() {
    for (first, proves) in [(200, false), (404, true)] {
        let server =
            Server::start(vec![Reply::Bytes(answer(first, &[], "")), Reply::Bytes(answer(404, &[], ""))]).await;
        let mut plan = plan(&server.url("/orders/7"));
        plan["steps"][0]["parameters"]["then"] = json!(server.url("/receipts/7"));
        let stage = Stage::new(registry(&settings())).with(MarkPaid::new()).secret("token", SECRET);
        let performed = stage.run(&plan).await;
        performed.ends("ERR_HTTP_404", 0, 0).replays();
        assert_eq!(server.requests().len(), 2);
        let causes: Vec<_> = performed
            .run
            .bodies()
            .filter_map(|body| match body {
                Body::AttemptObserved { cause, .. } => Some(cause.proves_no_effect()),
                _ => None,
            })
            .collect();
        assert_eq!(causes, [proves], "{first}");
    }
}

/// A whole plan under a virtual clock, and a script made of what happened to it.
#[tokio::test(start_paused = true)]
async fn a_plan_is_tried_on_a_stage_and_recorded() {
    let fetch = |script: &str| ScriptedSkill::new("fetch", "1.0.0").script(script).unwrap();
    let plan = json!({
        "plan_id": "patient", "agent_id": "reader", "goal": "Read",
        "steps": [{"step_id": "read", "skill_id": "fetch", "skill_version": "1.0.0", "parameters": {},
                   "retry_policy": {"max_retries": 3, "backoff_base_ms": 60000, "retryable_codes": ["ERR_HTTP_503"]}}],
        "context": {"budget_cents": 1, "allowed_skills": ["fetch"]},
    });
    let begun = Instant::now();
    let skill = Arc::new(fetch("503, 503, 200"));
    let stage = Stage::new(Registry::new()).with(skill.clone()).price("fetch@1.0.0", json!({"per_request": 7}));
    let performed = stage.run(&plan).await;
    performed.ends("OK", 2, 21).step("read", "OK", 3).replays();
    assert!(begun.elapsed().as_secs() >= 180, "the waits took place, and nobody waited");
    let attempt = ["limiter_verdict", "attempt_observed", "attempt_judged"];
    // AOS-49: there must be money for a retry before it is waited for.
    let retry = ["budget_checked", "retry_scheduled"];
    let mut kinds = vec!["run_started", "admission", "step_started", "budget_checked"];
    for part in [&attempt[..], &retry, &attempt, &retry, &attempt, &["step_finished", "run_finished"]] {
        kinds.extend(part);
    }
    performed.journal(&kinds);

    let acts = script_of(&performed.run, "read", &|_| None);
    let again = acts.into_iter().fold(ScriptedSkill::new("fetch", "1.0.0"), ScriptedSkill::act);
    let stage = Stage::new(Registry::new()).with(Arc::new(again)).price("fetch@1.0.0", json!({"per_request": 7}));
    let repeated = stage.run(&plan).await;
    assert_eq!(repeated.result.behavior_digest, performed.result.behavior_digest);

    let failed = Stage::new(Registry::new()).with(Arc::new(fetch("404"))).run(&plan).await;
    let wrong =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| failed.ends("OK", 0, 0).step("read", "OK", 1)));
    assert!(wrong.is_err(), "an assertion that does not hold says so");
}
