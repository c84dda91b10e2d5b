//! The act in which agents commit to a plan, and the runtime executes exactly that plan exactly once.

use std::time::Duration;

use anyhow::{Context, bail};
use macp_client::{Client, Draft, RunReplayed};
use macp_plan::registry;
use macp_plan::result::RunResult;
use macp_plan::session::{PREFIX, execution_session_id};
use macp_plan::skills::SkillSettings;
use macp_plan::store::Status;
use macp_plan_core::compare::{Report, Verdict};
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::journal::{Body, Entry};
use macp_plan_core::plan::FrozenPlan;
use macp_wire::modes::decision::v1::{EvaluationPayload, ProposalPayload, VotePayload};
use macp_wire::plan::v1::start_run_request::Source;
use macp_wire::plan::v1::{ReplayMode, ReplayRequest, StartRunRequest};
use macp_wire::v1::{CommitmentPayload, Envelope, SessionStartPayload, SessionState};
use prost::Message;
use serde_json::json;

use super::shop::Shop;
use super::stage::{Expected, Stage};
use crate::money::span;

const MODE: &str = "macp.mode.decision.v1";
const MODE_VERSION: &str = "1.0.0";
const CONFIGURATION: &str = "demo";
const TTL_MS: i64 = 600_000;

/// How long the report of a run may take to arrive in its session, which is far more than it does.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
const REPORT_POLL: Duration = Duration::from_millis(20);

/// What is left of the act, to be proven after the restart.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) run_id: String,
    pub(super) decision: String,
    pub(super) execution: String,
}

/// The whole act.
pub(super) async fn play(stage: &mut Stage<'_>, client: &Client, session: &str) -> anyhow::Result<Played> {
    let shop = Shop::open().await?;
    let plan = write(&shop)?;
    let hash = plan.hash.as_str();
    stage.note(&format!("ada freezes a plan of three steps; its digest is {}….", &hash[..23])).await?;
    decide(stage, client, session, &plan).await?;

    let ada = client.clone().with_token("ada")?;
    let start =
        || StartRunRequest { source: Some(Source::SessionId(session.to_owned())), ..StartRunRequest::default() };
    let started = ada.start_run(start()).await?;
    follow(stage, &ada, &started.run_id).await?;
    let answer = ada.get_run(&started.run_id).await?;
    let result: RunResult = serde_json::from_str(&answer.result_json).context("the result of the run")?;
    let good = result.status == Status::Succeeded && result.retry_count == 1;
    stage.proof(good, "the runtime executed what was committed, with one retry").await?;

    let again = ada.start_run(start()).await?;
    let same = again.existing && again.run_id == started.run_id;
    stage.proof(same, "started once more, it is still the same run").await?;
    let effects = shop.effects();
    let words = format!("the shop saw {} effects, each under a key of its own", effects.len());
    stage.proof(effects.len() == 2 && effects.values().all(|times| *times == 1), &words).await?;
    replays(stage, &ada, &started.run_id).await?;

    let execution = execution_session_id(&started.run_id);
    let state = reported(&ada, &execution).await?;
    let words = format!("the run is reported in a session of its own, which is {}", crate::view::state_name(state));
    stage.proof(state == SessionState::Resolved, &words).await?;
    Ok(Played { run_id: started.run_id, decision: session.to_owned(), execution })
}

/// A plan with a read that fails once, and two effects that must happen once.
fn write(shop: &Shop) -> anyhow::Result<FrozenPlan> {
    let post = |path: &str, body| json!({"method": "POST", "url": shop.url(path), "body": body, "target_dedupes": true, "expect_json": true});
    let step = |id: &str, parameters| json!({"step_id": id, "skill_id": "http_call", "skill_version": "1.2.0", "parameters": parameters});
    let authored = json!({
        "plan_id": format!("canary-{}", uuid::Uuid::new_v4().simple()),
        "agent_id": "ada",
        "goal": "Start the canary and tell everyone",
        "steps": [
            step("check", json!({"method": "GET", "url": shop.url("/health"), "expect_json": true})),
            step("canary", post("/canary", json!({"percent": 5, "on": "{{check.body.host}}"}))),
            step("tell", post("/news", json!({"text": "canary {{canary.body.id}} is up"}))),
        ],
        "context": {"budget_cents": 10, "allowed_skills": ["http_call"]},
    });
    let mut settings = SkillSettings::default();
    settings.trust.system_roots = false;
    let registry = registry::standard(&settings)?;
    let options = FreezeOptions { created_at: Some("2026-01-01T00:00:00Z".to_owned()), ..FreezeOptions::default() };
    match freeze(&authored, &registry, &options) {
        Ok(plan) => Ok(plan),
        Err(findings) => bail!("the plan of the demo cannot be frozen: {findings:?}"),
    }
}

/// A session by today's standard: the plan is proposed, looked at, voted on and committed to by its digest.
async fn decide(stage: &mut Stage<'_>, client: &Client, session: &str, plan: &FrozenPlan) -> anyhow::Result<()> {
    use Expected::{Accepted, Refused};

    let start = SessionStartPayload {
        intent: "Shall this plan run?".to_owned(),
        participants: ["ada", "ben", "cleo"].map(str::to_owned).to_vec(),
        mode_version: MODE_VERSION.to_owned(),
        configuration_version: CONFIGURATION.to_owned(),
        ttl_ms: TTL_MS,
        ..SessionStartPayload::default()
    };
    let mut say = async |sender: &str, kind: &str, payload: Vec<u8>, words: &str, expected| {
        let envelope = message(session, sender, kind, payload);
        stage.send(&client.clone().with_token(sender)?, envelope, words, expected).await
    };
    say("ada", "SessionStart", start.encode_to_vec(), "Shall this plan run? With ben and cleo.", Accepted).await?;
    let proposal = ProposalPayload {
        proposal_id: "p1".to_owned(),
        option: "Run the plan".to_owned(),
        rationale: "It costs nothing and repeats nothing.".to_owned(),
        supporting_data: plan.text().into_bytes().into(),
    };
    say("ada", "Proposal", proposal.encode_to_vec(), "p1: run the plan, here it is", Accepted).await?;
    let evaluation = EvaluationPayload {
        proposal_id: "p1".to_owned(),
        recommendation: "APPROVE".to_owned(),
        confidence: 0.9,
        reason: "I read every step.".to_owned(),
    };
    say("ben", "Evaluation", evaluation.encode_to_vec(), "p1: approve, I read every step", Accepted).await?;
    for (sender, words) in [("ben", "p1: approve"), ("cleo", "p1: approve")] {
        let vote = VotePayload {
            proposal_id: "p1".to_owned(),
            vote: "APPROVE".to_owned(),
            reason: "The digest is what I read.".to_owned(),
        };
        say(sender, "Vote", vote.encode_to_vec(), words, Accepted).await?;
    }
    let commitment = CommitmentPayload {
        commitment_id: format!("{PREFIX}{}", plan.hash),
        action: "decision.selected".to_owned(),
        authority_scope: "release-team".to_owned(),
        reason: "Two approvals".to_owned(),
        mode_version: MODE_VERSION.to_owned(),
        configuration_version: CONFIGURATION.to_owned(),
        outcome_positive: true,
        ..CommitmentPayload::default()
    };
    let payload = commitment.encode_to_vec();
    say("ada", "Commitment", payload.clone(), "we commit to exactly this plan, by its digest", Accepted).await?;
    say("ada", "Commitment", payload, "and to it once more (too late)", Refused("SESSION_NOT_OPEN")).await?;
    Ok(())
}

fn message(session: &str, sender: &str, kind: &str, payload: Vec<u8>) -> Envelope {
    Draft::new(session, kind, sender).mode(MODE).payload(payload).build()
}

/// Tells the steps of a run as they end.
async fn follow(stage: &mut Stage<'_>, client: &Client, run_id: &str) -> anyhow::Result<()> {
    let mut batches = client.watch_run(run_id, 0).await?;
    let mut failed = String::new();
    while let Some(batch) = batches.next().await? {
        for recorded in batch {
            let entry: Entry = serde_json::from_str(&recorded.entry_json).context("an entry of the journal")?;
            match &entry.body {
                Body::AttemptJudged { code, retry: true, .. } => failed.clone_from(code),
                Body::RetryScheduled { step_id, backoff_ms, .. } => {
                    stage.step(false, step_id, &format!("{failed}; once more in {}", span(*backoff_ms))).await?;
                }
                Body::StepFinished(step) => {
                    let target = step.side_effects.last().map(|(_, target)| target.as_str()).unwrap_or_default();
                    let good = step.code.starts_with("OK");
                    stage.step(good, &step.step_id, &format!("{} at {target}", step.code)).await?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A run decided once more from its recording.
pub(super) async fn replays(stage: &mut Stage<'_>, client: &Client, run_id: &str) -> anyhow::Result<()> {
    let mode = ReplayMode::Mock.into();
    let request = ReplayRequest { run_id: run_id.to_owned(), mode, ..ReplayRequest::default() };
    let mut events = client.replay_run(request).await?;
    let mut report = None;
    while let Some(event) = events.next().await? {
        if let RunReplayed::Report(text) = event {
            report = Some(serde_json::from_str::<Report>(&text).context("the report of the replay")?);
        }
    }
    let report = report.context("the server ended the replay without a report")?;
    let attempts = report.evaluated.attempts;
    let words = match report.verdict {
        Verdict::Match => format!("the run replays from its recording, {attempts} attempts, nothing called: match"),
        other => format!("the replay of the run says {other:?}: {:?}", report.mismatches),
    };
    stage.proof(report.verdict == Verdict::Match, &words).await
}

/// The state of an execution session once it has ended; reports follow their runs a moment later.
async fn reported(client: &Client, session: &str) -> anyhow::Result<SessionState> {
    let ended = async {
        loop {
            match client.get_session(session).await {
                Ok(found) if found.state() != SessionState::Open => return Ok(found.state()),
                Err(error) if !error.is_not_found() => return Err(error),
                Ok(_) | Err(_) => tokio::time::sleep(REPORT_POLL).await,
            }
        }
    };
    Ok(tokio::time::timeout(REPORT_TIMEOUT, ended).await.context("the report of the run does not arrive")??)
}
