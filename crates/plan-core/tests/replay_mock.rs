//! Mock replay: it matches what it should, and says precisely what it cannot.

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::compare::{Aspect, Origin, Report, Verdict};
use macp_plan_core::journal::{Body, BudgetAlert, DedupeVerdict, Journal, LimiterVerdict, RunMode};
use macp_plan_core::machine::{Machine, Next, Pinned, Question, Rules};
use macp_plan_core::plan::{FrozenPlan, RetryPolicy, StepStatus};
use macp_plan_core::replay::{self, Options, Refused, mock_replay};
use macp_plan_core::skill::Catalog;
use macp_plan_core::testkit::{Answer, Kit, Run, World, execute, freeze, http, llm_step, plan, start, step};
use serde_json::{Value, json};

fn replayed(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>, run: &Run, options: &Options) -> Report {
    let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
    mock_replay(plan, &run.journal, &bodies, catalog, options).expect("its own plan").report
}

fn matches(steps: Vec<Value>, world: World) -> Report {
    matches_with_budget(1_000, steps, world)
}

fn matches_with_budget(budget: u64, steps: Vec<Value>, world: World) -> Report {
    let plan = freeze(plan(budget, steps));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, world);
    let report = replayed(&plan, &catalog, &run, &Options::new("r-replay"));
    assert_eq!(report.verdict, Verdict::Match, "{:#?}", report.mismatches);
    assert!(report.mismatches.is_empty() && report.skipped.is_empty());
    assert_eq!(report.behavior_digest.original, report.behavior_digest.replay);
    assert!(report.behavior_match.values().all(|matches| *matches == Some(true)));
    assert_eq!(report.first_divergence, None);
    report
}

fn http_step(id: &str) -> Value {
    step(id, "http_call", json!({"host": "x.example"}))
}

/// Test 31 (AOS-87): every kind of run of the machine's own tests replays to a match.
#[test]
fn mock_replay_matches() {
    let two = || vec![http_step("s1"), step("s2", "post_call", json!({"effects": 2}))];
    matches(two(), World::new());
    let report = matches(two(), World::new().always("s1", http(503)));
    assert_eq!((report.evaluated.steps, report.evaluated.attempts), (1, 4));
    matches(two(), World::new().answer("s1", 0, http(503)).limit("s1", 1, LimiterVerdict::RateLimited));
    matches(two(), World::new().dedupe("s2", DedupeVerdict::Duplicate, Some(json!({"a": 1}))));
    let mut third = http_step("s3");
    third["run_if"] = json!({"step_id": "s2", "status_in": ["success"]});
    matches([two(), vec![third]].concat(), World::new().done_before("s2", StepStatus::Success, "OK"));
    matches(two(), World::new().dedupe("s2", DedupeVerdict::Conflict, None));
    matches(two(), World::new().always("s2", Answer::of(Cause::EffectInDoubt)));
    for attempt in 0..3 {
        matches(two(), World::new().always("s2", http(503)).cancel("s2", attempt));
        matches(two(), World::new().always("s2", http(503)).deadline("s2", attempt));
    }
    let mails = |count: usize| (0..count).map(|place| step(&format!("s{place}"), "mail_send", json!({}))).collect();
    for budget in 0..4 {
        matches_with_budget(budget, mails(4), World::new());
    }
    let llm = vec![llm_step("s1", "say", 100), step("s2", "http_call", json!({"host": "{{s1.host}}"}))];
    matches(
        llm.clone(),
        World::new().always("s1", Answer::of(Cause::Success).tokens(5, 6).output(json!({"host": "y"}))),
    );
    matches_with_budget(1, llm, World::new().always("s1", Answer::of(Cause::ClientTimeout)));
}

/// AOS-28, AOS-68: the replay of a rejected run is rejected again.
#[test]
fn a_rejected_run_replays() {
    let mut world = World::new();
    world.admission =
        macp_plan_core::journal::Admission { code: Some("ERR_SKILL_NOT_FOUND".into()), ..Default::default() };
    matches(vec![http_step("s1")], world);
}

/// A cancel is replayed where it came, not where it could have come.
#[test]
fn interruptions_keep_their_place() {
    let plan = freeze(plan(10, vec![http_step("s1")]));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, World::new().always("s1", http(503)).cancel("s1", 2));
    // The same run, but cancelled only once the next attempt had been paid for and scheduled.
    let begin = start(&plan, "r-original");
    let mut machine = Machine::new(Arc::clone(&plan), Arc::clone(&catalog), Arc::new(Pinned), begin);
    let mut journal = Journal::begin(start(&plan, "r-original")).expect("canonical");
    machine.apply(&journal.entries()[0].body, None).expect("in place");
    let mut world = World::new().always("s1", http(503));
    loop {
        let body = match machine.next() {
            Next::Finished => break,
            Next::Decide(body) => *body,
            Next::Ask(Question::Limiter { attempt: 2, .. }) => {
                Body::CancelRequested { by: "x".into(), reason: "y".into() }
            }
            Next::Ask(question) => world.ask(&question),
        };
        machine.apply(&body, None).expect("in place");
        journal.append(body).expect("canonical");
    }
    assert_ne!(journal.entries().len(), run.journal.entries().len());
    for journal in [&journal, &run.journal] {
        let mut options = Options::new("r-replay");
        options.keep_entries = true;
        let mock = mock_replay(&plan, journal, &|_| None, &catalog, &options).expect("its own plan");
        assert_eq!(mock.report.verdict, Verdict::Match, "{:#?}", mock.report.mismatches);
        let kinds = |entries: &[macp_plan_core::journal::Entry]| -> Vec<&str> {
            entries.iter().map(|entry| entry.body.kind()).collect()
        };
        assert_eq!(kinds(&mock.entries), kinds(journal.entries()));
    }
}

/// Test 33, the plan's half (AOS-87, AOS-99): another plan is refused.
#[test]
fn mock_replay_detects_tampering() {
    let value = plan(10, vec![http_step("s1")]);
    let catalog = Kit::standard().shared();
    let run = execute(&freeze(value.clone()), &catalog, World::new());
    let mut altered = value;
    altered["goal"] = "something else".into();
    let refused = mock_replay(&freeze(altered), &run.journal, &|_| None, &catalog, &Options::new("r"));
    assert!(matches!(refused, Err(Refused::PlanAltered { .. })));
}

/// AOS-99: a broken chain is not comparable, and the report says where.
#[test]
fn a_broken_chain_is_reported_with_its_place() {
    let plan = freeze(plan(10, vec![http_step("s1")]));
    let run = execute(&plan, &Kit::standard().shared(), World::new());
    let mut previous = None;
    let mut records = Vec::new();
    for entry in run.journal.entries() {
        let (text, hash) = macp_plan_core::journal::seal(previous.as_deref(), entry).expect("canonical");
        previous = Some(hash.clone());
        records.push((text, hash));
    }
    records[3].0 = records[3].0.replace("allowed", "alleged");
    let broken = Journal::read(records.iter().map(|(text, hash)| (text, hash))).expect_err("broken");
    let ids = ("r-original".to_owned(), "r-replay".to_owned());
    let why = broken.to_string();
    let report = replay::broken(RunMode::MockReplay, ids.0, ids.1, plan.hash.clone(), broken.seq, why);
    assert_eq!(report.verdict, Verdict::NotComparable);
    assert_eq!(report.pin_violations[0].subject, "entry 3");
    assert!(report.behavior_match.values().all(Option::is_none));
}

#[derive(Debug)]
struct Retries(i64);

impl Rules for Retries {
    fn retry(&self, policy: &RetryPolicy, attempt: u32, code: &str) -> bool {
        let allowed = i64::from(policy.max_retries) + self.0;
        i64::from(attempt) < allowed && policy.retryable_codes.iter().any(|listed| listed == code)
    }
}

/// AOS-88, test 34: an attempt that was not recorded is not made; the replay ends there.
#[test]
fn missing_recording() {
    let plan = freeze(plan(10, vec![http_step("s1"), http_step("s2")]));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, World::new().always("s1", http(503)));
    let options = Options { rules: Arc::new(Retries(1)), ..Options::new("r-replay") };
    let report = replayed(&plan, &catalog, &run, &options);
    assert_eq!(report.verdict, Verdict::Diverged);
    let missing = report.mismatches.iter().find(|it| it.why.starts_with("missing_recording")).expect("it is listed");
    assert_eq!((missing.aspect, missing.cause), (Aspect::RetryCount, Origin::Runtime));
    assert_eq!((missing.step_id.as_deref(), missing.attempt), (Some("s1"), Some(4)));
    assert_eq!((&missing.original, &missing.replay), (&Value::Null, &json!("attempt 4")));
    assert_eq!(report.behavior_digest.replay, None);
}

/// AOS-88: recorded attempts that are not asked for are listed, and so is everything that follows.
#[test]
fn unconsumed_recording() {
    let plan = freeze(plan(10, vec![http_step("s1")]));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, World::new().always("s1", http(503)));
    let options = Options { rules: Arc::new(Retries(-1)), ..Options::new("r-replay") };
    let report = replayed(&plan, &catalog, &run, &options);
    assert_eq!(report.verdict, Verdict::Diverged);
    let wrong: Vec<Aspect> =
        report.behavior_match.iter().filter(|(_, it)| **it == Some(false)).map(|(aspect, _)| *aspect).collect();
    assert_eq!(wrong, [Aspect::RetryCount, Aspect::SideEffects]);
    let first = report.first_divergence.as_ref().expect("it diverges");
    assert_eq!((first.step_id.as_deref(), first.attempt), (Some("s1"), Some(2)));
    let retries = report.mismatches.iter().find(|it| it.field == "observability.backend_retries").expect("listed");
    assert_eq!((&retries.original, &retries.replay), (&json!(3), &json!(2)));
    assert_eq!(
        retries.why,
        "attempt 2 ended ERR_HTTP_503; the policy allows 3 retries and lists that code; 3 were made, then 2 (AOS-40)"
    );
    let count = report.mismatches.iter().find(|it| it.field == "count").expect("listed");
    assert_eq!((&count.original, &count.replay), (&json!(4), &json!(3)));
    let left = report.mismatches.iter().find(|it| it.why.starts_with("unconsumed_recording")).expect("listed");
    assert_eq!((left.aspect, &left.original), (Aspect::RetryCount, &json!("attempt 3")));
}

/// A recording that breaks off proves nothing either way, however far it goes.
#[test]
fn an_unfinished_recording_is_not_comparable() {
    let plan = freeze(plan(10, vec![http_step("s1"), step("s2", "post_call", json!({}))]));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, World::new().answer("s1", 0, http(503)));
    let entries = run.journal.entries();
    for length in 1..entries.len() {
        let mut journal = Journal::begin(run.journal.start().clone()).expect("canonical");
        for entry in &entries[1..length] {
            journal.append(entry.body.clone()).expect("canonical");
        }
        let report =
            mock_replay(&plan, &journal, &|_| None, &catalog, &Options::new("r")).expect("its own plan").report;
        assert_eq!(report.verdict, Verdict::NotComparable, "{length} entries: {:#?}", report.mismatches);
        assert!(report.mismatches.iter().all(|it| it.cause == Origin::Recording));
        assert!(report.behavior_match.values().all(|matches| *matches != Some(false)));
    }
}

/// AOS-84: without the bodies, what does not need them is evaluated, and the rest is null.
#[test]
fn expired_bodies() {
    let steps = vec![http_step("s1"), step("s2", "post_call", json!({"host": "{{s1.host}}"})), http_step("s3")];
    let plan = freeze(plan(1_000, steps));
    let catalog = Kit::standard().shared();
    let mut world = World::new().answer("s1", 0, Answer::of(Cause::Success).output(json!({"host": "z.example"})));
    world.inline_max = 0;
    let run = execute(&plan, &catalog, world.answer("s2", 0, http(503)));
    assert_eq!(replayed(&plan, &catalog, &run, &Options::new("r")).verdict, Verdict::Match);
    let expired =
        mock_replay(&plan, &run.journal, &|_| None, &catalog, &Options::new("r")).expect("its own plan").report;
    assert_eq!(expired.verdict, Verdict::NotComparable);
    assert!(expired.mismatches.is_empty(), "{:#?}", expired.mismatches);
    let nulls: Vec<Aspect> =
        expired.behavior_match.iter().filter(|(_, it)| it.is_none()).map(|(aspect, _)| *aspect).collect();
    assert_eq!(nulls, [Aspect::CostCents, Aspect::SideEffects, Aspect::BudgetEnforcement]);
    assert!(expired.skipped.iter().all(|skipped| skipped.step_id.as_deref() == Some("s2")));
    // A body that is not what its digest names is no body.
    let forged = mock_replay(&plan, &run.journal, &|_| Some(json!({"host": "forged"})), &catalog, &Options::new("r"));
    assert_eq!(forged.expect("its own plan").report.verdict, Verdict::NotComparable);
}

/// AOS-88: a different request is reported, though codes and costs agree.
#[test]
fn request_changed() {
    let steps = |text: &str| vec![http_step("s1"), step("s2", "http_call", json!({"note": text}))];
    let (one, other) = (freeze(plan(10, steps("{{s1.body}}"))), freeze(plan(10, steps("{{s1.of}}"))));
    let catalog = Kit::standard().shared();
    let run = execute(&one, &catalog, World::new());
    // The recording of one plan under the digest of another: only the request tells.
    let mut forged = start(&other, "r-original");
    forged.plan_hash = other.hash.clone();
    let mut journal = Journal::begin(forged).expect("canonical");
    for entry in &run.journal.entries()[1..] {
        journal.append(entry.body.clone()).expect("canonical");
    }
    let report = mock_replay(&other, &journal, &|_| None, &catalog, &Options::new("r")).expect("its own plan").report;
    let changed = report.mismatches.iter().find(|it| it.why.starts_with("request_changed")).expect("listed");
    assert_eq!((changed.step_id.as_deref(), changed.field.as_str()), (Some("s2"), "request_digest"));
    assert_eq!(report.verdict, Verdict::Diverged);
}

/// AOS-95: the shape of the report.
#[test]
fn the_report_has_the_published_shape() {
    let report = serde_json::to_value(matches(vec![http_step("s1")], World::new())).expect("serialisable");
    let members: Vec<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    for member in [
        "replay_mode",
        "original_run_id",
        "replay_run_id",
        "plan_hash",
        "verdict",
        "what_if",
        "behavior_match",
        "behavior_digest",
        "first_divergence",
        "mismatches",
        "pin_violations",
        "inputs_changed",
        "evaluated",
        "skipped",
    ] {
        assert!(members.contains(&member), "{member}");
    }
    assert_eq!(report["replay_mode"], "mock_replay");
    let keys: Vec<&String> = report["behavior_match"].as_object().expect("an object").keys().collect();
    assert_eq!(keys.len(), Aspect::ALL.len());
    assert!(Aspect::ALL.iter().all(|aspect| keys.contains(&&aspect.key().to_owned())));
    assert_eq!(Aspect::ErrorCodes.metric_label(), "error_code");
    assert_eq!(
        [Verdict::Match, Verdict::Estimate, Verdict::Diverged, Verdict::Explained, Verdict::NotComparable]
            .map(Verdict::exit_code),
        [0, 0, 10, 11, 12]
    );
}

/// Alters an entry, and says whether it did.
type Forge = fn(&mut Body) -> bool;

/// The journal of a run with one entry altered, and a chain that holds all the same.
fn forged(run: &Run, forge: Forge) -> Journal {
    let mut entries = run.journal.entries().to_vec();
    assert!(entries.iter_mut().any(|entry| forge(&mut entry.body)), "there is something to forge");
    let mut previous = None;
    let mut records = Vec::new();
    for entry in &entries {
        let (text, hash) = macp_plan_core::journal::seal(previous.as_deref(), entry).expect("canonical");
        previous = Some(hash.clone());
        records.push((text, hash));
    }
    Journal::read(records.iter().map(|(text, hash)| (text, hash))).expect("the chain holds")
}

/// AOS-87: a recorded decision that is not the one the inputs lead to is found, also where nothing else depends on it.
#[test]
fn a_forged_decision_is_found() {
    let plan = freeze(plan(1_000, vec![http_step("s1"), step("s2", "post_call", json!({"effects": 2}))]));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, World::new().answer("s1", 0, http(503)));
    let forgeries: [(Aspect, &str, Forge); 9] = [
        (Aspect::RetryCount, "attempts.retry", |body| match body {
            Body::AttemptJudged { retry, .. } => std::mem::replace(retry, false),
            _ => false,
        }),
        (Aspect::Retryable, "attempts.retryable", |body| match body {
            Body::AttemptJudged { retryable, .. } => std::mem::replace(retryable, false),
            _ => false,
        }),
        (Aspect::CostCents, "attempts.cost_microcents", |body| match body {
            Body::AttemptJudged { cost_microcents, .. } => {
                *cost_microcents += 7;
                true
            }
            _ => false,
        }),
        (Aspect::BudgetEnforcement, "budget_checked.required", |body| match body {
            Body::BudgetChecked { required, .. } => {
                *required += 1;
                true
            }
            _ => false,
        }),
        (Aspect::BudgetEnforcement, "budget_checked.remaining", |body| match body {
            Body::BudgetChecked { remaining, .. } => {
                *remaining -= 1;
                true
            }
            _ => false,
        }),
        (Aspect::SideEffects, "effect_key", |body| match body {
            Body::EffectIntent { effect_key, .. } => {
                *effect_key = "aos1-0".to_owned();
                true
            }
            _ => false,
        }),
        (Aspect::RetryCount, "total_attempts", |body| match body {
            Body::StepFinished(finished) => {
                finished.total_attempts += 1;
                true
            }
            _ => false,
        }),
        (Aspect::BudgetEnforcement, "run.budget", |body| match body {
            Body::RunFinished(finished) => {
                finished.budget.spent += 1;
                true
            }
            _ => false,
        }),
        (Aspect::StepOrder, "index", |body| match body {
            Body::StepStarted { index, .. } => {
                *index += 1;
                true
            }
            _ => false,
        }),
    ];
    for (aspect, field, forge) in forgeries {
        let journal = forged(&run, forge);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let report = mock_replay(&plan, &journal, &bodies, &catalog, &Options::new("r")).expect("its own plan").report;
        assert_eq!(report.verdict, Verdict::Diverged, "{field}");
        let found: Vec<_> = report.mismatches.iter().map(|it| (it.aspect, it.field.as_str(), it.cause)).collect();
        assert_eq!(found, [(aspect, field, Origin::Runtime)]);
    }
}

/// AOS-95: what an attempt cost is told where it was charged, and not only in the sums it went into.
#[test]
fn a_forged_usage_is_told_at_its_attempt() {
    let plan = freeze(plan(1_000, vec![http_step("s1"), llm_step("s2", "abcd", 10)]));
    let catalog = Kit::standard().shared();
    let run = execute(&plan, &catalog, World::new().always("s2", Answer::of(Cause::Success).tokens(100, 9)));
    let journal = forged(&run, |body| match body {
        Body::AttemptObserved { usage: Some(usage), .. } if usage.output_tokens == 9 => {
            usage.output_tokens = 8;
            true
        }
        _ => false,
    });
    let charged = |body: &Body| matches!(body, Body::AttemptJudged { step_id, .. } if step_id == "s2");
    let charged = journal.entries().iter().find(|entry| charged(&entry.body)).expect("the attempt").seq;
    let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
    let report = mock_replay(&plan, &journal, &bodies, &catalog, &Options::new("r")).expect("its own plan").report;
    let fields: Vec<&str> = report.mismatches.iter().map(|it| it.field.as_str()).collect();
    assert!(fields.contains(&"attempts.cost_microcents") && fields.contains(&"total_cost_microcents"), "{fields:?}");
    let first = report.first_divergence.expect("it diverged");
    assert_eq!((first.step_id.as_deref(), first.attempt, first.seq), (Some("s2"), Some(0), charged));
}

/// AOS-87: so is what people were told of the budget: of which check, and how much was spent.
#[test]
fn a_forged_alert_is_found() {
    let mut value = plan(1, ["s1", "s2"].map(|id| step(id, "mail_send", json!({}))).to_vec());
    value["context"]["budget_policy"]["hard_limit"] = json!(false);
    let (plan, catalog) = (freeze(value), Kit::standard().shared());
    let run = execute(&plan, &catalog, World::new());
    let forgeries: [(&str, Forge); 3] = [
        ("budget_alert", |body| match body {
            Body::BudgetAlert(alert) => {
                alert.spent += 1;
                true
            }
            _ => false,
        }),
        ("budget_alert", |body| match body {
            Body::BudgetAlert(BudgetAlert { refused: Some(refused), .. }) => {
                refused.remaining += 1;
                true
            }
            _ => false,
        }),
        ("budget_alert", |body| match body {
            Body::BudgetAlert(alert) => alert.refused.take().is_some(),
            _ => false,
        }),
    ];
    for (field, forge) in forgeries {
        let journal = forged(&run, forge);
        let report =
            mock_replay(&plan, &journal, &|_| None, &catalog, &Options::new("r")).expect("its own plan").report;
        let found: Vec<_> = report.mismatches.iter().map(|it| (it.aspect, it.field.as_str(), it.cause)).collect();
        assert_eq!(found, [(Aspect::BudgetEnforcement, field, Origin::Runtime)]);
    }
}
