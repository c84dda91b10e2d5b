//! ValidatePlan, DryRun and the skills: what is known before anything runs.

use macp_plan_core::freeze::Profile;
use macp_wire::plan::v1::*;
use serde_json::{Value, json};

use crate::common::*;

#[tokio::test]
async fn an_authored_plan_is_frozen_and_a_frozen_one_is_left_as_it_is() {
    let world = World::start().await;
    let validate = async |plan_json: String| {
        world
            .plans
            .clone()
            .validate_plan(ValidatePlanRequest { plan_json, keep: false })
            .await
            .expect("an answer")
            .into_inner()
    };
    let found = validate(world.authored(&["/a"]).to_string()).await;
    assert!(found.valid && found.plan_hash.starts_with("sha256:"), "{found:?}");
    let again = validate(found.frozen_plan_json.clone()).await;
    assert_eq!((again.plan_hash, again.frozen_plan_json), (found.plan_hash, found.frozen_plan_json));

    // What names no id gets one that follows from its text.
    let mut anonymous = world.authored(&["/a"]);
    anonymous.as_object_mut().expect("an object").remove("plan_id");
    let (first, second) = (validate(anonymous.to_string()).await, validate(anonymous.to_string()).await);
    assert!(first.valid);
    assert_eq!(first.plan_hash, second.plan_hash);
    assert!(world.target.asked().is_empty(), "nothing is called");
    world.shut_down().await;
}

/// AOS-32, AOS-14: what is frozen at a server is frozen by the agent's profile there, and names the builds there.
#[tokio::test]
async fn a_server_freezes_by_profile_and_pins_its_builds() {
    let profile = Profile {
        allowed_skills: Some(vec!["http_call".to_owned()]),
        max_retries_per_step: Some(1),
        ..Profile::default()
    };
    let world = World::with(|settings| {
        let plans = settings.plans.as_mut().expect("plans are on");
        plans.profiles.insert("agent-1".to_owned(), profile);
    })
    .await;
    let validate = async |plan: &Value| {
        let request = ValidatePlanRequest { plan_json: plan.to_string(), keep: false };
        world.plans.clone().validate_plan(request).await.expect("an answer").into_inner()
    };
    let mut authored = world.authored(&["/a"]);
    let answer = validate(&authored).await;
    let frozen = parse(&answer.frozen_plan_json);
    assert_eq!(frozen["steps"][0]["retry_policy"]["max_retries"], 1, "{frozen:#}");
    let build = frozen["pins"]["skill_builds"]["http_call@1.2.0"].as_str().expect("a build");
    assert!(build.starts_with("sha256:"));
    authored["context"]["allowed_skills"] = json!(["http_call", "llm_invoke"]);
    let outside = validate(&authored).await;
    assert!(!outside.valid && outside.findings.iter().any(|found| found.reason == "skill_outside_profile"));
    authored["agent_id"] = json!("agent-2");
    let other = validate(&authored).await;
    assert!(other.valid, "{:?}", other.findings);
    assert_ne!(parse(&other.frozen_plan_json)["steps"][0]["retry_policy"]["max_retries"], 1);
    // What is frozen stays what it is, whatever profiles say.
    let mut foreign = parse(&other.frozen_plan_json);
    foreign["agent_id"] = json!("agent-1");
    assert!(validate(&foreign).await.valid);
    world.shut_down().await;
}

#[tokio::test]
async fn aos_68_every_finding_names_step_rule_and_fix() {
    let world = World::start().await;
    let mut plan = world.authored(&["/a", "/b"]);
    plan["steps"][0]["skill_version"] = json!("9.9.9");
    plan["steps"][1]["skill_id"] = json!("no_such_skill");
    let request = ValidatePlanRequest { plan_json: plan.to_string(), keep: false };
    let found = world.plans.clone().validate_plan(request).await.expect("an answer").into_inner();
    assert!(!found.valid);
    assert_eq!((found.plan_hash.as_str(), found.frozen_plan_json.as_str()), ("", ""));
    for step_id in ["s1", "s2"] {
        let finding = found.findings.iter().find(|finding| finding.error && finding.step_id == step_id);
        let finding = finding.unwrap_or_else(|| panic!("nothing about {step_id}: {:?}", found.findings));
        assert!(
            finding.rule.starts_with("AOS-") && !finding.problem.is_empty() && !finding.fix.is_empty(),
            "{finding:?}"
        );
    }
    let available = found.findings.iter().find(|finding| finding.step_id == "s1").expect("a finding");
    assert_eq!(available.available, ["1.2.0"], "{available:?}");

    // A frozen plan is not repaired in silence.
    let mut altered = parse(&world.plan(&["/a"]).await);
    altered["steps"][0]["on_error"] = json!("hope");
    let request = ValidatePlanRequest { plan_json: altered.to_string(), keep: false };
    let found = world.plans.clone().validate_plan(request).await.expect("an answer").into_inner();
    assert!(!found.valid && found.frozen_plan_json.is_empty());
    world.shut_down().await;
}

#[tokio::test]
async fn aos_86_a_dry_run_estimates_and_compares_and_calls_nothing() {
    let world = World::start().await;
    let plan_json = world.plan(&["/a", "/b"]).await;
    let dry_run = async |plan_json: &str, against: &str| {
        let request = DryRunRequest { plan_json: plan_json.to_owned(), against_run_id: against.to_owned() };
        world.plans.clone().dry_run(request).await.map(tonic::Response::into_inner)
    };
    let answer = dry_run(&plan_json, "").await.expect("an estimate");
    let estimate = parse(&answer.estimate_json);
    assert_eq!(estimate["verdict"], "estimate");
    assert_eq!(estimate["steps"].as_array().expect("steps").len(), 2);
    assert_eq!(estimate["steps"][0]["code"], "OK_DRY_RUN");
    assert_eq!(answer.comparison_json, "");
    assert!(world.target.asked().is_empty(), "nothing is called");

    world.target.script(&[503]);
    let run_id = world.run(plan_json.clone()).await;
    world.finished(&run_id).await;
    let answer = dry_run(&plan_json, &run_id).await.expect("an estimate");
    assert!(parse(&answer.comparison_json).is_array());
    // The text that the server froze itself is the same plan to it.
    let answer = dry_run(&world.authored(&["/a", "/b"]).to_string(), &run_id).await.expect("an estimate");
    assert!(parse(&answer.comparison_json).is_array());

    refused(dry_run(&world.plan(&["/c"]).await, &run_id).await, "RUN_CONFLICT");
    refused(dry_run(&plan_json, "nowhere").await, "RUN_NOT_FOUND");
    refused(dry_run("{}", "").await, "PLAN_INVALID");
    world.shut_down().await;
}

#[tokio::test]
async fn a_frozen_plan_that_cannot_run_is_estimated_as_far_as_it_can_be() {
    let world = World::start().await;
    let frozen = parse(&world.plan(&["/a", "/b"]).await);
    let mut twice = frozen.clone();
    twice["steps"][1]["step_id"] = json!("s1");
    let mut unknown = frozen;
    unknown["steps"][1]["skill_version"] = json!("9.9.9");
    let dry_run = async |plan: serde_json::Value| {
        let request = DryRunRequest { plan_json: plan.to_string(), against_run_id: String::new() };
        world.plans.clone().dry_run(request).await
    };
    let status = refused(dry_run(twice).await, "PLAN_INVALID");
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("cannot run here") && status.message().contains("s1"), "{status:?}");

    // AOS-86: the first code that would block a step, beside everything that is wrong.
    let estimate = parse(&dry_run(unknown).await.expect("an estimate").into_inner().estimate_json);
    assert_eq!(estimate["steps"][0]["code"], "OK_DRY_RUN");
    assert_eq!(estimate["steps"][1]["code"], "ERR_SKILL_NOT_FOUND");
    assert_eq!(estimate["findings"][0]["step_id"], "s2");
    world.shut_down().await;
}

#[tokio::test]
async fn nothing_is_said_twice_about_a_plan() {
    let world = World::start().await;
    let paths: Vec<&str> = std::iter::repeat_n("/a", 100).collect();
    let mut plan = parse(&world.plan(&paths).await);
    for step in plan["steps"].as_array_mut().expect("steps") {
        step["skill_version"] = json!("9.9.9");
    }
    let request = ValidatePlanRequest { plan_json: plan.to_string(), keep: false };
    let found = world.plans.clone().validate_plan(request).await.expect("an answer").into_inner();
    assert!(!found.valid);
    let said: std::collections::HashSet<_> =
        found.findings.iter().map(|finding| (&finding.reason, &finding.step_id, &finding.problem)).collect();
    assert_eq!(said.len(), found.findings.len(), "{:?}", found.findings);
    for index in 1..=100 {
        let step_id = format!("s{index}");
        assert!(found.findings.iter().any(|finding| finding.error && finding.step_id == step_id), "{step_id}");
    }
    world.shut_down().await;
}

#[tokio::test]
async fn skills_are_listed_and_described() {
    let world = World::with(|settings| {
        let plans = settings.plans.as_mut().expect("plans are executed");
        plans.skills.disabled = vec!["llm_invoke".to_owned()];
    })
    .await;
    let listed = world.plans.clone().list_skills(ListSkillsRequest {}).await.expect("a list").into_inner().skills;
    let listed: Vec<_> = listed.iter().map(|skill| (skill.skill_id.as_str(), skill.enabled)).collect();
    assert_eq!(listed, [("http_call", true), ("json_transform", true), ("llm_invoke", false)]);

    let describe = async |skill_id: &str, version: &str| {
        let request = DescribeSkillRequest { skill_id: skill_id.to_owned(), version: version.to_owned() };
        world.plans.clone().describe_skill(request).await.map(tonic::Response::into_inner)
    };
    for version in ["", "1.2.0"] {
        let found = describe("http_call", version).await.expect("metadata");
        assert!(found.enabled);
        let metadata = parse(&found.metadata_json);
        assert_eq!((&metadata["skill_id"], &metadata["version"]), (&json!("http_call"), &json!("1.2.0")));
    }
    assert!(!describe("llm_invoke", "").await.expect("metadata").enabled);
    let status = refused(describe("http_call", "1.2.1").await, "SKILL_NOT_FOUND");
    assert!(status.message().contains("1.2.0"), "no other version stands in, but it is named: {status:?}");
    refused(describe("nothing", "").await, "SKILL_NOT_FOUND");
    world.shut_down().await;
}
