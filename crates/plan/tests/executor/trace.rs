//! AOS-98: what a trace of a run carries.

use macp_plan_core::replay::WhatIf;
use macp_plan_core::testkit::{plan, step};
use serde_json::json;

use super::execution::call;
use super::log::{self, Seen};
use super::world::{World, begin, ended};

#[tokio::test(start_paused = true)]
async fn spans_of_runs_steps_and_attempts() {
    log::listen();
    let world = World::memory();
    let executor = world.executor();
    let steps = vec![call("s1", "503, 200"), step("s2", "post_call", json!({"script": "404"}))];
    let run_id = begin(&executor, plan(10, steps)).await;
    let result = ended(&executor, &run_id).await;
    let report = executor.mock_replay(&run_id, WhatIf::default()).await.unwrap();
    let heard = log::heard();
    let named = |name: &str| -> Vec<&Seen> { heard.iter().filter(|seen| seen.name == name).collect() };
    let [run] = named("run")[..] else { panic!("{heard:#?}") };
    assert_eq!(run.fields["run_id"], run_id);
    assert_eq!(run.fields["trace_id"], result.trace_id);
    assert_eq!(run.fields["plan_id"], "p-kit");
    assert_eq!(run.fields["plan_hash"], result.plan_hash.to_string());
    let [one, two] = named("step")[..] else { panic!("{heard:#?}") };
    assert_eq!((one.parent, one.fields["step_id"].as_str()), (Some(run.id), "s1"));
    assert_eq!((one.fields["code"].as_str(), two.fields["code"].as_str()), ("OK_HTTP_CALL", "ERR_HTTP_404"));
    let attempts = named("attempt");
    let told: Vec<_> = attempts
        .iter()
        .map(|seen| {
            let field = |name: &str| seen.fields.get(name).cloned().unwrap_or_default();
            (field("step_id"), field("attempt"), field("code"), field("backoff_ms"))
        })
        .collect();
    let texts = |texts: [&str; 4]| (texts[0].into(), texts[1].into(), texts[2].into(), texts[3].into());
    assert_eq!(
        told,
        [
            texts(["s1", "0", "ERR_HTTP_503", "100"]),
            texts(["s1", "1", "OK_HTTP_CALL", ""]),
            texts(["s2", "0", "ERR_HTTP_404", ""]),
        ]
    );
    assert_eq!(attempts[0].parent, Some(one.id));
    assert_eq!(attempts[0].fields["effect_key"], result.steps[0].outcome.side_effects[0].effect_key);

    let replayed = heard.iter().rev().find(|seen| seen.fields.contains_key("behavior_match")).unwrap();
    for (name, value) in
        [("original_run_id", &run_id), ("run_id", &report.replay_run_id), ("verdict", &"match".to_owned())]
    {
        assert_eq!(replayed.fields[name], *value);
    }
    assert_eq!(
        (replayed.fields["replay_mode"].as_str(), replayed.fields["plan_id"].as_str()),
        ("mock_replay", "p-kit")
    );
    assert!(replayed.fields["behavior_match"].contains(r#""retry_count":true"#), "{replayed:?}");
}
