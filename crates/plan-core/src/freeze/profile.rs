//! What an agent's profile contributes when its plans are frozen (AOS-32). Later changes of the profile change no plan.
//!
//! A profile can only take away: the smaller of two limits counts, and what is not allowed is found. It has more fields
//! than freezing can use; those are read, so that a profile made for others fits here too, and named as having no effect.

use serde::Deserialize;
use serde_json::Value;

use crate::finding::Finding;
use crate::plan::limits::shown;
use crate::plan::{AdmissionLimits, BudgetPolicy, Plan, Step};
use crate::skill::{Catalog, guarded};

/// The parameter that says where a call goes.
const URL: &str = "url";

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Whose profile it is; any agent's if it does not say so.
    pub agent_id: Option<String>,
    pub allowed_skills: Option<Vec<String>>,
    pub denied_skills: Vec<String>,
    /// The same as in `policies`; of both the smaller counts.
    pub max_retries_per_step: Option<u32>,
    pub budget: Budget,
    pub policies: Policies,
    pub name: Option<Value>,
    pub description: Option<Value>,
    pub planner: Option<Value>,
    pub default_resource_contract_id: Option<Value>,
    pub permissions: Option<Value>,
    pub memory_policy: Option<Value>,
    pub safety: Option<Value>,
    pub rate_limits: Option<Value>,
    pub defaults: Option<Value>,
    pub created_at: Option<Value>,
}

/// What the agent's runs may cost; folded into the budget policy of its plans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    pub max_cost_cents_per_run: Option<u64>,
    pub max_cost_cents_per_day: Option<u64>,
    pub max_cost_cents_per_month: Option<u64>,
    pub alert_threshold_percent: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// Hosts that URLs in plans may name: a name, or `*.` and a name for every host below it.
    pub allowed_domains: Option<Vec<String>>,
    pub blocked_domains: Vec<String>,
    pub max_plan_steps: Option<usize>,
    pub max_retries_per_step: Option<u32>,
    pub require_human_approval: Option<Value>,
    pub require_human_approval_above_cents: Option<Value>,
    pub timeout_seconds: Option<Value>,
}

impl Profile {
    /// The most retries that a step may have.
    pub(super) fn max_retries(&self) -> Option<u32> {
        self.max_retries_per_step.into_iter().chain(self.policies.max_retries_per_step).min()
    }

    /// Lowers the limits of a budget policy to those of the profile.
    pub(super) fn fold(&self, policy: &mut BudgetPolicy) {
        let smaller = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let written = policy.admission.unwrap_or_default();
        let limits = AdmissionLimits {
            per_run_max_cents: smaller(written.per_run_max_cents, self.budget.max_cost_cents_per_run),
            per_day_max_cents: smaller(written.per_day_max_cents, self.budget.max_cost_cents_per_day),
            per_month_max_cents: smaller(written.per_month_max_cents, self.budget.max_cost_cents_per_month),
        };
        if limits != AdmissionLimits::default() {
            policy.admission = Some(limits);
        }
        let threshold = self.budget.alert_threshold_percent.unwrap_or(u32::MAX);
        policy.alert_threshold_percent = policy.alert_threshold_percent.min(threshold);
    }

    /// What of a plan the profile does not allow, and what of the profile has no effect on it.
    pub(super) fn check(&self, found: &mut Vec<Finding>, plan: &Plan, catalog: &dyn Catalog) {
        if let Some(agent_id) = self.agent_id.as_ref().filter(|agent_id| **agent_id != plan.agent_id) {
            let problem = format!("the profile is that of `{}`, and the plan is another agent's", shown(agent_id));
            let fix = "freeze it by the profile of its agent";
            found.push(Finding::error("AOS-32", "profile_of_another", problem).fix(fix));
        }
        if let Some(most) = self.policies.max_plan_steps.filter(|most| plan.steps.len() > *most) {
            let problem = format!("the plan has {} steps, and the agent's profile allows {most}", plan.steps.len());
            found.push(violation("too_many_steps", problem, "make two plans of it, or have the profile changed"));
        }
        for step in &plan.steps {
            self.check_domains(found, step, catalog);
        }
        for name in self.without_effect() {
            let problem = format!("the field `{name}` of the agent's profile has no effect on a plan");
            found.push(Finding::warning("AOS-32", "profile_field_unused", problem));
        }
    }

    /// A URL that depends on an output is not known yet. Where it may lead is up to the operator's rules then.
    fn check_domains(&self, found: &mut Vec<Finding>, step: &Step, catalog: &dyn Catalog) {
        let Policies { allowed_domains, blocked_domains, .. } = &self.policies;
        let url = step.parameters.get(URL).and_then(Value::as_str);
        if (allowed_domains.is_none() && blocked_domains.is_empty()) || url.is_none_or(|url| url.contains("{{")) {
            return;
        }
        // The skill knows best which host a URL names.
        let Some(registration) = catalog.skill(&step.skill_id, &step.skill_version) else { return };
        for effect in guarded(|| registration.skill.effects(&step.parameters)).unwrap_or_default() {
            let host = host_of(&effect.target);
            let lists = |domains: &[String]| domains.iter().any(|domain| covers(domain, host));
            if lists(blocked_domains) || allowed_domains.as_ref().is_some_and(|allowed| !lists(allowed)) {
                let problem = format!("it calls `{}`, which the agent's profile does not allow", shown(host));
                found.push(
                    violation("domain_outside_profile", problem, "call another host, or have the profile changed")
                        .at(&step.step_id),
                );
            }
        }
    }

    fn without_effect(&self) -> Vec<&'static str> {
        let policies = &self.policies;
        let unused = [
            ("name", &self.name),
            ("description", &self.description),
            ("planner", &self.planner),
            ("default_resource_contract_id", &self.default_resource_contract_id),
            ("permissions", &self.permissions),
            ("memory_policy", &self.memory_policy),
            ("safety", &self.safety),
            ("rate_limits", &self.rate_limits),
            ("defaults", &self.defaults),
            ("created_at", &self.created_at),
            ("policies.require_human_approval", &policies.require_human_approval),
            ("policies.require_human_approval_above_cents", &policies.require_human_approval_above_cents),
            ("policies.timeout_seconds", &policies.timeout_seconds),
        ];
        unused.into_iter().filter_map(|(name, given)| given.as_ref().map(|_| name)).collect()
    }
}

fn violation(reason: &'static str, problem: String, fix: &str) -> Finding {
    Finding::error("AOS-32", reason, problem).code("ERR_POLICY_VIOLATION").fix(fix)
}

/// The host of a target, which may name a port behind it. An address in brackets has colons of its own.
fn host_of(target: &str) -> &str {
    match target.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => target,
    }
}

fn covers(domain: &str, host: &str) -> bool {
    match domain.strip_prefix("*.") {
        Some(name) => {
            host.len() > name.len() + 1
                && host.to_ascii_lowercase().ends_with(&format!(".{}", name.to_ascii_lowercase()))
        }
        None => domain.eq_ignore_ascii_case(host),
    }
}
