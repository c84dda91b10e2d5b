//! `macp.plan.v1.PlanService`: which handler answers which call, and who may ask. One file per family of calls.
//!
//! A run is seen by who started it, by whoever may read the session it belongs to, and by observers; it is stopped,
//! settled and executed again by who started it and by roles that may cancel. To everybody else it does not exist, so
//! that nobody finds out by asking. A plan without a session is started by the agent it names, or by such a role. In local
//! development everything is open.

mod query;
mod refusal;
mod replay;
mod running;
mod runs;
mod skills;
mod start;
mod transfer;
mod validate;
mod watch;

use std::sync::Arc;

use macp_plan::store::Summary;
use macp_rpc::plan::Service;
use macp_wire::plan::v1::*;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::access::{self, Access};
use crate::context::Context;
use crate::identity;
use crate::metrics::Rpc;
use crate::outbound::Outbound;
use crate::rate::Kind;
use crate::readers::Turn;
use crate::runtime;

pub(crate) use running::{Plans, ServerFacts};

/// Largest request: a chunk of an exported run. Plans are far smaller.
pub(crate) const DECODE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    ctx: Arc<Context>,
    plans: Arc<Plans>,
}

impl Plan {
    pub(crate) fn new(ctx: Arc<Context>, plans: Arc<Plans>) -> Self {
        Plan { ctx, plans }
    }

    /// Waits for a turn to read a whole run.
    async fn reader(&self, access: &Access) -> Result<Turn, Status> {
        self.ctx.history_readers.enter(access).await
    }

    fn access<T>(&self, request: &Request<T>) -> Result<Access, Status> {
        let access = identity::of_request(request.extensions()).admitted()?;
        if access.identity().is_none() && !access.local {
            return Err(access::unidentified());
        }
        Ok(access)
    }

    /// A run the caller may see.
    async fn seen(&self, access: &Access, run_id: &str) -> Result<Summary, Status> {
        let _turn = self.ctx.state_readers.enter(access).await?;
        let summary = self.plans.runs().summary(run_id).await.map_err(|error| refusal::of_store(&error))?;
        let summary = summary.ok_or_else(|| refusal::run_not_found(run_id))?;
        match self.sees(access, &summary).await? {
            true => Ok(summary),
            false => Err(refusal::run_not_found(run_id)),
        }
    }

    /// Whether the caller may see a run. The error is ours.
    async fn sees(&self, access: &Access, summary: &Summary) -> Result<bool, Status> {
        if access.sees_run(&summary.started_by) {
            return Ok(true);
        }
        let Some(session_id) = &summary.session_id else {
            return Ok(false);
        };
        match runtime::readable(&self.ctx, access, session_id).await {
            Ok(_) => Ok(true),
            Err(status) if matches!(status.code(), Code::NotFound | Code::PermissionDenied | Code::Unauthenticated) => {
                Ok(false)
            }
            // Nobody can tell now: neither that there is no such run.
            Err(status) => Err(status),
        }
    }

    /// A run the caller may act on.
    async fn controlled(&self, access: &Access, run_id: &str) -> Result<Summary, Status> {
        let summary = self.plans.runs().summary(run_id).await.map_err(|error| refusal::of_store(&error))?;
        let summary = summary.ok_or_else(|| refusal::run_not_found(run_id))?;
        match access.check_control_of_run(&summary.started_by) {
            Ok(()) => Ok(summary),
            Err(refused) if self.sees(access, &summary).await? => Err(refused),
            Err(_not_even_seen) => Err(refusal::run_not_found(run_id)),
        }
    }
}

/// Under whose name something is done.
fn by(access: &Access) -> String {
    access.identity().unwrap_or_default().to_owned()
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Service for Plan {
    type WatchRunStream = Outbound<WatchRunResponse>;
    type ReplayStream = Outbound<ReplayResponse>;
    type ExportRunStream = Outbound<ExportRunResponse>;

    async fn validate_plan(&self, request: Request<ValidatePlanRequest>) -> Answer<ValidatePlanResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ValidatePlan);
        let access = self.access(&request)?;
        if request.get_ref().keep {
            // What is kept takes room for ever, like a run.
            access.check_start_runs()?;
            self.ctx.take_share(&access, Kind::Start)?;
        } else {
            self.ctx.take_share(&access, Kind::Message)?;
        }
        validate::validate(&self.plans, request.into_inner()).await.map(Response::new)
    }

    async fn dry_run(&self, request: Request<DryRunRequest>) -> Answer<DryRunResponse> {
        let _timer = self.ctx.metrics.time(Rpc::DryRun);
        let access = self.access(&request)?;
        let DryRunRequest { plan_json, against_run_id } = request.into_inner();
        if !against_run_id.is_empty() {
            self.seen(&access, &against_run_id).await?;
        }
        self.ctx.take_share(&access, Kind::Message)?;
        validate::dry_run(self, &access, plan_json, against_run_id).await.map(Response::new)
    }

    async fn start_run(&self, request: Request<StartRunRequest>) -> Answer<StartRunResponse> {
        let _timer = self.ctx.metrics.time(Rpc::StartRun);
        let access = self.access(&request)?;
        access.check_start_runs()?;
        self.ctx.take_share(&access, Kind::Start)?;
        start::start(self, &access, request.into_inner()).await.map(Response::new)
    }

    async fn get_run(&self, request: Request<GetRunRequest>) -> Answer<GetRunResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetRun);
        let access = self.access(&request)?;
        let summary = self.seen(&access, &request.get_ref().run_id).await?;
        runs::get(self, &access, summary).await.map(Response::new)
    }

    async fn list_runs(&self, request: Request<ListRunsRequest>) -> Answer<ListRunsResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListRuns);
        let access = self.access(&request)?;
        runs::list(self, &access, request.into_inner()).await.map(Response::new)
    }

    async fn watch_run(&self, request: Request<WatchRunRequest>) -> Answer<Self::WatchRunStream> {
        let access = self.access(&request)?;
        self.seen(&access, &request.get_ref().run_id).await?;
        watch::watch(&self.ctx, &self.plans, &access, request.into_inner()).await.map(Response::new)
    }

    async fn cancel_run(&self, request: Request<CancelRunRequest>) -> Answer<CancelRunResponse> {
        let _timer = self.ctx.metrics.time(Rpc::CancelRun);
        let access = self.access(&request)?;
        self.controlled(&access, &request.get_ref().run_id).await?;
        runs::cancel(&self.plans, &by(&access), request.get_ref()).await.map(Response::new)
    }

    async fn resolve_in_doubt(&self, request: Request<ResolveInDoubtRequest>) -> Answer<ResolveInDoubtResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ResolveInDoubt);
        let access = self.access(&request)?;
        self.controlled(&access, &request.get_ref().run_id).await?;
        runs::resolve(&self.plans, &by(&access), request.get_ref()).await.map(Response::new)
    }

    async fn replay(&self, request: Request<ReplayRequest>) -> Answer<Self::ReplayStream> {
        let access = self.access(&request)?;
        let summary = self.seen(&access, &request.get_ref().run_id).await?;
        if request.get_ref().mode() == ReplayMode::Full {
            access.check_start_runs()?;
            access.check_control_of_run(&summary.started_by)?;
            if !request.get_ref().allow_step_ids.is_empty() && !start::may_repeat(&access) {
                return Err(refusal::may_not_repeat("a replay with allow_step_ids repeats the effects of these steps"));
            }
            self.ctx.take_share(&access, Kind::Start)?;
        }
        replay::replay(self, &access, &summary, request.into_inner()).await.map(Response::new)
    }

    async fn query(&self, request: Request<QueryRequest>) -> Answer<QueryResponse> {
        let _timer = self.ctx.metrics.time(Rpc::Query);
        let access = self.access(&request)?;
        self.seen(&access, &request.get_ref().run_id).await?;
        query::query(self, &access, request.into_inner()).await.map(Response::new)
    }

    async fn list_skills(&self, request: Request<ListSkillsRequest>) -> Answer<ListSkillsResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListSkills);
        self.access(&request)?;
        Ok(Response::new(skills::list(&self.plans)))
    }

    async fn describe_skill(&self, request: Request<DescribeSkillRequest>) -> Answer<DescribeSkillResponse> {
        let _timer = self.ctx.metrics.time(Rpc::DescribeSkill);
        self.access(&request)?;
        skills::describe(&self.plans, request.get_ref()).map(Response::new)
    }

    async fn export_run(&self, request: Request<ExportRunRequest>) -> Answer<Self::ExportRunStream> {
        let access = self.access(&request)?;
        let summary = self.seen(&access, &request.get_ref().run_id).await?;
        transfer::export(self, &access, summary.run_id).await.map(Response::new)
    }

    async fn import_run(&self, request: Request<Streaming<ImportRunRequest>>) -> Answer<ImportRunResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ImportRun);
        let access = self.access(&request)?;
        access.check_import()?;
        transfer::import(self, &access, request.into_inner()).await.map(Response::new)
    }
}
