//! A server that executes plans, what the plans call, and the plans to try.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use macp_edge::{PlanSettings, Server, Settings};
use macp_ledger::{MemoryStore, Store};
use macp_plan::egress;
use macp_plan::skills::{SkillSettings, TrustSettings};
use macp_rpc::{plan, runtime};
use macp_wire::plan::v1::start_run_request::Source;
use macp_wire::plan::v1::*;
use serde_json::{Value, json};
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::target::Target;

/// Nothing here takes long; waiting this long means it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) channel: Channel,
    pub(crate) plans: plan::Client<Channel>,
    pub(crate) runtime: runtime::Client<Channel>,
    pub(crate) target: Target,
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(|_| ()).await
    }

    pub(crate) async fn with(adjust: impl FnOnce(&mut Settings)) -> World {
        World::on(Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()), Target::start().await, adjust).await
    }

    pub(crate) async fn on(
        sessions: Arc<dyn Store>,
        runs: Arc<dyn Store>,
        target: Target,
        adjust: impl FnOnce(&mut Settings),
    ) -> World {
        let plans = PlanSettings { skills: skills(), ..PlanSettings::new(runs) };
        let mut settings =
            Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), plans: Some(plans), ..Settings::default() };
        adjust(&mut settings);
        let server = Server::start(settings, sessions).await.expect("the server starts");
        let endpoint = Endpoint::from_shared(format!("http://{}", server.local_addr())).expect("an address");
        let channel = endpoint.connect().await.expect("the server listens");
        let plans = plan::Client::new(channel.clone());
        let runtime = runtime::Client::new(channel.clone());
        World { server, channel, plans, runtime, target }
    }

    pub(crate) async fn shut_down(self) {
        drop((self.plans, self.runtime, self.channel));
        self.server.shut_down().await.expect("a clean shutdown");
    }

    /// The frozen text of an authored plan, which must be fine.
    pub(crate) async fn freeze(&self, authored: &Value) -> String {
        let request = ValidatePlanRequest { plan_json: authored.to_string(), keep: false };
        let found = self.plans.clone().validate_plan(request).await.expect("an answer").into_inner();
        assert!(found.valid, "{:?}", found.findings);
        found.frozen_plan_json
    }

    /// A frozen plan of one call for each path.
    pub(crate) async fn plan(&self, paths: &[&str]) -> String {
        self.freeze(&self.authored(paths)).await
    }

    pub(crate) fn authored(&self, paths: &[&str]) -> Value {
        let steps = paths.iter().enumerate().map(|(index, path)| self.step(&format!("s{}", index + 1), path));
        authored(steps.collect())
    }

    /// A call that is tried up to three times, without much of a wait.
    pub(crate) fn step(&self, step_id: &str, path: &str) -> Value {
        json!({
            "step_id": step_id, "skill_id": "http_call", "skill_version": "1.2.0",
            "parameters": {"method": "GET", "url": self.target.url(path)},
            "retry_policy": {"max_retries": 2, "backoff_base_ms": 1, "backoff_multiplier": 1, "jitter_enabled": false,
                             "jitter_max_ms": 0, "max_delay_ms": 1000, "retryable_codes": ["ERR_HTTP_503"]},
        })
    }

    pub(crate) async fn run(&self, plan_json: String) -> String {
        self.try_start(of_plan(plan_json)).await.expect("a run").run_id
    }

    pub(crate) async fn try_start(&self, request: StartRunRequest) -> Result<StartRunResponse, Status> {
        Ok(self.plans.clone().start_run(request).await?.into_inner())
    }

    /// Runs a plan of these calls to its end.
    pub(crate) async fn run_to_end(&self, paths: &[&str]) -> String {
        let run_id = self.run(self.plan(paths).await).await;
        self.finished(&run_id).await;
        run_id
    }

    /// The journal of a run, once it has ended.
    pub(crate) async fn finished(&self, run_id: &str) -> Vec<JournalEntry> {
        self.watched(run_id, 0).await
    }

    pub(crate) async fn watched(&self, run_id: &str, from_seq: u64) -> Vec<JournalEntry> {
        let request = WatchRunRequest { run_id: run_id.to_owned(), from_seq };
        let mut stream = self.plans.clone().watch_run(request).await.expect("a watch").into_inner();
        let mut entries = Vec::new();
        while let Some(message) = next(&mut stream).await {
            entries.extend(message.expect("entries").entries);
        }
        entries
    }

    pub(crate) async fn get(&self, run_id: &str) -> Value {
        self.get_run(run_id).await.0
    }

    pub(crate) async fn get_run(&self, run_id: &str) -> (Value, RunSummary) {
        let request = GetRunRequest { run_id: run_id.to_owned() };
        let found = self.plans.clone().get_run(request).await.expect("a run").into_inner();
        (parse(&found.result_json), found.summary.expect("a summary"))
    }

    pub(crate) async fn try_replay(&self, request: ReplayRequest) -> Result<(Vec<ReplayProgress>, Value), Status> {
        let mut stream = self.plans.clone().replay(request).await?.into_inner();
        let mut progress = Vec::new();
        while let Some(message) = next(&mut stream).await {
            match message?.event.expect("an event") {
                replay_response::Event::Progress(one) => progress.push(one),
                replay_response::Event::ReportJson(report) => {
                    assert!(next(&mut stream).await.is_none(), "the report comes last");
                    return Ok((progress, parse(&report)));
                }
            }
        }
        panic!("no report came")
    }
}

/// Loopback is allowed, by http.
fn skills() -> SkillSettings {
    let egress = egress::Settings {
        allow_networks: vec!["127.0.0.0/8".to_owned()],
        allow_http: true,
        ..egress::Settings::default()
    };
    let trust = TrustSettings { system_roots: false, roots_pem: Vec::new() };
    SkillSettings { egress, trust, ..SkillSettings::default() }
}

pub(crate) fn authored(steps: Vec<Value>) -> Value {
    json!({
        "plan_id": "p-1", "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent-1", "goal": "ask around",
        "steps": steps,
        "context": {"budget_cents": 5, "allowed_skills": ["http_call"]},
    })
}

pub(crate) fn of_plan(plan_json: String) -> StartRunRequest {
    StartRunRequest { source: Some(Source::PlanJson(plan_json)), ..StartRunRequest::default() }
}

pub(crate) fn retry_of(run_id: &str) -> StartRunRequest {
    StartRunRequest { source: Some(Source::RetryRunId(run_id.to_owned())), ..StartRunRequest::default() }
}

pub(crate) fn mock(run_id: &str) -> ReplayRequest {
    ReplayRequest { run_id: run_id.to_owned(), mode: ReplayMode::Mock.into(), ..ReplayRequest::default() }
}

pub(crate) async fn next<T>(stream: &mut Streaming<T>) -> Option<Result<T, Status>> {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("a message in time")
}

pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The `type` of every entry, without those that only tell.
pub(crate) fn kinds(entries: &[JournalEntry]) -> Vec<String> {
    let kinds = entries.iter().map(|entry| parse(&entry.entry_json)["type"].as_str().expect("a type").to_owned());
    kinds.filter(|kind| kind != "observed").collect()
}

pub(crate) fn as_caller<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("ASCII"));
    request
}

/// The code of the registry a status carries.
pub(crate) fn code(status: &Status) -> &str {
    status.metadata().get("macp-error-code").expect("a status carries a code").to_str().expect("ASCII")
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, expected: &str) -> Status {
    let status = answer.expect_err("a refusal");
    assert_eq!(code(&status), expected, "{status:?}");
    status
}
