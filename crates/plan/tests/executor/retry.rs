//! Trying again: a new run that takes over what its parent has done, and settling what nobody knows.

use macp_plan::executor::{Executor, Start, StartError, StartMode};
use macp_plan::store::{Outcome, Status, StoreError};
use macp_plan_core::journal::StopReason;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::world::{World, begin, codes, ended, frozen, output_of, step_of};

pub(crate) async fn retry(
    executor: &Executor,
    value: &Value,
    parent: &str,
    from: Option<&str>,
) -> Result<String, StartError> {
    let (parent_run_id, from_step) = (parent.to_owned(), from.map(str::to_owned));
    let mode = StartMode::Retry { parent_run_id, from_step };
    Ok(executor.start(Start { mode, ..Start::execute(frozen(value.clone()), "olga") }).await?.run_id)
}

/// AOS-81: the failed run stays as it is; the new one reuses what was finished, outputs included, and does the rest.
#[tokio::test(start_paused = true)]
async fn finished_steps_are_taken_over() {
    for world in World::both() {
        let executor = world.executor();
        let text = "m".repeat(30_000);
        let value = plan(
            100,
            vec![
                step("read", "http_call", json!({"script": "give", "value": text})),
                step("wrote", "post_call", json!({"script": "200"})),
                call("fails", "404, 404, 200"),
                step("uses", "http_call", json!({"script": "give", "value": "{{read.value}}"})),
            ],
        );
        let first = begin(&executor, value.clone()).await;
        assert_eq!(ended(&executor, &first).await.status, Status::Failed);
        let before = super::world::lines(&executor, &first).await;

        let second = retry(&executor, &value, &first, None).await.unwrap();
        let result = ended(&executor, &second).await;
        let expected = [("read", "OK_SKIP_DUPLICATE"), ("wrote", "OK_SKIP_DUPLICATE"), ("fails", "ERR_HTTP_404")];
        assert_eq!((codes(&result), result.parent_run_id.as_deref()), (expected.to_vec(), Some(first.as_str())));
        assert_eq!(result.total_cost_microcents, 0, "what is taken over costs nothing");

        // Trying the second again takes over what the first had done.
        let third = retry(&executor, &value, &second, None).await.unwrap();
        let result = ended(&executor, &third).await;
        let expected = [
            ("read", "OK_SKIP_DUPLICATE"),
            ("wrote", "OK_SKIP_DUPLICATE"),
            ("fails", "OK_HTTP_CALL"),
            ("uses", "OK_HTTP_CALL"),
        ];
        assert_eq!((codes(&result), result.status), (expected.to_vec(), Status::Succeeded));
        assert_eq!(step_of(&result, "read").outcome.details["reused_run_id"], first);
        assert_eq!(output_of(&executor, step_of(&result, "uses")).await["value"], text);
        assert_eq!(world.stage.calls(), 6, "read, wrote, three times fails, uses");
        assert_eq!(super::world::lines(&executor, &first).await, before);
    }
}

fn on_success_of(step_id: &str, mut step: Value) -> Value {
    step["run_if"] = json!({"step_id": step_id, "status_in": ["success"]});
    step
}

/// AOS-16, AOS-114: what is taken over counts as what it was to the conditions of later steps, over any number of
/// retries, and so does an effect that another run of the plan brought about.
#[tokio::test(start_paused = true)]
async fn conditions_hold_for_what_is_taken_over() {
    for world in World::both() {
        let executor = world.executor();
        let value = plan(
            100,
            vec![
                call("read", "200"),
                step("wrote", "post_call", json!({"script": "200"})),
                call("fails", "404, 404, 200"),
                on_success_of("read", call("after_read", "200")),
                on_success_of("wrote", call("after_wrote", "200")),
            ],
        );
        let mut run_id = begin(&executor, value.clone()).await;
        ended(&executor, &run_id).await;
        for _ in 0..2 {
            run_id = retry(&executor, &value, &run_id, None).await.unwrap();
            ended(&executor, &run_id).await;
        }
        let result = ended(&executor, &run_id).await;
        let expected = [
            ("read", "OK_SKIP_DUPLICATE"),
            ("wrote", "OK_SKIP_DUPLICATE"),
            ("fails", "OK_HTTP_CALL"),
            ("after_read", "OK_HTTP_CALL"),
            ("after_wrote", "OK_HTTP_CALL"),
        ];
        assert_eq!(codes(&result), expected);

        // The same plan once more claims the effect, and finds it done.
        let again = begin(&executor, value).await;
        let result = ended(&executor, &again).await;
        assert_eq!(step_of(&result, "wrote").final_code, "OK_SKIP_DUPLICATE");
        assert_eq!(step_of(&result, "after_wrote").final_code, "OK_HTTP_CALL");
    }
}

/// From a step on everything is done anew, but for effects that took place: repeating those needs a new epoch.
#[tokio::test(start_paused = true)]
async fn from_a_step_on_everything_is_done_anew() {
    for world in World::both() {
        let executor = world.executor();
        let value =
            plan(100, vec![call("a", "200"), call("b", "200"), step("c", "post_call", json!({})), call("d", "200")]);
        let first = begin(&executor, value.clone()).await;
        assert_eq!(ended(&executor, &first).await.status, Status::Succeeded);
        let expected =
            [("a", "OK_SKIP_DUPLICATE"), ("b", "OK_HTTP_CALL"), ("c", "OK_SKIP_DUPLICATE"), ("d", "OK_HTTP_CALL")];
        for calls in [6, 8] {
            let again = retry(&executor, &value, &first, Some("b")).await.unwrap();
            assert_eq!(codes(&ended(&executor, &again).await), expected);
            assert_eq!(world.stage.calls(), calls, "what can be repeated is, every time");
        }
        assert_eq!(world.stage.counts().values().filter(|count| **count == 1).count(), 2, "a and c");
    }
}

/// AOS-80: nobody tries an effect again while it is in doubt; what the operator says decides whether it is done again.
#[tokio::test]
async fn what_is_in_doubt_is_settled_first() {
    for (outcome, code, calls) in [(Outcome::Success, "OK_SKIP_DUPLICATE", 2), (Outcome::Failure, "OK", 3)] {
        for world in World::both() {
            let executor = world.executor();
            let first = step("s1", "mail_send", json!({"script": "gate, 200"}));
            let value = plan(10, vec![first, on_success_of("s1", call("s2", "200"))]);
            let first = begin(&executor, value.clone()).await;
            world.stage.wait_for_calls(1).await;
            executor.shutdown().await;
            let executor = world.executor();
            executor.recover().await.unwrap();
            let result = ended(&executor, &first).await;
            assert_eq!((result.status, result.stop.unwrap().reason), (Status::InDoubt, StopReason::InDoubt));
            assert_eq!(result.not_reached, ["s2"]);

            let refused = retry(&executor, &value, &first, None).await;
            assert!(matches!(refused, Err(StartError::InDoubt { .. })), "{refused:?}");
            // Nor does another run of the plan bring it about meanwhile; it says who knows.
            let other = begin(&executor, value.clone()).await;
            let other = ended(&executor, &other).await;
            assert_eq!(codes(&other), [("s1", "ERR_IDEMPOTENCY_CONFLICT")]);
            assert!(step_of(&other, "s1").outcome.message.contains("macp run resolve"), "{other:?}");
            assert_eq!(world.stage.calls(), 1);

            let wrong = executor.settle(&first, "s2", outcome, "", "olga").await;
            assert!(matches!(wrong, Err(StoreError::NotInDoubt { .. })), "{wrong:?}");
            assert!(executor.settle(&first, "s1", outcome, "asked the provider", "olga").await.unwrap().is_none());
            let earlier = executor.settle(&first, "s1", Outcome::Success, "", "otto").await.unwrap();
            assert_eq!(earlier.unwrap().by, "olga", "the first word stands");

            let second = retry(&executor, &value, &first, None).await.unwrap();
            let result = ended(&executor, &second).await;
            assert_eq!(codes(&result), [("s1", code), ("s2", "OK_HTTP_CALL")]);
            assert_eq!(world.stage.calls(), calls);
        }
    }
}

/// A run that was rejected can be tried again once what was missing is there.
#[tokio::test(start_paused = true)]
async fn a_rejected_run_is_tried_again() {
    let world = World::memory().with_registry(|_, _| {});
    let value = plan(0, vec![call("s1", "200")]);
    let executor = world.executor();
    let first = begin(&executor, value.clone()).await;
    assert_eq!(executor.finished(&first).await.unwrap().unwrap().status, Status::Rejected);
    executor.shutdown().await;
    let world = world.with_registry(|registry, stage| {
        for pure in super::world::kit() {
            registry.register(super::world::actor(pure, stage), None).unwrap();
        }
    });
    let executor = world.executor();
    let second = retry(&executor, &value, &first, None).await.unwrap();
    assert_eq!(codes(&ended(&executor, &second).await), [("s1", "OK_HTTP_CALL")]);
}
