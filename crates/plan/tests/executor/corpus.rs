//! Test 42: runs that were recorded once are replayed for ever. See `../corpus/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use macp_ledger::MemoryStore;
use macp_plan::executor::{AgentLimits, Start, StartMode};
use macp_plan::export::{self, Exporter, NotReplayed, replayed};
use macp_plan::store::Status;
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::RunMode;
use macp_plan_core::replay::WhatIf;
use macp_plan_core::skill::{Catalog, Registration};
use macp_plan_core::testkit::{llm_step, plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::http::{authored, settings, standard};
use super::server::{Reply, Server, answer, json_answer};
use super::world::{World, begin, ended, frozen};

/// Set to record what is not in the corpus yet.
const RECORD: &str = "MACP_CORPUS_RECORD";

type Recording<'w> = Pin<Box<dyn Future<Output = String> + 'w>>;

/// A run worth keeping: how it is made, and how it ends.
struct Scenario {
    name: &'static str,
    status: Status,
    code: &'static str,
    /// Uses the skills that come with the runtime, and not the kit's.
    standard: bool,
    record: for<'w> fn(&'w mut World) -> Recording<'w>,
}

/// Executes a plan and gives its run.
macro_rules! runs {
    ($plan:expr) => {
        |world| {
            Box::pin(async move {
                let executor = world.executor();
                let run_id = begin(&executor, $plan).await;
                ended(&executor, &run_id).await;
                run_id
            })
        }
    };
}

fn scenarios() -> Vec<Scenario> {
    use Status::{BudgetExceeded, Cancelled, Failed, InDoubt, Rejected, Succeeded};
    let kit = |name, status, code, record| Scenario { name, status, code, standard: false, record };
    let standard = |name, status, code, record| Scenario { name, status, code, standard: true, record };
    vec![
        kit("success", Succeeded, "OK_JSON_TRANSFORM", runs!(plan(10, three()))),
        kit("retries_then_success", Succeeded, "OK_HTTP_CALL", runs!(plan(0, vec![jittered("503, 500, 200")]))),
        kit("retries_exhausted", Failed, "ERR_HTTP_503", runs!(plan(0, vec![jittered("503"), call("s2", "200")]))),
        kit("hints", Succeeded, "OK_HTTP_CALL", runs!(plan(0, vec![call("s1", "retry-after 120 503, 200")]))),
        kit("budget_stop", BudgetExceeded, "ERR_BUDGET_EXCEEDED", runs!(plan(2, mails()))),
        kit("budget_stop_at_retry", BudgetExceeded, "ERR_BUDGET_EXCEEDED", runs!(plan(1, vec![dear()]))),
        kit(
            "overrun",
            BudgetExceeded,
            "ERR_BUDGET_EXCEEDED",
            runs!(plan(1, vec![ask("usage 9/900"), call("s2", "200")])),
        ),
        // Recorded under the first revision of the rules, which told people once of either.
        kit("soft_limit", Succeeded, "OK", runs!(soft())),
        kit("soft_limit_told", Succeeded, "OK", runs!(soft())),
        kit("continue_and_conditions", Succeeded, "OK_HTTP_CALL", runs!(conditions())),
        kit("references_and_a_large_body", Succeeded, "OK_HTTP_CALL", runs!(references())),
        kit("unresolved_reference", Failed, "ERR_VALIDATION_FAILED", runs!(unresolved())),
        kit("partial", Succeeded, "OK_PARTIAL", runs!(plan(0, vec![call("s1", "partial")]))),
        kit("panic_and_faults", Failed, "ERR_CONNECTION_REFUSED", runs!(faults())),
        kit("rejected", Rejected, "ERR_PERMISSION_DENIED", runs!(forbidden())),
        kit("taxonomy_1_0_0", Succeeded, "OK", runs!(first_taxonomy())),
        kit("card_in_the_plan", Succeeded, "OK", runs!(card_in_the_plan())),
        kit("limiter_refusal", Failed, "ERR_RATE_LIMIT_INTERNAL", limited),
        kit("cancelled", Cancelled, "ERR_CANCELLED", cancelled),
        kit("deadline", Failed, "ERR_TIMEOUT", deadline),
        kit("duplicate", Succeeded, "OK_SKIP_DUPLICATE", duplicate),
        kit("conflict", Failed, "ERR_IDEMPOTENCY_CONFLICT", conflict),
        kit("retry_run", Succeeded, "OK_HTTP_CALL", retry_run),
        kit("in_doubt", InDoubt, "ERR_EFFECT_IN_DOUBT", in_doubt),
        kit("resumed", Succeeded, "OK", resumed),
        kit("full_replay", Succeeded, "OK_HTTP_CALL", full_replay),
        standard("http_and_transform", Succeeded, "OK_JSON_TRANSFORM", real_skills),
    ]
}

fn three() -> Vec<Value> {
    vec![call("s1", "200"), step("s2", "post_call", json!({})), step("s3", "json_transform", json!({"script": "ok"}))]
}

fn jittered(script: &str) -> Value {
    let mut step = call("s1", script);
    step["retry_policy"]["jitter_enabled"] = json!(true);
    step["retry_policy"]["jitter_max_ms"] = json!(37);
    step["retry_policy"]["backoff_base_ms"] = json!(5);
    step["retry_policy"]["backoff_multiplier"] = json!(1.5);
    step
}

fn mails() -> Vec<Value> {
    (1..=4).map(|number| step(&format!("s{number}"), "mail_send", json!({}))).collect()
}

fn ask(script: &str) -> Value {
    let mut step = llm_step("s1", "a question", 10);
    step["parameters"]["script"] = json!(script);
    step
}

/// Fails at a price that the budget allows three times.
fn dear() -> Value {
    let mut step = llm_step("s1", "a dear question", 200);
    step["parameters"]["script"] = json!("timeout");
    step["timeout_ms"] = json!(5);
    step["retry_policy"]["backoff_base_ms"] = json!(1);
    step["retry_policy"]["retryable_codes"] = json!(["ERR_HTTP_TIMEOUT"]);
    step
}

fn soft() -> Value {
    let mut value = plan(1, mails());
    value["context"]["budget_policy"]["hard_limit"] = json!(false);
    value
}

fn conditions() -> Value {
    let mut failed = call("s1", "404");
    failed["on_error"] = json!("continue");
    let mut skipped = call("s2", "200");
    skipped["run_if"] = json!({"step_id": "s1", "status_in": ["success"]});
    let mut taken = call("s3", "200");
    taken["run_if"] = json!({"step_id": "s1", "code_in": ["ERR_HTTP_404"]});
    plan(0, vec![failed, skipped, taken])
}

fn references() -> Value {
    let text: String = (0..2_000).map(|number| format!("line {number} ")).collect();
    let steps = vec![
        step("s1", "http_call", json!({"script": "give", "value": {"text": text, "n": [1, 2.5, null, "é"]}})),
        step("s2", "post_call", json!({"script": "give", "value": "{{s1.value.n}}"})),
        step("s3", "http_call", json!({"script": "give", "value": "{{s2.value[1]}} of {{s1.value.text}}"})),
    ];
    plan(10, steps)
}

fn unresolved() -> Value {
    plan(10, vec![call("s1", "200"), step("s2", "post_call", json!({"x": "{{s1.nowhere}}"}))])
}

fn faults() -> Value {
    let steps = ["panic", "dns", "tls", "timeout", "reset"].into_iter().enumerate().map(|(number, script)| {
        let mut step = call(&format!("s{number}"), script);
        step["timeout_ms"] = json!(10);
        step["on_error"] = json!(if script == "reset" { "abort" } else { "continue" });
        step
    });
    plan(0, steps.collect())
}

fn forbidden() -> Value {
    let mut value = plan(0, vec![call("s1", "200"), step("s2", "mail_send", json!({}))]);
    value["context"]["allowed_skills"] = json!(["http_call"]);
    value
}

fn first_taxonomy() -> Value {
    let mut skipped = call("s2", "200");
    skipped["run_if"] = json!({"step_id": "s1", "status_in": ["failure"]});
    let mut value = plan(0, vec![call("s1", "503, partial"), skipped]);
    value["pins"]["taxonomy_version"] = json!("1.0.0");
    value
}

fn card_in_the_plan() -> Value {
    let mut value = plan(10, vec![step("s1", "post_call", json!({})), step("s2", "mail_send", json!({}))]);
    value["pins"]["rate_card"]["card"] = macp_plan_core::testkit::rate_card();
    value
}

fn limited(world: &mut World) -> Recording<'_> {
    world.settings.agent = AgentLimits { calls_per_minute: Some(1), ..AgentLimits::default() };
    Box::pin(async {
        let executor = world.executor();
        let mut hasty = call("s2", "200");
        hasty["retry_policy"]["backoff_base_ms"] = json!(1);
        let run_id = begin(&executor, plan(0, vec![call("s1", "200"), hasty])).await;
        ended(&executor, &run_id).await;
        run_id
    })
}

fn cancelled(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let executor = world.executor();
        let run_id = begin(&executor, plan(0, vec![call("s1", "gate"), call("s2", "200"), call("s3", "200")])).await;
        world.stage.wait_for_calls(1).await;
        executor.cancel(&run_id, "olga", "no longer wanted").await.unwrap();
        world.stage.gate.add_permits(1);
        ended(&executor, &run_id).await;
        run_id
    })
}

fn deadline(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let executor = world.executor();
        let value = plan(0, vec![call("s1", "503"), call("s2", "200")]);
        let start = Start { deadline_ms: Some(30), ..Start::execute(frozen(value), "olga") };
        let run_id = executor.start(start).await.unwrap().run_id;
        ended(&executor, &run_id).await;
        run_id
    })
}

fn duplicate(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let executor = world.executor();
        let value = || plan(10, vec![step("s1", "post_call", json!({"script": "give", "value": 7}))]);
        let first = begin(&executor, value()).await;
        ended(&executor, &first).await;
        let second = begin(&executor, value()).await;
        ended(&executor, &second).await;
        second
    })
}

fn conflict(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let executor = world.executor();
        let value = |number: u32| plan(10, vec![step("s1", "post_call", json!({"number": number}))]);
        let first = begin(&executor, value(1)).await;
        ended(&executor, &first).await;
        let second = begin(&executor, value(2)).await;
        ended(&executor, &second).await;
        second
    })
}

fn retry_run(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let executor = world.executor();
        let value = plan(10, vec![call("s1", "200"), step("s2", "post_call", json!({})), call("s3", "404, 200")]);
        let parent_run_id = begin(&executor, value.clone()).await;
        ended(&executor, &parent_run_id).await;
        let mode = StartMode::Retry { parent_run_id, from_step: None };
        let start = Start { mode, ..Start::execute(frozen(value), "olga") };
        let run_id = executor.start(start).await.unwrap().run_id;
        ended(&executor, &run_id).await;
        run_id
    })
}

async fn broken_off(world: &World, skill: &str) -> String {
    let executor = world.executor();
    let value = plan(10, vec![step("s1", skill, json!({"script": "gate, 200"}))]);
    let run_id = begin(&executor, value).await;
    world.stage.wait_for_calls(1).await;
    executor.shutdown().await;
    let executor = world.executor();
    executor.recover().await.unwrap();
    ended(&executor, &run_id).await;
    run_id
}

fn in_doubt(world: &mut World) -> Recording<'_> {
    Box::pin(async { broken_off(world, "mail_send").await })
}

fn resumed(world: &mut World) -> Recording<'_> {
    Box::pin(async { broken_off(world, "post_call").await })
}

fn full_replay(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let executor = world.executor();
        let run_id =
            begin(&executor, plan(10, vec![step("s1", "post_call", json!({})), call("s2", "200, 503, 200")])).await;
        ended(&executor, &run_id).await;
        executor.full_replay(&run_id, Vec::new(), "olga").await.unwrap().replay_run_id
    })
}

fn real_skills(world: &mut World) -> Recording<'_> {
    Box::pin(async {
        let replies =
            vec![Reply::Bytes(answer(503, &[], "")), Reply::Bytes(json_answer(200, &json!({"n": [1, 2, 3]})))];
        let server = Server::start(replies).await;
        let steps = json!([
            {"step_id": "get", "skill_id": "http_call", "skill_version": "1.2.0",
                "parameters": {"url": server.url("/numbers"), "expect_json": true}},
            {"step_id": "sum", "skill_id": "json_transform", "skill_version": "2.0.0",
                "parameters": {"input": "{{get.body}}", "expression": "sum(n)"}},
        ]);
        let executor = world.executor();
        let run_id = begin(&executor, authored(world, steps)).await;
        ended(&executor, &run_id).await;
        run_id
    })
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn files() -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let runs = entries.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    runs.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect()
}

/// Writes what is not there yet. A run that is there is never written again: what it says is what was decided then.
#[tokio::test]
async fn record_corpus() {
    if std::env::var_os(RECORD).is_none() {
        return;
    }
    for scenario in scenarios() {
        let path = directory().join(format!("{}.jsonl", scenario.name));
        if path.exists() {
            continue;
        }
        let mut world = if scenario.standard { standard(&settings()) } else { World::memory() };
        let run_id = (scenario.record)(&mut world).await;
        let mut exporter = Exporter::open(&*world.store, &run_id).unwrap().unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = exporter.next_chunk().unwrap() {
            bytes.extend_from_slice(&chunk);
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Test 42: every run in the corpus gives a match.
#[tokio::test]
async fn corpus_replay() {
    let files = files();
    let listed: BTreeSet<String> = scenarios().iter().map(|scenario| scenario.name.to_owned()).collect();
    let found: BTreeSet<String> = files.keys().cloned().collect();
    assert_eq!(listed, found, "record what is missing with {RECORD}=1; a run that was recorded stays");
    for scenario in scenarios() {
        let name = scenario.name;
        let skills = if scenario.standard { standard(&settings()) } else { World::memory() };
        let world = skills.moved_to(Arc::new(MemoryStore::new()));
        let file = BufReader::new(fs::File::open(&files[name]).unwrap());
        let exported = export::read(file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let run_id = exported.run.run_id.to_string();
        let executor = world.executor();
        executor.runs().import(exported).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let report = executor.mock_replay(&run_id, WhatIf::default()).await.unwrap();
        assert_eq!(report.verdict, Verdict::Match, "{name}: {report:#?}");
        assert!(report.behavior_match.values().all(|matched| *matched == Some(true)), "{name}: {report:#?}");
        let result = executor.result(&run_id).await.unwrap().unwrap();
        assert_eq!((result.status, result.final_code.as_deref()), (scenario.status, Some(scenario.code)), "{name}");
        assert_eq!(result.mode == RunMode::FullReplay, name == "full_replay");
        assert_eq!(world.stage.calls(), 0, "{name}: a mock replay calls nobody");
    }
}

/// A catalog that has lost a skill.
#[derive(Debug)]
struct Without {
    catalog: Arc<dyn Catalog>,
    skill_id: String,
}

impl Catalog for Without {
    fn skill(&self, skill_id: &str, version: &str) -> Option<Registration> {
        self.catalog.skill(skill_id, version).filter(|_| skill_id != self.skill_id)
    }

    fn versions(&self, skill_id: &str) -> Vec<String> {
        if skill_id == self.skill_id { Vec::new() } else { self.catalog.versions(skill_id) }
    }

    fn rate_card(&self, id: &str) -> Option<Value> {
        self.catalog.rate_card(id)
    }
}

/// A run from elsewhere is taken over where a skill of it is not known, with a word about what could not be compared: it
/// is not called a forgery for that.
#[tokio::test]
async fn what_is_imported_is_replayed_as_far_as_it_can_be() {
    for scenario in scenarios() {
        let name = scenario.name;
        let world = if scenario.standard { standard(&settings()) } else { World::memory() };
        let catalog: Arc<dyn Catalog> = Arc::clone(&world.registry) as _;
        let exported = export::read(BufReader::new(fs::File::open(&files()[name]).unwrap())).unwrap();
        let compared = replayed(&exported, &catalog).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(compared, Vec::<String>::new(), "{name}");
        let steps = exported.plan["steps"].as_array().unwrap();
        for skill_id in steps.iter().map(|step| step["skill_id"].as_str().unwrap()).collect::<BTreeSet<_>>() {
            let without: Arc<dyn Catalog> =
                Arc::new(Without { catalog: Arc::clone(&catalog), skill_id: skill_id.to_owned() });
            match replayed(&exported, &without) {
                Ok(not_compared) => assert!(!not_compared.is_empty(), "{name} without {skill_id}: nothing is told"),
                Err(NotReplayed::NotEvaluated(_)) => {}
                Err(error) => panic!("{name} without {skill_id}: {error}"),
            }
        }
    }
}
