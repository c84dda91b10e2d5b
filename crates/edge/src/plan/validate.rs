//! ValidatePlan and DryRun: everything that can be said about a plan before it runs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use macp_plan::executor::Executor;
use macp_plan_core::behavior::Behavior;
use macp_plan_core::digest;
use macp_plan_core::finding::Finding;
use macp_plan_core::freeze::{self, FreezeOptions, Profile};
use macp_plan_core::plan::{FrozenPlan, PlanError};
use macp_plan_core::{check, lint};
use macp_wire::canonical;
use macp_wire::codes::Code;
use macp_wire::plan::v1::{DryRunResponse, Finding as WireFinding, ValidatePlanRequest, ValidatePlanResponse};
use tonic::Status;

use super::{Plan, Plans, refusal};
use crate::access::Access;
use crate::status;

pub(super) async fn validate(plans: &Plans, request: ValidatePlanRequest) -> Result<ValidatePlanResponse, Status> {
    let ValidatePlanRequest { plan_json, keep } = request;
    let freezer = Freezer::of(plans);
    let (mut answer, plan) = apart(move || Ok(validated(&freezer, &plan_json))).await?;
    if let Some(plan) = plan.filter(|_| keep && answer.valid) {
        plans.runs().plans().keep(plan.value).await.map_err(|error| refusal::of_store(&error))?;
        answer.kept = true;
    }
    Ok(answer)
}

fn validated(freezer: &Freezer, text: &str) -> (ValidatePlanResponse, Option<FrozenPlan>) {
    let (findings, plan) = match freezer.frozen(text) {
        Ok(plan) => {
            let registry = freezer.executor.registry();
            let findings = lint::lint(text.as_bytes(), &**registry, &freezer.options(text));
            let more = check::preflight(&plan, &**registry);
            (joined(findings, more), Some(plan))
        }
        Err(findings) => (findings, None),
    };
    let answer = ValidatePlanResponse {
        valid: check::rejection(&findings).is_none(),
        findings: findings.into_iter().map(to_wire).collect(),
        plan_hash: plan.as_ref().map(|plan| plan.hash.to_string()).unwrap_or_default(),
        frozen_plan_json: plan.as_ref().map(FrozenPlan::text).unwrap_or_default(),
        kept: false,
    };
    (answer, plan)
}

/// Both lists, in which nothing is said twice. What is said is the whole sentence and how bad it is: one step can have
/// several problems of a kind, and a warning does not stand for an error.
fn joined(mut findings: Vec<Finding>, more: Vec<Finding>) -> Vec<Finding> {
    fn said(finding: &Finding) -> (bool, &str, Option<&str>, &str) {
        (finding.is_error(), finding.reason, finding.step_id.as_deref(), &finding.problem)
    }
    let known: HashSet<_> = findings.iter().map(said).collect();
    let new: Vec<bool> = more.iter().map(|finding| !known.contains(&said(finding))).collect();
    findings.extend(more.into_iter().zip(new).filter_map(|(finding, new)| new.then_some(finding)));
    findings
}

pub(super) async fn dry_run(
    service: &Plan,
    access: &Access,
    plan_json: String,
    against_run_id: String,
) -> Result<DryRunResponse, Status> {
    let plans = &service.plans;
    let freezer = Freezer::of(plans);
    let estimate = apart(move || {
        let executor = &freezer.executor;
        let plan = freezer
            .frozen(&plan_json)
            .map_err(|findings| refusal::invalid_plan("the plan cannot be frozen", &findings))?;
        let plan = Arc::new(plan);
        // What keeps it from running is part of the estimate, unless it keeps even that from being made.
        executor.dry_run(&plan).map_err(|error| {
            let findings = check::preflight(&plan, &**executor.registry());
            match check::rejection(&findings) {
                Some(_) => refusal::invalid_plan("the plan cannot run here", &findings),
                None => refusal::ours(&error),
            }
        })
    });
    let estimate = estimate.await?;
    let mut response = DryRunResponse { estimate_json: json(&estimate)?, ..DryRunResponse::default() };
    if !against_run_id.is_empty() {
        let _turn = service.reader(access).await?;
        let run = plans.runs().load(&against_run_id).await.map_err(|error| refusal::of_store(&error))?;
        let run = run.ok_or_else(|| refusal::run_not_found(&against_run_id))?;
        if run.start().plan_hash != estimate.plan_hash {
            let message = format!("run {against_run_id:?} executed another plan, {}", run.start().plan_hash);
            return Err(refusal::refused(Code::RunConflict, message));
        }
        let behavior = Behavior::of(run.entries.iter().map(|sealed| &sealed.entry));
        response.comparison_json = json(&estimate.against(&behavior))?;
    }
    Ok(response)
}

/// Freezes what authors send, by what is here.
struct Freezer {
    executor: Executor,
    profiles: Arc<BTreeMap<String, Profile>>,
}

impl Freezer {
    fn of(plans: &Plans) -> Self {
        Freezer { executor: plans.executor.clone(), profiles: Arc::clone(&plans.profiles) }
    }

    /// The plan of a text: a frozen one as it is, an authored one frozen.
    fn frozen(&self, text: &str) -> Result<FrozenPlan, Vec<Finding>> {
        let error = match FrozenPlan::parse(text.as_bytes()) {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        let PlanError::Findings(_) = error else {
            return Err(error.into_findings());
        };
        // What claims to be frozen is not frozen again, or what is wrong with it would be repaired in silence.
        let options = self.options(text);
        let registry = self.executor.registry();
        let found = lint::lint(text.as_bytes(), &**registry, &options);
        if check::rejection(&found).is_some() {
            return Err(found);
        }
        let value = canonical::parse(text.as_bytes()).map_err(|error| PlanError::Json(error).into_findings())?;
        freeze::freeze(&value, &**registry, &options)
    }

    /// What an author may leave to us. The id follows from the text, so that the same text is the same plan.
    fn options(&self, text: &str) -> FreezeOptions {
        let digits = digest::hex_of("aos-plan-id/1", text.as_bytes());
        FreezeOptions {
            plan_id: Some(format!("plan-{}", &digits[..32])),
            created_at: Some(prost_types::Timestamp::from(SystemTime::now()).to_string()),
            // Where the plan is to run, it is known which builds of the skills run it. Whatever freezes here does so
            // alike, so that the same text has the same digest.
            pin_builds: true,
            profile: self.profile(text),
            ..FreezeOptions::default()
        }
    }

    /// The profile of the agent of an authored plan. A frozen one is what it is, whatever became of the profile.
    fn profile(&self, text: &str) -> Option<Profile> {
        if self.profiles.is_empty() || FrozenPlan::parse(text.as_bytes()).is_ok() {
            return None;
        }
        let plan = canonical::parse(text.as_bytes()).ok()?;
        self.profiles.get(plan.get("agent_id")?.as_str()?).cloned()
    }
}

fn to_wire(finding: Finding) -> WireFinding {
    WireFinding {
        error: finding.is_error(),
        code: finding.code.to_owned(),
        rule: finding.rule.to_owned(),
        step_id: finding.step_id.unwrap_or_default(),
        reason: finding.reason.to_owned(),
        problem: finding.problem,
        fix: finding.fix,
        available: finding.available,
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, Status> {
    serde_json::to_string(value).map_err(|error| refusal::ours(&error))
}

/// Plans are checked on threads of their own: half a megabyte of them takes its time.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, Status> + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(status::internal(panic.to_string())))
}
