//! What agents may spend over all their runs (AOS-18, AOS-19): judged once, exactly, and never inside a run.

use std::time::Duration;

use macp_ledger::{Append, IndexUpdate};
use macp_plan::executor::{AgentLimits, Executor, Start, StartMode};
use macp_plan::result::RunResult;
use macp_plan::store::{Query, RunId, Status};
use macp_plan_core::journal::Body;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Map, Value, json};

use super::stores::{Death, Failing};
use super::world::{NOON_MS, World, begin, count, ended, frozen};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A plan that costs a cent for every mail. Every number is a plan of its own, so that no effect is a repetition.
fn mails(number: usize, budget_cents: u64, mails: usize) -> Value {
    let steps = (0..mails).map(|mail| step(&format!("s{mail}"), "mail_send", json!({}))).collect();
    let mut value = plan(budget_cents, steps);
    value["plan_id"] = json!(format!("p-{number}"));
    value
}

/// The same, but its first call waits for the gate.
fn waiting(number: usize, budget_cents: u64) -> Value {
    let mut value = mails(number, budget_cents, 1);
    value["steps"][0]["parameters"] = json!({"script": "gate"});
    value
}

fn with_limits(mut world: World, agent: AgentLimits) -> World {
    world.settings.agent = agent;
    world
}

fn per_day(cents: u64) -> AgentLimits {
    AgentLimits { cents_per_day: Some(cents), ..AgentLimits::default() }
}

fn per_month(cents: u64) -> AgentLimits {
    AgentLimits { cents_per_month: Some(cents), ..AgentLimits::default() }
}

/// Executes a plan, and says for which limit it was rejected, if it was. A rejected run has done nothing, and its replay
/// matches like any other's.
async fn rejected(executor: &Executor, value: Value) -> Option<String> {
    let run_id = begin(executor, value).await;
    let result = ended(executor, &run_id).await;
    reason(executor, &result).await
}

async fn reason(executor: &Executor, result: &RunResult) -> Option<String> {
    if result.status != Status::Rejected {
        assert_eq!(result.status, Status::Succeeded);
        return None;
    }
    assert_eq!(result.final_code.as_deref(), Some("ERR_QUOTA_EXCEEDED"));
    assert_eq!((result.steps.len(), result.total_cost_microcents), (0, 0));
    assert_eq!(count(executor, &result.run_id, "effect_intent").await, 0);
    Some(result.findings[0].reason.clone())
}

/// What was looked at when a run was admitted, or was not.
async fn limits(executor: &Executor, run_id: &str) -> Map<String, Value> {
    let run = executor.runs().load(run_id).await.unwrap().unwrap();
    let mut found = run.bodies().filter_map(|body| match body {
        Body::Admission(admission) => Some(admission.limits.clone()),
        _ => None,
    });
    let limits = found.next().expect("every run is admitted or refused");
    assert!(found.next().is_none(), "it is asked once");
    limits
}

/// AOS-19: a budget that is just as large as the limit is not too large.
#[tokio::test(start_paused = true)]
async fn the_budget_of_a_run_is_limited() {
    for world in World::both() {
        let world = with_limits(world, AgentLimits { cents_per_run: Some(5), ..AgentLimits::default() });
        let executor = world.executor();
        assert_eq!(rejected(&executor, mails(1, 5, 1)).await, None);
        assert_eq!(rejected(&executor, mails(2, 6, 1)).await.as_deref(), Some("per_run_max"));
        assert_eq!(world.stage.calls(), 1);
    }
}

/// AOS-19: what runs cost counts, and no longer their budgets, once they have ended; equality is allowed; another day
/// begins anew, and another agent is not concerned.
#[tokio::test(start_paused = true)]
async fn a_day_is_limited_to_the_cent() {
    for world in World::both() {
        let world = with_limits(world, per_day(4));
        let executor = world.executor();
        assert_eq!(
            rejected(&executor, mails(1, 4, 1)).await,
            None,
            "its budget is all there is, and it costs a quarter"
        );
        assert_eq!(rejected(&executor, mails(2, 4, 1)).await.as_deref(), Some("per_day_max"));
        assert_eq!(rejected(&executor, mails(3, 3, 2)).await, None, "1 spent and a budget of 3 are 4");
        assert_eq!(rejected(&executor, mails(4, 2, 1)).await.as_deref(), Some("per_day_max"));
        assert_eq!(rejected(&executor, mails(5, 1, 1)).await, None, "3 spent and 1 are 4");
        let free = begin(&executor, plan(0, vec![step("s", "http_call", json!({}))])).await;
        assert_eq!(ended(&executor, &free).await.status, Status::Succeeded, "what is free is never too much");
        assert_eq!(rejected(&executor, mails(6, 1, 1)).await.as_deref(), Some("per_day_max"));
        let mut other = mails(7, 4, 1);
        other["agent_id"] = json!("another");
        assert_eq!(rejected(&executor, other).await, None);
        world.set_clock(NOON_MS + DAY_MS);
        assert_eq!(rejected(&executor, mails(8, 4, 1)).await, None);
    }
}

/// AOS-19: days of one month add up, those of two do not.
#[tokio::test(start_paused = true)]
async fn a_month_is_limited_over_its_days() {
    let world = with_limits(World::memory(), per_month(3));
    let executor = world.executor();
    for day in 0..3 {
        world.set_clock(NOON_MS + day * DAY_MS);
        assert_eq!(rejected(&executor, mails(day as usize, 1, 1)).await, None);
    }
    assert_eq!(rejected(&executor, mails(10, 1, 1)).await.as_deref(), Some("per_month_max"));
    // NOON_MS is on the 21st of September.
    world.set_clock(NOON_MS + 9 * DAY_MS);
    assert_eq!(rejected(&executor, mails(11, 1, 1)).await.as_deref(), Some("per_month_max"));
    world.set_clock(NOON_MS + 10 * DAY_MS);
    assert_eq!(rejected(&executor, mails(12, 3, 1)).await, None);
}

/// AOS-18: everything that was looked at is in the journal, and in words in the result.
#[tokio::test(start_paused = true)]
async fn the_journal_tells_what_was_looked_at() {
    let world = with_limits(World::memory(), AgentLimits { cents_per_month: Some(50), ..per_day(2) });
    let executor = world.executor();
    let first = begin(&executor, mails(1, 1, 1)).await;
    ended(&executor, &first).await;
    let second = begin(&executor, mails(2, 2, 1)).await;
    let result = ended(&executor, &second).await;
    let expected = json!({
        "runs_at_work": 0, "runs_max": 256, "day": "2026-09-21", "budget_cents": 2,
        "per_day_max_cents": 2, "day_spent_microcents": 1_000_000, "day_reserved_microcents": 0,
        "per_month_max_cents": 50, "month_spent_microcents": 1_000_000, "month_reserved_microcents": 0,
    });
    assert_eq!(Value::Object(limits(&executor, &second).await), expected);
    let told = &result.findings[0].explanation;
    assert!(told.contains("2 cents a day") && told.contains("2026-09-21") && told.contains("spent 1,"), "{told}");
    // Without a limit of money no money is looked at.
    let unlimited = World::memory().executor();
    let run_id = begin(&unlimited, mails(1, 1, 1)).await;
    ended(&unlimited, &run_id).await;
    assert_eq!(Value::Object(limits(&unlimited, &run_id).await), json!({"runs_at_work": 0, "runs_max": 256}));
}

/// AOS-18: of what the plan and the operator allow, the smaller counts.
#[tokio::test(start_paused = true)]
async fn a_plan_can_be_stricter_than_the_operator_and_not_laxer() {
    let limited = |number: usize, admission: Value| {
        let mut value = mails(number, 2, 1);
        value["context"]["budget_policy"]["admission"] = admission;
        value
    };
    let world = World::memory();
    let executor = world.executor();
    assert_eq!(rejected(&executor, mails(0, 2, 1)).await, None, "it counts although nobody limits it");
    assert_eq!(rejected(&executor, limited(1, json!({"per_day_max_cents": 3}))).await, None);
    assert_eq!(rejected(&executor, limited(2, json!({"per_day_max_cents": 3}))).await.as_deref(), Some("per_day_max"));
    assert_eq!(rejected(&executor, mails(3, 9, 1)).await, None, "a plan that says nothing is not limited by another's");
    assert_eq!(
        rejected(&executor, limited(4, json!({"per_run_max_cents": 1, "per_day_max_cents": null}))).await.as_deref(),
        Some("per_run_max")
    );
    let strict = with_limits(world.moved_to(world.store.clone()), per_day(4)).executor();
    assert_eq!(
        rejected(&strict, limited(5, json!({"per_day_max_cents": 1_000}))).await.as_deref(),
        Some("per_day_max")
    );
}

/// AOS-19: runs that start together cannot pass a limit together, whichever come first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_start_together_stay_below_the_limit_together() {
    for world in World::both() {
        let world = with_limits(world, per_day(7));
        let executor = world.executor();
        let mut starts = tokio::task::JoinSet::new();
        for number in 0..12 {
            let executor = executor.clone();
            starts.spawn(async move { begin(&executor, waiting(number, 2)).await });
        }
        let run_ids = starts.join_all().await;
        world.stage.wait_for_calls(3).await;
        let mut ends = tokio::task::JoinSet::new();
        for run_id in run_ids {
            let executor = executor.clone();
            ends.spawn(async move { ended(&executor, &run_id).await });
        }
        let mut admitted = 0;
        for number in 0..12 {
            // One that ends gives back what it does not spend, so that none may before nine are refused.
            if number == 9 {
                world.stage.gate.add_permits(12);
            }
            let result = tokio::time::timeout(PATIENCE, ends.join_next()).await.expect("three are at work, no more");
            let result = result.expect("twelve were started").expect("no panic");
            admitted += usize::from(reason(&executor, &result).await.is_none());
        }
        assert_eq!(admitted, 3, "three budgets of 2 are below 7, four are not");
        assert_eq!(rejected(&executor, mails(20, 4, 1)).await, None, "3 were spent, and 4 are left");
    }
}

/// Longer than anything takes; only a failing test waits for it.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// AOS-19: a run that a process left at work counts with its budget for the next one, and with its cost once it ended.
#[tokio::test]
async fn a_run_at_work_counts_after_a_restart() {
    for world in World::both() {
        let world = with_limits(world, per_day(5));
        let executor = world.executor();
        assert_eq!(rejected(&executor, mails(1, 1, 1)).await, None);
        let at_work = begin(&executor, mails_with_a_gate(2, 3)).await;
        world.stage.wait_for_calls(2).await;
        executor.shutdown().await;
        let executor = world.executor();
        assert_eq!(rejected(&executor, mails(3, 2, 1)).await.as_deref(), Some("per_day_max"), "1 and 3 and 2 are 6");
        assert_eq!(rejected(&executor, mails(4, 1, 1)).await, None, "1 and 3 and 1 are 5");
        executor.recover().await.unwrap();
        world.stage.gate.add_permits(10);
        let result = ended(&executor, &at_work).await;
        assert_eq!((result.status, result.total_cost_cents), (Status::Succeeded, 1));
        assert_eq!(rejected(&executor, mails(5, 3, 1)).await.as_deref(), Some("per_day_max"), "3 spent and 3 are 6");
        assert_eq!(rejected(&executor, mails(6, 2, 1)).await, None);
    }
}

/// AOS-19: a row that cannot be read says nothing of whose run it is, and keeps no agent from its work.
#[tokio::test]
async fn a_row_that_cannot_be_read_counts_to_nobody() {
    for world in World::both() {
        let world = with_limits(world, per_day(3));
        let executor = world.executor();
        let whole = begin(&executor, mails(1, 1, 1)).await;
        ended(&executor, &whole).await;
        executor.shutdown().await;
        let records = world.store.read(&whole, 0, 1, usize::MAX).unwrap();
        let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 0, summary: Some("{".into()) };
        let (expected_sequence, expected_hash) = (0, None);
        let session_id = RunId::new(NOON_MS).as_str().into();
        let damaged = Append { session_id, expected_sequence, expected_hash, records, index };
        assert!(world.store.append(&[damaged]).into_iter().all(|result| result.is_ok()));
        let executor = world.executor();
        let rejected = async |number, budget| {
            let rejected = rejected(&executor, mails(number, budget, 1));
            tokio::time::timeout(PATIENCE, rejected).await.expect("the run ends")
        };
        assert_eq!(rejected(2, 3).await.as_deref(), Some("per_day_max"), "1 spent and 3 are 4");
        assert_eq!(rejected(3, 2).await, None, "1 spent and 2 are 3");
    }
}

/// AOS-19: nobody goes on with a run whose plan is gone, so that it counts with what it has cost; of its agent alone.
#[tokio::test]
async fn a_run_without_its_plan_counts_with_what_it_has_cost() {
    for world in World::both() {
        let world = with_limits(world, per_day(5));
        let executor = world.executor();
        let mut value = mails_with_a_gate(1, 4);
        value["steps"].as_array_mut().unwrap().insert(0, step("first", "mail_send", json!({})));
        let at_work = begin(&executor, value.clone()).await;
        world.stage.wait_for_calls(2).await;
        executor.shutdown().await;
        let plan_hash = executor.runs().summary(&at_work).await.unwrap().unwrap().plan_hash;
        assert!(world.store.delete_document("aos.plan", plan_hash.as_str()).unwrap());
        let executor = world.executor();
        let rejected = async |agent_id: &str, number, budget| {
            let mut value = mails(number, budget, 1);
            value["agent_id"] = json!(agent_id);
            tokio::time::timeout(PATIENCE, rejected(&executor, value)).await.expect("the run ends")
        };
        assert_eq!(rejected("another", 2, 5).await, None);
        let agent_id = value["agent_id"].as_str().unwrap();
        assert_eq!(rejected(agent_id, 3, 5).await.as_deref(), Some("per_day_max"), "1 of its mail and 5 are 6");
        assert_eq!(rejected(agent_id, 4, 4).await, None, "1 of its mail and 4 are 5");
    }
}

/// One mail for a cent, behind a call that can be repeated and waits for the gate.
fn mails_with_a_gate(number: usize, budget_cents: u64) -> Value {
    let mut value = mails(number, budget_cents, 1);
    let gate = step("gate", "http_call", json!({"script": "gate"}));
    value["steps"].as_array_mut().unwrap().insert(0, gate);
    value["context"]["allowed_skills"] = json!(["http_call", "mail_send"]);
    value
}

/// AOS-19: whatever write a process dies at, what it spent is counted by the next, once.
#[tokio::test(start_paused = true)]
async fn no_crash_makes_a_run_count_twice_or_not_at_all() {
    for writes in 0..8 {
        for death in [Death::AtWrite, Death::AfterWrite] {
            let world = with_limits(World::memory(), per_day(2));
            let dying = Failing::mortal(world.store.clone(), writes, death);
            let executor = with_limits(world.moved_to(dying.clone()), per_day(2)).executor();
            // Whether the start is heard of does not matter: what is stored does.
            let _ = executor.start(Start::execute(frozen(mails(1, 1, 1)), "tester")).await;
            while executor.live() > 0 && !dying.is_dead() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            executor.shutdown().await;
            let executor = world.executor();
            executor.recover().await.unwrap();
            while executor.live() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let runs = executor.runs().list(Query::default(), None, 10).await.unwrap().runs;
            let spent: u64 = runs.iter().map(|run| run.cost_microcents).sum();
            let left = 2 - spent / 1_000_000;
            let told = format!("{writes} writes, {death:?}, {left} left");
            assert_eq!(rejected(&executor, mails(2, left + 1, 1)).await.as_deref(), Some("per_day_max"), "{told}");
            assert_eq!(rejected(&executor, mails(3, left, 1)).await, None, "{told}");
        }
    }
}

/// AOS-19: a retry is a run like others.
#[tokio::test(start_paused = true)]
async fn a_run_that_tries_again_counts_too() {
    let world = with_limits(World::memory(), per_day(3));
    let executor = world.executor();
    let mut value = mails(1, 2, 1);
    let failing = step("f", "http_call", json!({"script": "404"}));
    value["steps"].as_array_mut().unwrap().push(failing);
    value["context"]["allowed_skills"] = json!(["http_call", "mail_send"]);
    let first = begin(&executor, value.clone()).await;
    assert_eq!(ended(&executor, &first).await.status, Status::Failed);
    let retry = |parent: &str| Start {
        mode: StartMode::Retry { parent_run_id: parent.to_owned(), from_step: None },
        ..Start::execute(frozen(value.clone()), "tester")
    };
    // 1 spent and a budget of 2 are 3.
    let second = executor.start(retry(&first)).await.unwrap().run_id;
    assert_eq!(ended(&executor, &second).await.status, Status::Failed);
    assert_eq!(rejected(&executor, mails(2, 1, 1)).await, None);
    let third = executor.start(retry(&second)).await.unwrap().run_id;
    let result = ended(&executor, &third).await;
    assert_eq!(reason(&executor, &result).await.as_deref(), Some("per_day_max"));
}

/// AOS-90: a replay spends nothing of its agent's day, neither while it is counted nor when it is read again, and is not
/// kept from it. Only the limit per run is about each run by itself.
#[tokio::test(start_paused = true)]
async fn a_full_replay_leaves_the_budget_of_its_agent_alone() {
    let limits = AgentLimits { cents_per_run: Some(2), ..per_day(2) };
    let world = with_limits(World::memory(), limits);
    let executor = world.executor();
    let first = begin(&executor, mails(1, 1, 1)).await;
    assert_eq!(ended(&executor, &first).await.status, Status::Succeeded);
    for _ in 0..3 {
        let report = executor.full_replay(&first, vec!["s0".to_owned()], "tester").await.unwrap();
        let replayed = ended(&executor, &report.replay_run_id).await;
        assert_eq!((replayed.status, replayed.total_cost_microcents), (Status::Succeeded, 1_000_000));
    }
    executor.shutdown().await;
    let executor = world.executor();
    assert_eq!(rejected(&executor, mails(2, 2, 1)).await.as_deref(), Some("per_day_max"));
    assert_eq!(rejected(&executor, mails(3, 1, 1)).await, None, "1 of 2 is left");
    executor.shutdown().await;

    let executor = with_limits(world, AgentLimits { cents_per_run: Some(0), ..limits }).executor();
    let report = executor.full_replay(&first, vec!["s0".to_owned()], "tester").await.unwrap();
    let replayed = executor.result(&report.replay_run_id).await.unwrap().unwrap();
    assert_eq!(reason(&executor, &replayed).await.as_deref(), Some("per_run_max"));
}
