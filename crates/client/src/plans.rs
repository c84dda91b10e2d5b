//! Checking plans, running them, and looking at runs.

use bytes::Bytes;
use macp_wire::plan::v1::{
    CancelRunRequest, DescribeSkillRequest, DescribeSkillResponse, DryRunRequest, DryRunResponse, ExportRunRequest,
    ExportRunResponse, GetRunRequest, GetRunResponse, ImportRunRequest, ImportRunResponse, JournalEntry,
    ListRunsRequest, ListRunsResponse, ListSkillsRequest, QueryRequest, QueryResponse, ReplayProgress, ReplayRequest,
    ReplayResponse, ResolveInDoubtRequest, ResolveInDoubtResponse, SkillSummary, StartRunRequest, StartRunResponse,
    ValidatePlanRequest, ValidatePlanResponse, WatchRunRequest, WatchRunResponse, replay_response,
};
use tokio_stream::{Stream, StreamExt};

use crate::{Client, Error, Incoming};

/// What the replay of a run tells: how far it is, then the report as JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum RunReplayed {
    Progress(ReplayProgress),
    Report(String),
}

impl Client {
    /// Everything that keeps a plan, authored or frozen, from running at the server.
    pub async fn validate_plan(&self, plan_json: impl Into<String>) -> Result<ValidatePlanResponse, Error> {
        let request = ValidatePlanRequest { plan_json: plan_json.into(), keep: false };
        Ok(self.plan.clone().validate_plan(request).await?.into_inner())
    }

    /// The same, and the server keeps the frozen plan if nothing stands in its way.
    pub async fn keep_plan(&self, plan_json: impl Into<String>) -> Result<ValidatePlanResponse, Error> {
        let request = ValidatePlanRequest { plan_json: plan_json.into(), keep: true };
        Ok(self.plan.clone().validate_plan(request).await?.into_inner())
    }

    /// What a plan would cost and how long it could take, beside what a run of it did if one is named.
    pub async fn dry_run(
        &self,
        plan_json: impl Into<String>,
        against_run_id: Option<&str>,
    ) -> Result<DryRunResponse, Error> {
        let against_run_id = against_run_id.unwrap_or_default().to_owned();
        let request = DryRunRequest { plan_json: plan_json.into(), against_run_id };
        Ok(self.plan.clone().dry_run(request).await?.into_inner())
    }

    /// Starts a run. The same request id means the same run.
    pub async fn start_run(&self, request: StartRunRequest) -> Result<StartRunResponse, Error> {
        Ok(self.plan.clone().start_run(request).await?.into_inner())
    }

    /// A run as it stands.
    pub async fn get_run(&self, run_id: &str) -> Result<GetRunResponse, Error> {
        let request = GetRunRequest { run_id: run_id.to_owned() };
        Ok(self.plan.clone().get_run(request).await?.into_inner())
    }

    /// One page of runs, newest first. A page may be empty and still have a next one.
    pub async fn list_runs(&self, request: ListRunsRequest) -> Result<ListRunsResponse, Error> {
        Ok(self.plan.clone().list_runs(request).await?.into_inner())
    }

    /// The journal of a run from an entry on, and then as it grows; ends with the run.
    pub async fn watch_run(
        &self,
        run_id: &str,
        from_seq: u64,
    ) -> Result<Incoming<WatchRunResponse, Vec<JournalEntry>>, Error> {
        let request = WatchRunRequest { run_id: run_id.to_owned(), from_seq };
        let entries = self.plan.clone().watch_run(request).await?.into_inner();
        Ok(Incoming::new(entries, |message| Ok(message.entries)))
    }

    /// Asks a run to stop at the next boundary.
    pub async fn cancel_run(&self, run_id: &str, reason: &str) -> Result<(), Error> {
        let request = CancelRunRequest { run_id: run_id.to_owned(), reason: reason.to_owned() };
        self.plan.clone().cancel_run(request).await?;
        Ok(())
    }

    /// Says what became of an effect that is in doubt. The first word stands.
    pub async fn resolve_in_doubt(&self, request: ResolveInDoubtRequest) -> Result<ResolveInDoubtResponse, Error> {
        Ok(self.plan.clone().resolve_in_doubt(request).await?.into_inner())
    }

    /// Replays a run. The last message is the report.
    pub async fn replay_run(&self, request: ReplayRequest) -> Result<Incoming<ReplayResponse, RunReplayed>, Error> {
        let events = self.plan.clone().replay(request).await?.into_inner();
        Ok(Incoming::new(events, |message| match message.event {
            Some(replay_response::Event::Progress(progress)) => Ok(RunReplayed::Progress(progress)),
            Some(replay_response::Event::ReportJson(report)) => Ok(RunReplayed::Report(report)),
            None => Err(Error::Incomplete("event")),
        }))
    }

    /// One question about a run as of an entry of its journal.
    pub async fn query_run(&self, request: QueryRequest) -> Result<QueryResponse, Error> {
        Ok(self.plan.clone().query(request).await?.into_inner())
    }

    /// The skills that can be called at the server.
    pub async fn list_skills(&self) -> Result<Vec<SkillSummary>, Error> {
        Ok(self.plan.clone().list_skills(ListSkillsRequest {}).await?.into_inner().skills)
    }

    /// What one version of a skill declares about itself; an empty version if there is only one.
    pub async fn describe_skill(&self, skill_id: &str, version: &str) -> Result<DescribeSkillResponse, Error> {
        let request = DescribeSkillRequest { skill_id: skill_id.to_owned(), version: version.to_owned() };
        Ok(self.plan.clone().describe_skill(request).await?.into_inner())
    }

    /// A run as one self-contained JSON-lines file, in chunks.
    pub async fn export_run(&self, run_id: &str) -> Result<Incoming<ExportRunResponse, Bytes>, Error> {
        let request = ExportRunRequest { run_id: run_id.to_owned() };
        let chunks = self.plan.clone().export_run(request).await?.into_inner();
        Ok(Incoming::new(chunks, |message| Ok(message.chunk)))
    }

    /// Has the server take over a run that was exported elsewhere. Chunks hold at most 4 MiB, and are cut anywhere.
    pub async fn import_run(
        &self,
        chunks: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<ImportRunResponse, Error> {
        let requests = chunks.map(|chunk| ImportRunRequest { chunk });
        Ok(self.plan.clone().import_run(requests).await?.into_inner())
    }
}
