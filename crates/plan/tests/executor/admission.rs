//! Admission: what keeps a plan from running here, and that nothing has happened then.

use std::sync::Arc;

use macp_plan::executor::AgentLimits;
use macp_plan::result::RunResult;
use macp_plan::store::Status;
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::StopReason;
use macp_plan_core::replay::WhatIf;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::world::{World, begin, count, ended};

/// A plan that is refused, on both stores: no step, no intent, no call.
async fn rejected(value: &Value) -> RunResult {
    let mut last = None;
    for world in World::both() {
        let executor = world.executor();
        let run_id = begin(&executor, value.clone()).await;
        let result = executor.finished(&run_id).await.unwrap().unwrap();
        assert_eq!((result.status, result.steps.len()), (Status::Rejected, 0));
        // What is rejected for want of a pin cannot be replayed for want of it either (AOS-99).
        let report = executor.mock_replay(&run_id, WhatIf::default()).await.unwrap();
        let pinned = report.pin_violations.is_empty();
        assert_eq!(report.verdict, if pinned { Verdict::Match } else { Verdict::NotComparable }, "{report:#?}");
        assert_eq!(result.stop.as_ref().unwrap().reason, StopReason::Preflight);
        assert_eq!(count(&executor, &run_id, "effect_intent").await, 0);
        assert_eq!(count(&executor, &run_id, "step_started").await, 0);
        assert_eq!(world.stage.calls(), 0);
        assert_eq!(result.total_cost_microcents, 0);
        assert!(!result.findings.is_empty());
        last = Some(result);
    }
    last.unwrap()
}

/// Test 22, AOS-69.
#[tokio::test(start_paused = true)]
async fn allowed_skills_enforced() {
    let mut value = plan(10, vec![call("s1", "200"), step("s2", "mail_send", json!({}))]);
    value["context"]["allowed_skills"] = json!(["http_call"]);
    let result = rejected(&value).await;
    assert_eq!(result.final_code.as_deref(), Some("ERR_PERMISSION_DENIED"));
    assert_eq!(result.findings[0].step_id.as_deref(), Some("s2"));
}

/// AOS-99, first row: what could be had instead is listed, for programs too.
#[tokio::test(start_paused = true)]
async fn a_missing_version_lists_those_that_are_there() {
    let mut value = plan(10, vec![call("s1", "200")]);
    value["steps"][0]["skill_version"] = json!("9.9.9");
    let result = rejected(&value).await;
    assert_eq!(result.final_code.as_deref(), Some("ERR_SKILL_NOT_FOUND"));
    assert_eq!(result.findings[0].available, ["1.2.0"]);
}

#[tokio::test(start_paused = true)]
async fn empty_allowed_skills_rejects() {
    let mut value = plan(10, vec![call("s1", "200")]);
    value["context"]["allowed_skills"] = json!([]);
    assert_eq!(rejected(&value).await.final_code.as_deref(), Some("ERR_PERMISSION_DENIED"));
}

/// Test 23, AOS-68: any check that fails leaves nothing behind, and all findings are listed, the first giving the code.
#[tokio::test(start_paused = true)]
async fn preflight_has_no_effects() {
    let good = || vec![call("s1", "200"), step("s2", "post_call", json!({}))];
    let with = |change: fn(&mut Value)| {
        let mut value = plan(10, good());
        change(&mut value);
        value
    };
    let cases: [(&str, Value); 7] = [
        ("ERR_SKILL_NOT_FOUND", with(|plan| plan["steps"][1]["skill_version"] = json!("9.9.9"))),
        ("ERR_VALIDATION_FAILED", with(|plan| plan["steps"][1]["parameters"] = json!({"refuse": true}))),
        ("ERR_VALIDATION_FAILED", with(|plan| plan["steps"][0]["parameters"] = json!({"x": "{{s2.later}}"}))),
        ("ERR_VALIDATION_FAILED", with(|plan| plan["pins"]["taxonomy_version"] = json!("7.0.0"))),
        ("ERR_VALIDATION_FAILED", with(|plan| plan["pins"]["jitter"] = json!("dice/1"))),
        ("ERR_VALIDATION_FAILED", with(|plan| plan["pins"]["rate_card"]["id"] = json!("rc-unknown"))),
        ("ERR_PERMISSION_DENIED", with(|plan| plan["context"]["allowed_skills"] = json!(["post_call"]))),
    ];
    for (code, value) in cases {
        assert_eq!(rejected(&value).await.final_code.as_deref(), Some(code), "{value}");
    }
    let twice = with(|plan| {
        plan["steps"][0]["skill_version"] = json!("9.9.9");
        plan["steps"][1]["parameters"] = json!({"refuse": true});
    });
    let result = rejected(&twice).await;
    let codes: Vec<_> = result.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["ERR_SKILL_NOT_FOUND", "ERR_VALIDATION_FAILED"]);
}

/// AOS-99: a skill that is switched off is not called.
#[tokio::test(start_paused = true)]
async fn a_disabled_skill_rejects() {
    let world = World::memory().with_registry(|registry, stage| {
        for pure in super::world::kit() {
            registry.register(super::world::actor(pure, stage), None).unwrap();
        }
        registry.disable(&["http_call".to_owned()]).unwrap();
    });
    let result = world.run(plan(0, vec![call("s1", "200")])).await;
    assert_eq!((result.status, result.final_code.as_deref()), (Status::Rejected, Some("ERR_SKILL_DISABLED")));
    assert_eq!(world.stage.calls(), 0);
}

/// AOS-68: a permission that is not granted rejects a plan; one that is withdrawn while a run is at work ends its next
/// call before it goes out.
#[tokio::test]
async fn permissions_are_asked_at_admission_and_before_every_call() {
    let granting = |permissions: &[&str]| {
        let permissions: Vec<String> = permissions.iter().map(|it| (*it).to_owned()).collect();
        move |registry: &mut macp_plan::registry::Registry, stage: &_| {
            for mut pure in super::world::kit() {
                pure.metadata.permissions = vec!["network:outbound".to_owned()];
                registry.register(super::world::actor(pure, stage), None).unwrap();
            }
            registry.grant(Some(permissions));
        }
    };
    let two = || plan(0, vec![call("s1", "gate"), call("s2", "200")]);
    let without = World::memory().with_registry(granting(&["files:read"]));
    let result = without.run(two()).await;
    assert_eq!((result.status, result.final_code.as_deref()), (Status::Rejected, Some("ERR_PERMISSION_DENIED")));
    assert_eq!(without.stage.calls(), 0);

    let world = World::memory().with_registry(granting(&["network:outbound"]));
    let executor = world.executor();
    let run_id = begin(&executor, two()).await;
    world.stage.wait_for_calls(1).await;
    executor.shutdown().await;
    let calls = world.stage.calls();
    let world = world.with_registry(granting(&[]));
    let executor = world.executor();
    executor.recover().await.unwrap();
    let result = ended(&executor, &run_id).await;
    assert_eq!((result.status, result.final_code.as_deref()), (Status::Failed, Some("ERR_PERMISSION_DENIED")));
    assert_eq!(world.stage.calls(), calls, "nothing more goes out");
}

/// AOS-99: another build of the pinned version is a warning that the result shows.
#[tokio::test(start_paused = true)]
async fn another_build_is_a_warning() {
    let digest = |text: &str| macp_plan_core::digest::of_bytes("test", text.as_bytes());
    let world = World::memory().with_registry(|registry, stage| {
        for pure in super::world::kit() {
            registry.register(super::world::actor(pure, stage), Some(digest("here"))).unwrap();
        }
    });
    let mut value = plan(0, vec![call("s1", "200")]);
    value["pins"]["skill_builds"] = json!({"http_call@1.2.0": digest("pinned")});
    let executor = world.executor();
    let run_id = begin(&executor, value).await;
    let result = executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!(result.status, Status::Succeeded);
    assert_eq!(result.findings.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(), ["skill_build_changed"]);
}

/// AOS-19: nobody has to set a limit for one agent to leave places to the others.
#[tokio::test]
async fn an_agent_has_a_share_of_the_places_by_default() {
    let mut world = World::memory();
    world.settings.runs_live_max = 8;
    let executor = world.executor();
    let of = |agent: &str, number: usize, script: &str| {
        let mut value = plan(0, vec![call("s1", script)]);
        value["agent_id"] = json!(agent);
        value["plan_id"] = json!(format!("p-{number}"));
        value
    };
    let mut waiting = Vec::new();
    for number in 0..2 {
        waiting.push(begin(&executor, of("greedy", number, "gate")).await);
        world.stage.wait_for_calls(1).await;
    }
    for number in 2..10 {
        let run_id = begin(&executor, of("greedy", number, "200")).await;
        let result = ended(&executor, &run_id).await;
        assert_eq!(result.final_code.as_deref(), Some("ERR_RATE_LIMIT_CONCURRENT"), "{number}");
    }
    let other = begin(&executor, of("modest", 0, "200")).await;
    assert_eq!(ended(&executor, &other).await.status, Status::Succeeded);
    world.stage.gate.add_permits(2);
    for run_id in waiting {
        assert_eq!(ended(&executor, &run_id).await.status, Status::Succeeded);
    }
}

/// AOS-19: so many runs of an agent are admitted and not one more, however they race; other agents are not concerned.
#[tokio::test]
async fn runs_of_an_agent_are_limited_exactly() {
    let mut world = World::memory();
    world.settings.agent = AgentLimits { runs_max: Some(3), ..AgentLimits::default() };
    let world = Arc::new(world);
    let executor = world.executor();
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..12 {
        let executor = executor.clone();
        starts.spawn(async move {
            let mut value = plan(0, vec![call("s1", "gate")]);
            value["plan_id"] = json!(format!("p-{number}"));
            begin(&executor, value).await
        });
    }
    let run_ids = starts.join_all().await;
    let mut other = plan(0, vec![call("s1", "200")]);
    other["agent_id"] = json!("another");
    let other = begin(&executor, other).await;
    assert_eq!(ended(&executor, &other).await.status, Status::Succeeded);
    world.stage.gate.add_permits(12);
    let mut admitted = 0;
    for run_id in run_ids {
        let result = ended(&executor, &run_id).await;
        match result.status {
            Status::Succeeded => admitted += 1,
            _ => assert_eq!(result.final_code.as_deref(), Some("ERR_RATE_LIMIT_CONCURRENT")),
        }
    }
    assert_eq!(admitted, 3);
    let later = begin(&executor, plan(0, vec![call("s1", "200")])).await;
    assert_eq!(ended(&executor, &later).await.status, Status::Succeeded, "their places are free again");
}
