//! Whole runs: order, retries, references, conditions, what is recorded of them.

use std::time::Duration;

use macp_plan::executor::Start;
use macp_plan::result::StructuredOutcome;
use macp_plan::store::Status;
use macp_plan_core::cost::CostBasis;
use macp_plan_core::journal::StopReason;
use macp_plan_core::plan::StepStatus;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::world::{World, begin, codes, ended, frozen, output_of, step_of};

pub(crate) fn call(step_id: &str, script: &str) -> Value {
    step(step_id, "http_call", json!({"script": script}))
}

/// Test 16, AOS-67.
#[tokio::test(start_paused = true)]
async fn order_is_declared_order() {
    for world in World::both() {
        let steps = ["zeta", "alpha", "mid"].map(|id| step(id, "http_call", json!({"name": id}))).to_vec();
        let result = world.run(plan(0, steps)).await;
        assert_eq!(result.status, Status::Succeeded);
        let names: Vec<_> = world.stage.sent().iter().map(|sent| sent.parameters["name"].clone()).collect();
        assert_eq!(names, ["zeta", "alpha", "mid"]);
        let ids: Vec<_> = result.steps.iter().map(|step| step.step_id.as_str()).collect();
        assert_eq!(ids, ["zeta", "alpha", "mid"]);
    }
}

/// Test 17, AOS-91 and the table of AOS-41. The replay is compared by `ended`.
#[tokio::test(start_paused = true)]
async fn all_503_counts() {
    for max_retries in 0..=3_u32 {
        for world in World::both() {
            let mut failing = call("s1", "503");
            failing["retry_policy"]["max_retries"] = json!(max_retries);
            let result = world.run(plan(0, vec![failing, call("s2", "200")])).await;
            let first = step_of(&result, "s1");
            assert_eq!((first.retry_count, first.final_code.as_str()), (max_retries, "ERR_HTTP_503"));
            assert_eq!(first.attempts.len(), max_retries as usize + 1);
            assert_eq!(first.outcome.side_effects.len(), max_retries as usize + 1);
            assert_eq!(first.outcome.observability.total_attempts, max_retries + 1);
            assert!(first.outcome.retryable, "exhausted or not (AOS-26)");
            assert_eq!((result.status, result.final_code.as_deref()), (Status::Failed, Some("ERR_HTTP_503")));
            let stop = result.stop.unwrap();
            assert_eq!((stop.reason, stop.step_id.as_deref()), (StopReason::StepFailed, Some("s1")));
            assert_eq!(result.not_reached, ["s2"]);
            assert_eq!(world.stage.calls(), max_retries as usize + 1);
        }
    }
}

/// Test 18, AOS-44: and the waits between attempts are the formula's.
#[tokio::test(start_paused = true)]
async fn recovers_on_third_attempt() {
    for world in World::both() {
        let result = world.run(plan(0, vec![call("s1", "503, 503, 200")])).await;
        let first = step_of(&result, "s1");
        assert_eq!((result.status, first.retry_count), (Status::Succeeded, 2));
        assert_eq!(first.attempts.iter().map(|it| it.backoff_ms).collect::<Vec<_>>(), [Some(100), Some(200), None]);
        assert_eq!(first.outcome.details["output"]["status_code"], 200);
        let times: Vec<_> = world.stage.sent().iter().map(|sent| sent.at).collect();
        assert!(times[1] - times[0] >= Duration::from_millis(100) && times[2] - times[1] >= Duration::from_millis(200));
        let keys = world.stage.keys();
        assert!(keys.iter().all(|key| *key == keys[0]), "a retry carries the same key (AOS-75)");
    }
}

/// AOS-48: a hint lengthens a wait, up to the policy's cap, and the decision stays the formula's.
#[tokio::test(start_paused = true)]
async fn hints_lengthen_waits() {
    let world = World::memory();
    let mut hinted = call("s1", "retry-after 2500 503, retry-after 90000 503, 200");
    hinted["retry_policy"]["max_delay_ms"] = json!(5_000);
    let result = world.run(plan(0, vec![hinted])).await;
    let attempts = &step_of(&result, "s1").attempts;
    assert_eq!(attempts.iter().map(|it| it.backoff_ms).collect::<Vec<_>>(), [Some(100), Some(200), None]);
    let times: Vec<_> = world.stage.sent().iter().map(|sent| sent.at).collect();
    let waits: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!((2_500..3_000).contains(&waits[0]) && (5_000..5_500).contains(&waits[1]), "{waits:?}");
}

/// Test 25, AOS-74.
#[tokio::test(start_paused = true)]
async fn side_effects_in_order_including_failed_attempts() {
    for world in World::both() {
        let steps = vec![
            step("a", "http_call", json!({"script": "503, 200", "host": "one.example"})),
            step("b", "post_call", json!({"script": "500, 503, 200", "host": "two.example", "effects": 2})),
            step("c", "json_transform", json!({"script": "ok"})),
        ];
        let result = world.run(plan(10, steps)).await;
        let effects = |id: &str| -> Vec<(String, u32)> {
            let effects = &step_of(&result, id).outcome.side_effects;
            effects.iter().map(|effect| (effect.target.clone(), effect.attempt)).collect()
        };
        assert_eq!(effects("a"), [("one.example".to_owned(), 0), ("one.example".to_owned(), 1)]);
        let twice =
            (0..3).flat_map(|attempt| [("two.example".to_owned(), attempt), ("two.example".to_owned(), attempt)]);
        assert_eq!(effects("b"), twice.collect::<Vec<_>>());
        assert_eq!(effects("c"), []);
        assert_eq!(step_of(&result, "b").outcome.cost_microcents, 3_000, "every dispatch is charged (AOS-58)");
    }
}

/// AOS-24: an outcome has its fields and no others; what is open is what it says to be.
#[tokio::test(start_paused = true)]
async fn an_outcome_has_no_other_fields() {
    let result = World::memory().run(plan(0, vec![call("s1", "200")])).await;
    let outcome = json!(step_of(&result, "s1").outcome);
    let with = |place: &str| {
        let mut other = outcome.clone();
        *other.pointer_mut(place).unwrap() = {
            let mut inner = other.pointer(place).unwrap().clone();
            inner["another"] = json!(1);
            inner
        };
        serde_json::from_value::<StructuredOutcome>(other)
    };
    assert!(with("").unwrap_err().to_string().contains("another"));
    for open in ["/details", "/metadata", "/observability"] {
        with(open).unwrap();
    }
}

/// Test 24, AOS-15.
#[tokio::test(start_paused = true)]
async fn unresolved_reference_never_dispatched() {
    for world in World::both() {
        let steps = vec![call("s1", "200"), step("s2", "post_call", json!({"body": "{{s1.body.no.such.path}}"}))];
        let result = world.run(plan(10, steps)).await;
        assert_eq!(codes(&result), [("s1", "OK_HTTP_CALL"), ("s2", "ERR_VALIDATION_FAILED")]);
        let second = step_of(&result, "s2");
        assert!(second.attempts.is_empty() && second.outcome.side_effects.is_empty());
        assert_eq!(world.stage.calls(), 1);
    }
}

/// AOS-15, AOS-16: values keep their type, large ones are kept apart from the journal, conditions see codes.
#[tokio::test(start_paused = true)]
async fn references_and_conditions() {
    for world in World::both() {
        let large = "y".repeat(40_000);
        let mut skipped = call("never", "200");
        skipped["run_if"] = json!({"step_id": "first", "code_in": ["ERR_HTTP_503"]});
        let mut failed = call("failed", "404");
        failed["on_error"] = json!("continue");
        let mut after = step("after", "http_call", json!({"script": "give", "value": "n={{first.value.n}}"}));
        after["run_if"] = json!({"step_id": "failed", "status_in": ["failure"]});
        let steps = vec![
            step("first", "http_call", json!({"script": "give", "value": {"n": 1.5, "text": large}})),
            skipped,
            failed,
            after,
            step("last", "http_call", json!({"script": "give", "value": "{{first.value}}"})),
        ];
        let executor = world.executor();
        let run_id = begin(&executor, plan(0, steps)).await;
        let result = ended(&executor, &run_id).await;
        assert_eq!(result.status, Status::Succeeded, "{:?}", result.stop);
        let expected = [
            ("first", "OK_HTTP_CALL"),
            ("never", "OK_SKIP_CONDITION"),
            ("failed", "ERR_HTTP_404"),
            ("after", "OK_HTTP_CALL"),
            ("last", "OK_HTTP_CALL"),
        ];
        assert_eq!(codes(&result), expected);
        assert_eq!(step_of(&result, "after").outcome.details["output"]["value"], "n=1.5");
        let last = step_of(&result, "last");
        assert_eq!(output_of(&executor, last).await["value"], json!({"n": 1.5, "text": large}));
        assert_eq!(last.outcome.details["output_ref"], json!(last.attempts[0].output_ref));
        assert!(!serde_json::to_string(&result).unwrap().contains(&large), "a result has digests of what is large");
        assert!(!super::world::lines(&executor, &run_id).await.contains(&large), "it is kept apart");
        assert_eq!(step_of(&result, "never").outcome.status, StepStatus::Skipped);
        assert_eq!(world.stage.calls(), 4);
    }
}

/// Test 28, AOS-34: what always stops a run stops it although the step says to continue.
#[tokio::test(start_paused = true)]
async fn always_stop_codes() {
    use macp_plan_core::cause::Cause;
    let causes = [
        (Cause::QuotaExceeded, "ERR_QUOTA_EXCEEDED"),
        (Cause::EgressForbidden, "ERR_POLICY_VIOLATION"),
        (Cause::SafetyRejected, "ERR_SAFETY_REJECTED"),
        (Cause::PromptInjection, "ERR_PROMPT_INJECTION"),
    ];
    for (cause, code) in causes {
        let world = World::memory().with_registry(|registry, _| {
            let act = macp_plan::testkit::Act::Answer(macp_plan::skill::Observation::new(cause, "scripted"));
            let skill = macp_plan::testkit::ScriptedSkill::new("http_call", "1.2.0").act(act);
            registry.register(std::sync::Arc::new(skill), None).unwrap();
        });
        let mut first = call("s1", "");
        first["on_error"] = json!("continue");
        let result = world.run(plan(0, vec![first, call("s2", "")])).await;
        assert_eq!((result.status, codes(&result)), (Status::Failed, vec![("s1", code)]));
        assert_eq!(result.stop.unwrap().reason, StopReason::Policy);
        assert_eq!(result.not_reached, ["s2"]);
    }
}

/// AOS-35: a plan that is pinned to the first taxonomy never produces a code of the second.
#[tokio::test(start_paused = true)]
async fn the_first_taxonomy_has_substitutes() {
    let world = World::memory();
    let mut skipped = call("s2", "200");
    skipped["run_if"] = json!({"step_id": "s1", "status_in": ["failure"]});
    let mut value = plan(0, vec![call("s1", "partial"), skipped, call("s3", "500, 200")]);
    value["pins"]["taxonomy_version"] = json!("1.0.0");
    let result = world.run(value).await;
    assert_eq!(codes(&result), [("s1", "OK"), ("s2", "OK"), ("s3", "OK_HTTP_CALL")]);
    assert_eq!(step_of(&result, "s1").outcome.status, StepStatus::Partial);
}

/// The largest plan there may be, and a journal that grows no faster than it does.
#[tokio::test(start_paused = true)]
async fn two_hundred_and_fifty_six_steps() {
    for world in World::both() {
        let steps: Vec<_> = (0..256).map(|number| call(&format!("s{number}"), "200")).collect();
        let result = world.run(plan(0, steps)).await;
        assert_eq!((result.status, result.steps.len(), world.stage.calls()), (Status::Succeeded, 256, 256));
    }
}

/// AOS-57: an answer that never came is charged what was reserved, and one that proves nothing was used is free.
#[tokio::test(start_paused = true)]
async fn cost_bases() {
    let world = World::memory();
    let llm = |id: &str, script: &str| {
        let mut step = macp_plan_core::testkit::llm_step(id, "12345678", 10);
        step["parameters"]["script"] = json!(script);
        step["on_error"] = json!("continue");
        step
    };
    let steps = vec![llm("metered", "usage 100/7"), llm("reserved", "timeout"), llm("nothing", "dns")];
    let result = world.run(plan(100, steps)).await;
    let charged = |id: &str| {
        let attempt = &step_of(&result, id).attempts[0];
        (attempt.cost_microcents, attempt.cost_basis)
    };
    assert_eq!(charged("metered"), (100 * 300 + 7 * 1_500, CostBasis::Metered));
    assert_eq!(charged("reserved"), (2 * 300 + 10 * 1_500, CostBasis::Reserved));
    assert_eq!(charged("nothing"), (0, CostBasis::None));
}

/// AOS-28, AOS-24: the result says what it is about.
#[tokio::test(start_paused = true)]
async fn a_result_tells_everything() {
    let world = World::memory();
    let executor = world.executor();
    let value = plan(0, vec![call("s1", "503, 200")]);
    let start = Start { deadline_ms: Some(60_000), epoch: 7, ..Start::execute(frozen(value.clone()), "alice") };
    let run_id = executor.start(start).await.unwrap().run_id;
    let result = ended(&executor, &run_id).await;
    assert_eq!((result.run_id.as_str(), result.plan_id.as_str(), result.epoch), (run_id.as_str(), "p-kit", 7));
    assert_eq!((result.agent_id.as_str(), result.jitter_seed.as_str()), ("agent-kit", run_id.as_str()));
    assert_eq!((result.plan_hash, result.retry_count), (frozen(value).hash, 1));
    let summary = executor.runs().summary(&run_id).await.unwrap().unwrap();
    assert_eq!((summary.started_by.as_str(), summary.status), ("alice", Status::Succeeded));
    let outcome = &result.steps[0].outcome;
    assert_eq!((outcome.metadata.skill_id.as_str(), outcome.metadata.skill_version.as_str()), ("http_call", "1.2.0"));
    assert!(outcome.latency_ms >= 100, "from the first dispatch to the last answer, waits included");
    let written = serde_json::to_value(&result.steps[0].outcome).unwrap();
    for field in ["run_id", "step_id", "status", "code", "message", "cost_cents", "side_effects", "timestamp"] {
        assert!(written.get(field).is_some(), "{field}");
    }
}
