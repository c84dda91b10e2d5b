//! What is asked of a run from a file before it is taken over.

use macp_plan::export::{self, ExportedRun, Exporter, NotReplayed, replayed};
use macp_plan_core::digest;
use macp_plan_core::effect::Idempotency;
use macp_plan_core::testkit::{Kit, ScriptedSkill, llm_step, plan, step};
use serde_json::json;

use super::execution::call;
use super::retry::retry;
use super::world::{World, begin, codes, ended};

fn exported(world: &World, run_id: &str) -> ExportedRun {
    let mut file = Vec::new();
    let mut exporter = Exporter::open(&*world.store, run_id).unwrap().unwrap();
    while let Some(chunk) = exporter.next_chunk().unwrap() {
        file.extend_from_slice(&chunk);
    }
    export::read(file.as_slice()).unwrap()
}

/// A run under way has no end to compare, and belongs to where it runs.
#[tokio::test]
async fn a_run_under_way_is_not_replayed() {
    let world = World::memory();
    let executor = world.executor();
    let run_id = begin(&executor, plan(0, vec![call("s1", "gate")])).await;
    world.stage.wait_for_calls(1).await;
    let refused = replayed(&exported(&world, &run_id), &Kit::standard().shared()).unwrap_err();
    assert!(matches!(&refused, NotReplayed::Open(open) if **open == *run_id), "{refused}");
    world.stage.gate.add_permits(1);
    ended(&executor, &run_id).await;
    assert_eq!(replayed(&exported(&world, &run_id), &Kit::standard().shared()).unwrap(), Vec::<String>::new());
}

/// A skill that needs more of the budget than the one that ran.
fn dearer(skill_id: &str, version: &str, effect: (&str, Idempotency), success_code: &'static str) -> ScriptedSkill {
    let mut skill = ScriptedSkill::new(skill_id, version, Some(effect), success_code);
    skill.metadata.cost_estimate_cents = 7;
    skill
}

/// AOS-99: a run that comes out otherwise because the skill here is another build is not called a forgery, and who reads
/// the refusal knows which skill it is. What differs before that skill has its turn is one all the same.
#[tokio::test(start_paused = true)]
async fn another_build_of_a_skill_is_named() {
    let build = |text: &str| digest::of_bytes("aos-skill-build/1", text.as_bytes());
    let world = World::memory();
    let mut value = plan(1_000, vec![llm_step("s1", "say", 10), step("s2", "mail_send", json!({}))]);
    value["pins"]["skill_builds"] = json!({"mail_send@1.0.0": build("then")});
    let executor = world.executor();
    let run_id = begin(&executor, value).await;
    ended(&executor, &run_id).await;
    let run = exported(&world, &run_id);
    let mail = || dearer("mail_send", "1.0.0", ("email_queued", Idempotency::None), "OK");
    let model = dearer("llm_invoke", "2.0.0", ("llm_request", Idempotency::Natural), "OK_LLM_INVOKE");
    let built = |kit: Kit, text: &str| kit.registered("mail_send", "1.0.0", true, Some(build(text))).shared();

    let warned = replayed(&run, &built(Kit::standard(), "now")).unwrap();
    assert!(warned[0].starts_with("skill_build_changed mail_send@1.0.0"), "{warned:?}");
    let disabled = Kit::standard().registered("mail_send", "1.0.0", false, Some(build("then"))).shared();
    assert_eq!(replayed(&run, &disabled).unwrap(), Vec::<String>::new(), "it is decided all the same");
    let other = replayed(&run, &built(Kit::standard().with(mail()), "now")).unwrap_err();
    assert!(matches!(&other, NotReplayed::OtherBuild { .. }), "{other}");
    let told = other.to_string();
    assert!(told.contains("skill_build_changed mail_send@1.0.0: the plan pins"), "{told}");
    assert!(told.contains("step s2, budget_enforcement"), "{told}");

    let same = replayed(&run, &built(Kit::standard().with(mail()), "then")).unwrap_err();
    assert!(matches!(&same, NotReplayed::Diverged(_)), "the build is the one that ran: {same}");
    let before = replayed(&run, &built(Kit::standard().with(mail()).with(model), "now")).unwrap_err();
    assert!(matches!(&before, NotReplayed::Diverged(told) if told.contains("step s1")), "{before}");
}

/// AOS-114: the claims on a run's effects stay where it ran, and what its journal tells counts all the same, over any
/// number of retries and from whichever step.
#[tokio::test(start_paused = true)]
async fn effects_of_a_run_from_elsewhere_are_not_repeated() {
    let value = plan(
        100,
        vec![call("a", "gate"), step("charge", "post_call", json!({})), call("fails", "404, 404, 404, 404, 200")],
    );
    let elsewhere = World::memory();
    elsewhere.stage.gate.add_permits(1);
    let executor = elsewhere.executor();
    let first = begin(&executor, value.clone()).await;
    ended(&executor, &first).await;

    let world = World::memory();
    let executor = world.executor();
    executor.runs().import(exported(&elsewhere, &first)).await.unwrap();
    let from_there = retry(&executor, &value, &first, Some("charge")).await.unwrap();
    let result = ended(&executor, &from_there).await;
    assert_eq!(codes(&result)[..2], [("a", "OK_SKIP_DUPLICATE"), ("charge", "OK_SKIP_DUPLICATE")]);

    // One that never came to the effect says nothing of it; the one before it does.
    let cancelled = retry(&executor, &value, &first, Some("a")).await.unwrap();
    world.stage.wait_for_calls(2).await;
    executor.cancel(&cancelled, "olga", "before the effect").await.unwrap();
    world.stage.gate.add_permits(1);
    assert_eq!(codes(&ended(&executor, &cancelled).await), [("a", "OK_HTTP_CALL"), ("charge", "ERR_CANCELLED")]);
    let again = retry(&executor, &value, &cancelled, None).await.unwrap();
    let result = ended(&executor, &again).await;
    assert_eq!(codes(&result)[..2], [("a", "OK_SKIP_DUPLICATE"), ("charge", "OK_SKIP_DUPLICATE")]);
}
