//! What executing a plan costs beyond the calls themselves: a skill that does nothing, a journal that is durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use macp_ledger::{Append, Hash, IndexUpdate, Record, SqliteStore, Store};
use macp_plan::executor::{Executor, ExecutorSettings, Start, Unobserved};
use macp_plan::registry::Registry;
use macp_plan::secrets::Held;
use macp_plan::skill::{Call, Calling, Observation, Skill};
use macp_plan::store::{RunStore, Status};
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Effect;
use macp_plan_core::journal::Journal;
use macp_plan_core::limits::STEPS_MAX;
use macp_plan_core::plan::{FrozenPlan, JITTER, SPEC, TOKEN_ESTIMATOR};
use macp_plan_core::rate_card::RateCard;
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::skill::{Catalog, CostModel, IdempotencyClass, PureSkill, SkillMetadata};
use macp_plan_core::taxonomy;
use serde_json::{Map, Value, json};

use crate::report::{Report, median};

const MIB: f64 = 1_048_576.0;
/// Literal text of every step where memory is measured: what a step holds must not be lost among what a process holds.
const TEXT_BYTES: usize = 1_024;
/// Rounds whose medians are told: one takes less than a second for some of its figures, and the host has its moods.
const ROUNDS: usize = 5;
/// Appends whose mean is the time of one synced write.
const WRITES: u64 = 200;

pub async fn run(report: &mut Report, runs: usize) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let executor = executor(Arc::new(SqliteStore::open(directory.path())?))?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rounds.push(Round::measure(&executor, runs).await?);
    }
    let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let (write, alone, together) = (of(|round| round.write), of(|round| round.alone), of(|round| round.together));
    report.at_most(
        "one run, time of a step against one synced write",
        of(|round| round.alone / round.write),
        5.0,
        format!("{:.0} us a step, {:.0} us a write", alone * 1e6, write * 1e6),
    );
    let writes = of(|round| round.write / round.together);
    let beside = format!("{runs} runs of {STEPS_MAX} steps; {writes:.1} steps in the time of one synced write");
    report.at_least("steps executed per second, durable", 1.0 / together, 5_000.0, beside);
    report.at_most(
        "time of a step, plan of 256 steps against 32",
        of(|round| round.together / round.short),
        1.5,
        "1 is linear".to_owned(),
    );
    let (short, long) = (grown(runs, STEPS_MAX / 8)?, grown(runs, STEPS_MAX)?);
    report.at_most(
        "peak memory, plan of 256 steps against 32",
        long / short,
        8.0,
        format!("8 is linear; {runs} runs took {:.1} MiB and {:.1} MiB", long / MIB, short / MIB),
    );
    replayed(report, &executor).await?;
    executor.shutdown().await;
    Ok(())
}

/// What is compared, measured one right after the other, in seconds: a synced write, and a step of one run, of many
/// runs, and of as many runs of a short plan.
struct Round {
    write: f64,
    alone: f64,
    together: f64,
    short: f64,
}

impl Round {
    async fn measure(executor: &Executor, runs: usize) -> anyhow::Result<Self> {
        Ok(Self {
            write: synced_write()?.as_secs_f64(),
            alone: step(executor, 1, STEPS_MAX).await?,
            together: step(executor, runs, STEPS_MAX).await?,
            short: step(executor, runs, STEPS_MAX / 8).await?,
        })
    }
}

/// The mean time of an append of one record that is durable when it returns, in a store of its own.
fn synced_write() -> anyhow::Result<Duration> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(directory.path())?;
    let began = Instant::now();
    for sequence in 1..=WRITES {
        let record = Record { sequence, bytes: vec![0; 256].into(), hash: Hash::from_bytes([0; 32]) };
        let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 0, summary: None };
        let append = Append {
            session_id: "w".into(),
            expected_sequence: sequence - 1,
            expected_hash: None,
            records: vec![record],
            index,
        };
        for result in store.append(&[append]) {
            result?;
        }
    }
    Ok(began.elapsed() / u32::try_from(WRITES)?)
}

/// What so many runs of so many steps take at most, in a process of their own: memory that was taken once is not given
/// back, and would hide what the next runs take.
fn grown(runs: usize, steps: usize) -> anyhow::Result<f64> {
    let mut process = std::process::Command::new(std::env::current_exe()?);
    process.args(["plan-memory", "--runs", &runs.to_string(), "--steps", &steps.to_string()]);
    let output = process.stderr(std::process::Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "runs of {steps} steps failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// The other side of [`grown`]: executes, and prints the growth in bytes.
pub async fn memory(runs: usize, steps: usize) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let executor = executor(Arc::new(SqliteStore::open(directory.path())?))?;
    // What the first run sets up stays, whatever comes after it.
    execute(&executor, 1, &plan(1, 0)?).await?;
    let before = kilobytes("VmRSS:")?;
    execute(&executor, runs, &plan(steps, TEXT_BYTES)?).await?;
    let peak = kilobytes("VmHWM:")?;
    executor.shutdown().await;
    println!("{}", peak.saturating_sub(before) * 1_024);
    Ok(())
}

/// A line of what the system tells about this process.
fn kilobytes(name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let Some(line) = line else { anyhow::bail!("the system does not tell {name}") };
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The seconds that one step takes of so many runs of so many steps, all at once.
async fn step(executor: &Executor, runs: usize, steps: usize) -> anyhow::Result<f64> {
    let took = execute(executor, runs, &plan(steps, 0)?).await?;
    Ok(took.as_secs_f64() / (runs * steps) as f64)
}

/// Executes a plan so many times at once; says how long it took until the last run had ended. To read what became of
/// them, which checks their journals from the first entry on, is not a part of that.
async fn execute(executor: &Executor, runs: usize, plan: &FrozenPlan) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut started = Vec::with_capacity(runs);
    for _ in 0..runs {
        started.push(executor.start(Start::execute(plan.clone(), "bench")).await?.run_id);
    }
    for run_id in &started {
        anyhow::ensure!(executor.wait(run_id).await?, "the run was started");
    }
    let took = began.elapsed();
    for run_id in started {
        let Some(result) = executor.result(&run_id).await? else { anyhow::bail!("the run was started") };
        anyhow::ensure!(result.status == Status::Succeeded, "a run ended with {:?}", result.final_code);
    }
    Ok(took)
}

/// Entries of a recorded run replayed per second, reading and checking the chain included.
async fn replayed(report: &mut Report, executor: &Executor) -> anyhow::Result<()> {
    let plan = plan(STEPS_MAX, 0)?;
    let run_id = executor.start(Start::execute(plan.clone(), "bench")).await?.run_id;
    executor.finished(&run_id).await?;
    let Some(run) = executor.runs().load(&run_id).await? else { anyhow::bail!("the run was started") };
    let texts: Vec<_> = run.entries.iter().map(|sealed| (sealed.text.clone(), sealed.hash.to_string())).collect();
    let catalog = Arc::clone(executor.registry()) as Arc<dyn Catalog>;
    let plan = Arc::new(plan);
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (mut entries, began) = (0, Instant::now());
        while began.elapsed() < Duration::from_secs(1) {
            let journal = Journal::read(texts.iter().map(|(text, hash)| (text, hash)))?;
            let mock = mock_replay(&plan, &journal, &|_| None, &catalog, &Options::new("replay"))?;
            anyhow::ensure!(mock.report.mismatches.is_empty(), "the replay does not match: {:?}", mock.report);
            entries += texts.len();
        }
        rates.push(entries as f64 / began.elapsed().as_secs_f64());
    }
    let beside = "chain checked".to_owned();
    report.at_least("journal entries mock-replayed per second, one core", median(rates), 100_000.0, beside);
    Ok(())
}

fn executor(store: Arc<dyn Store>) -> anyhow::Result<Executor> {
    let mut registry = Registry::new();
    registry.register(Arc::new(Nothing::new()), None)?;
    registry.add_rate_card(card())?;
    let settings = ExecutorSettings { runs_live_max: 10_000, ..ExecutorSettings::default() };
    let (registry, secrets) = (Arc::new(registry), Arc::new(Held::default()));
    Ok(Executor::open(RunStore::open(store)?, registry, secrets, settings, Arc::new(Unobserved)))
}

fn card() -> Value {
    json!({ "currency": "USD", "id": "bench", "skills": { "nothing@1.0.0": { "base": 0 } } })
}

/// A plan of steps that do nothing, of which every one refers to the one before it and gives back so much text.
fn plan(steps: usize, text_bytes: usize) -> anyhow::Result<FrozenPlan> {
    let policy = json!({
        "max_retries": 0, "backoff_base_ms": 0, "backoff_multiplier": 1, "retryable_codes": [],
        "jitter_enabled": false, "jitter_max_ms": 0, "max_delay_ms": 0,
    });
    let step = |at: usize| {
        let n = if at == 0 { json!(0) } else { json!(format!("{{{{s{}.n}}}}", at - 1)) };
        let mut parameters = json!({ "n": n });
        if text_bytes > 0 {
            parameters["text"] = "x".repeat(text_bytes).into();
        }
        json!({
            "step_id": format!("s{at}"), "skill_id": "nothing", "skill_version": "1.0.0",
            "parameters": parameters, "retry_policy": policy, "on_error": "abort",
        })
    };
    let card = RateCard::from_value(card())?;
    Ok(FrozenPlan::from_value(json!({
        "plan_id": format!("bench-{steps}"), "created_at": "2026-01-01T00:00:00Z", "agent_id": "bench", "goal": "cost",
        "steps": (0..steps).map(step).collect::<Vec<_>>(),
        "context": {
            "budget_cents": 0, "allowed_skills": ["nothing"],
            "budget_policy": {
                "hard_limit": true, "per_step_max_cents": null, "alert_threshold_percent": 80, "admission": null,
                "policy_version": "1.0.0",
            },
        },
        "pins": {
            "spec": SPEC, "taxonomy_version": taxonomy::DEFAULT_VERSION, "jitter": JITTER,
            "token_estimator": TOKEN_ESTIMATOR, "rate_card": { "id": "bench", "hash": card.digest() },
        },
    }))?)
}

/// A skill that gives back what it was given.
#[derive(Debug)]
struct Nothing {
    metadata: SkillMetadata,
}

impl Nothing {
    fn new() -> Self {
        let metadata = SkillMetadata {
            skill_id: "nothing".to_owned(),
            name: "Nothing".to_owned(),
            version: "1.0.0".to_owned(),
            description: "Gives back what it was given".to_owned(),
            input_schema: json!({ "type": "object" }),
            output_schema: json!({ "type": "object" }),
            timeout_ms: 1_000,
            cost_estimate_cents: 0,
            retry: None,
            permissions: Vec::new(),
            side_effects: Vec::new(),
            deterministic: true,
            stable_fields: Vec::new(),
            nondeterminism: None,
            failure_modes: Vec::new(),
            idempotency: IdempotencyClass::Natural,
            cost_model: CostModel { rate_card_key: "nothing@1.0.0".to_owned() },
            constraints: Map::new(),
        };
        Self { metadata }
    }
}

impl PureSkill for Nothing {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, _: &Map<String, Value>) -> Vec<Effect> {
        Vec::new()
    }

    fn usage_bound(&self, _: &Map<String, Value>) -> Usage {
        Usage::default()
    }

    fn check_input(&self, _: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }
}

impl Skill for Nothing {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        let output = Value::Object(call.parameters.clone());
        Box::pin(async move { Observation::success(output, "nothing was done") })
    }
}
