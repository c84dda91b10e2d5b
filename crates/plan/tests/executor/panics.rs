//! AOS-79: skills that panic where nobody calls them. What they are asked about ends with a code, and nothing else does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use macp_plan::executor::{Executor, Start, StartError, StartMode};
use macp_plan::skill::{Call, Calling, Skill};
use macp_plan::store::Status;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Effect;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use macp_plan_core::testkit::{plan, step};
use serde_json::{Map, Value, json};

use super::execution::call;
use super::world::{Actor, World, actor, begin, codes, ended, frozen, kit, step_of};

/// A skill that panics when it is asked for something, if a parameter says so.
#[derive(Debug)]
struct Panicking {
    actor: Arc<Actor>,
    /// It panics over the next success.
    over_success: Arc<AtomicBool>,
}

impl Panicking {
    fn asked(&self, what: &str, parameters: &Map<String, Value>) {
        assert_ne!(parameters.get("panics"), Some(&json!(what)), "it was asked for its {what}");
    }
}

impl PureSkill for Panicking {
    fn metadata(&self) -> &SkillMetadata {
        self.actor.metadata()
    }

    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        self.asked("effects", parameters);
        self.actor.effects(parameters)
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        self.asked("usage", parameters);
        self.actor.usage_bound(parameters)
    }

    fn success_code(&self) -> &'static str {
        assert!(!self.over_success.swap(false, Ordering::SeqCst), "it was asked for its code");
        self.actor.success_code()
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        self.asked("input", parameters);
        self.actor.check_input(parameters)
    }
}

impl Skill for Panicking {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        self.actor.call(call)
    }
}

/// A world whose `post_call` may panic, over its first success too.
fn world(over_success: bool) -> World {
    let panics = Arc::new(AtomicBool::new(false));
    let world = World::memory().with_registry(|registry, stage| {
        for pure in kit() {
            let may_panic = pure.metadata.skill_id == "post_call";
            let actor = actor(pure, stage);
            if may_panic {
                let over_success = Arc::clone(&panics);
                registry.register(Arc::new(Panicking { actor, over_success }), None).unwrap();
            } else {
                registry.register(actor, None).unwrap();
            }
        }
    });
    // The registry asks as well, and is to hear no panic.
    panics.store(over_success, Ordering::SeqCst);
    world
}

/// Waits until nobody is at work any more.
async fn idle(executor: &Executor) {
    while executor.live() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A plan that a skill panics over is rejected, and says at which step.
#[tokio::test(start_paused = true)]
async fn a_plan_is_rejected_that_a_skill_panics_over() {
    for what in ["effects", "usage", "input"] {
        let world = world(false);
        let executor = world.executor();
        let bad = plan(10, vec![call("s1", "200"), step("s2", "post_call", json!({"panics": what}))]);
        let run_id = begin(&executor, bad).await;
        let result = ended(&executor, &run_id).await;
        assert_eq!((result.status, result.final_code.as_deref()), (Status::Rejected, Some("ERR_INTERNAL")), "{what}");
        assert_eq!(result.findings[0].step_id.as_deref(), Some("s2"), "{what}");
        assert_eq!(world.stage.calls(), 0);
    }
}

/// What becomes of a template may be what a skill panics over: then the step ends, and the run by its rules.
#[tokio::test(start_paused = true)]
async fn a_step_ends_that_a_skill_panics_over() {
    for what in ["effects", "usage", "input"] {
        let world = world(false);
        let executor = world.executor();
        let mut bad = step("s2", "post_call", json!({"panics": "{{s1.value}}"}));
        bad["on_error"] = json!("continue");
        let steps = vec![step("s1", "http_call", json!({"script": "give", "value": what})), bad, call("s3", "200")];
        let run_id = begin(&executor, plan(10, steps)).await;
        let result = ended(&executor, &run_id).await;
        let expected = [("s1", "OK_HTTP_CALL"), ("s2", "ERR_INTERNAL"), ("s3", "OK_HTTP_CALL")];
        assert_eq!((result.status, codes(&result)), (Status::Succeeded, expected.to_vec()), "{what}");
        assert!(step_of(&result, "s2").attempts.is_empty());
    }
}

/// Where a skill panics over what it would do, nobody replays it unasked.
#[tokio::test(start_paused = true)]
async fn a_replay_does_not_take_a_panic_for_harmless() {
    let world = world(false);
    let executor = world.executor();
    let mut bad = step("s2", "post_call", json!({"panics": "effects"}));
    bad["run_if"] = json!({"step_id": "s1", "status_in": ["failure"]});
    let value = plan(10, vec![call("s1", "200"), bad]);
    let original_run_id = begin(&executor, value.clone()).await;
    executor.wait(&original_run_id).await.unwrap();
    let mode = StartMode::FullReplay { original_run_id, allow_steps: Vec::new() };
    let refused = executor.start(Start { mode, ..Start::execute(frozen(value), "olga") }).await;
    assert!(matches!(refused, Err(StartError::Unrepeatable { steps }) if steps == ["s2"]));
}

/// A panic anywhere else ends the task of its run alone, and the run says why it does not go on.
#[tokio::test]
async fn a_run_is_given_up_with_a_reason() {
    let world = world(true);
    let executor = world.executor();
    let value = plan(10, vec![step("s1", "post_call", json!({})), call("s2", "200")]);
    let run_id = begin(&executor, value).await;
    idle(&executor).await;
    let told = executor.result(&run_id).await.unwrap().unwrap();
    assert_eq!(told.status, Status::Running);
    assert!(told.stuck.as_deref().unwrap_or_default().contains("panicked"), "{told:?}");
    let other = begin(&executor, plan(0, vec![call("s1", "200")])).await;
    assert_eq!(ended(&executor, &other).await.status, Status::Succeeded, "others are not concerned");

    // Nobody has to start the server again to be rid of it.
    executor.cancel(&run_id, "olga", "enough").await.unwrap();
    let result = ended(&executor, &run_id).await;
    assert_eq!((result.status, codes(&result)[1]), (Status::Cancelled, ("s2", "ERR_CANCELLED")));
    assert_eq!(result.stuck, None);
}
