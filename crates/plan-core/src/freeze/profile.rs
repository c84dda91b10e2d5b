//! What an agent's profile contributes when its plans are frozen (AOS-32). Later changes of the profile change no plan.
//!
//! A profile can only take away: the smaller of two limits counts, and what is not allowed is found. It has more fields
//! than freezing can use; those are read, so that a profile made for others fits here too, and named as having no effect.

use core::net::{Ipv4Addr, Ipv6Addr};

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
        if let Some(most) = self.budget.max_cost_cents_per_run.filter(|most| plan.context.budget_cents > *most) {
            let problem = format!(
                "the plan's budget is {} cents, and the agent's profile allows {most} for a run",
                plan.context.budget_cents
            );
            found.push(violation("budget_outside_profile", problem, "lower the budget, or have the profile changed"));
        }
        let Policies { allowed_domains, blocked_domains, .. } = &self.policies;
        for domain in allowed_domains.iter().flatten().chain(blocked_domains).filter(|domain| !is_domain(domain)) {
            let problem = format!("the agent's profile lists `{}`, which no host of a URL can be", shown(domain));
            let fix = "write the host as URLs have it: without a port, in ASCII, IPv6 addresses in brackets";
            found.push(violation("profile_domain_invalid", problem, fix));
        }
        for step in &plan.steps {
            self.check_domains(found, step, catalog);
        }
        for name in self.without_effect() {
            let problem = format!("the field `{name}` of the agent's profile has no effect on a plan");
            found.push(Finding::warning("AOS-32", "profile_field_unused", problem));
        }
    }

    fn check_domains(&self, found: &mut Vec<Finding>, step: &Step, catalog: &dyn Catalog) {
        let Policies { allowed_domains, blocked_domains, .. } = &self.policies;
        let Some(url) = step.parameters.get(URL).and_then(Value::as_str) else { return };
        if allowed_domains.is_none() && blocked_domains.is_empty() {
            return;
        }
        let fix = "call another host, or have the profile changed";
        let mut refuse = |problem: String, fix: &str| {
            found.push(violation("domain_outside_profile", problem, fix).at(&step.step_id));
        };
        let Some(url) = written_out(url) else {
            let problem = "which host it calls depends on an output, and the agent's profile lists hosts".to_owned();
            return refuse(problem, "write the host into the plan");
        };
        // The skill knows best which host a URL names.
        let Some(registration) = catalog.skill(&step.skill_id, &step.skill_version) else { return };
        let mut parameters = step.parameters.clone();
        parameters.insert(URL.to_owned(), url.into());
        let Some(effects) = guarded(|| registration.skill.effects(&parameters)) else {
            return refuse("its skill cannot say which host it calls".to_owned(), fix);
        };
        for effect in effects {
            let host = host_of(&effect.target);
            let lists = |domains: &[String]| domains.iter().any(|domain| covers(domain, host));
            if lists(blocked_domains) || allowed_domains.as_ref().is_some_and(|allowed| !lists(allowed)) {
                refuse(format!("it calls `{}`, which the agent's profile does not allow", shown(host)), fix);
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

/// A URL as far as it is known, if that is up to the end of its host; what is behind it may depend on outputs.
fn written_out(url: &str) -> Option<&str> {
    let Some(known) = url.find("{{") else {
        return Some(url);
    };
    let known = &url[..known];
    let (_, behind_scheme) = known.split_once("://")?;
    let host_ends = behind_scheme.find(['/', '?', '#'])?;
    // What readers of URLs pass over could leave the host to what follows.
    let is_passed_over = |letter: char| letter == '\\' || letter.is_ascii_control() || letter == ' ';
    (host_ends > 0 && !known.contains(is_passed_over)).then_some(known)
}

/// Whether a host of a URL can be this, or below it.
fn is_domain(domain: &str) -> bool {
    let name = domain.strip_prefix("*.").unwrap_or(domain);
    // Of the ways to write an address, URLs have one.
    if let Some(address) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse().is_ok_and(|parsed: Ipv6Addr| parsed.to_string().eq_ignore_ascii_case(address));
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with(|first: char| first.is_ascii_digit()) {
        return domain.parse::<Ipv4Addr>().is_ok();
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(fits) && !name.starts_with('.') && !name.ends_with('.')
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
