//! What plans may reach, use and spend, and how those of sessions are executed.

use std::path::PathBuf;
use std::time::Duration;

use macp_plan::secrets::check_bindings;
use macp_plan::session::{StartPolicy, SupersededPolicy};
use macp_plan::skills::http_call::ANSWER_BYTES_MAX;
use macp_plan_core::limits::BUDGET_CENTS_MAX;

use super::{BYTES, Default, POSITIVE, RECORD_BYTES, SECONDS, Setting, set, setting};
use crate::settings::plans::{after_name, set_egress};
use crate::settings::value::Kind;

/// Bounds of an answer in bytes.
const ANSWER_BYTES: Kind = Kind::Number { min: 1, max: ANSWER_BYTES_MAX as u64 };
/// Bounds of an amount in cents, where 0 lets only free runs begin.
const CENTS: Kind = Kind::Number { min: 0, max: BUDGET_CENTS_MAX };

#[rustfmt::skip]
pub(super) static SETTINGS: &[Setting] = &[
    setting(("plans", "plans", "MACP_PLANS"), Kind::Switch, Default::Is("true"),
        "Execute plans; runs are kept in `plans` below the data directory",
        set!(|draft, value| draft.plans.enabled = value.is_on())),
    setting(("egress_allow_hosts", "egress-allow-hosts", "MACP_EGRESS_ALLOW_HOSTS"),
        Kind::List, Default::Unset("plans can reach nothing"),
        "Hosts that plans may call if their addresses are public: names, addresses or `*.example.com`, on port 443, and 80 if http is allowed, or on the one that follows, as in `api.example.com:8443`",
        |draft, value| set_egress(&mut draft.plans, |egress| egress.allow_hosts = value.list())),
    setting(("egress_allow_any_public", "egress-allow-any-public", "MACP_EGRESS_ALLOW_ANY_PUBLIC"),
        Kind::Switch, Default::Is("false"),
        "Plans may call every host with a public address, on port 443, and 80 if http is allowed",
        set!(|draft, value| draft.plans.skills.egress.allow_any_public = value.is_on())),
    setting(("egress_allow_http", "egress-allow-http", "MACP_EGRESS_ALLOW_HTTP"), Kind::Switch, Default::Is("false"),
        "Plans may call by plain http beside https",
        set!(|draft, value| draft.plans.skills.egress.allow_http = value.is_on())),
    setting(("egress_allow_private_hosts", "egress-allow-private-hosts", "MACP_EGRESS_ALLOW_PRIVATE_HOSTS"),
        Kind::List, Default::Unset("none"),
        "Hosts that plans may call although their addresses are not public: names or addresses, on every port that this server does not listen on, or on the one that follows, as in `127.0.0.1:8000`",
        |draft, value| set_egress(&mut draft.plans, |egress| egress.allow_private_hosts = value.list())),
    setting(("egress_allow_networks", "egress-allow-networks", "MACP_EGRESS_ALLOW_NETWORKS"),
        Kind::List, Default::Unset("none"),
        "Networks that are not public and yet allowed, such as `10.1.0.0/16`, on every port that this server does not listen on",
        |draft, value| set_egress(&mut draft.plans, |egress| egress.allow_networks = value.list())),
    setting(("egress_system_roots", "egress-system-roots", "MACP_EGRESS_SYSTEM_ROOTS"),
        Kind::Switch, Default::Is("true"),
        "Plans believe servers whose certificates the operating system trusts",
        set!(|draft, value| draft.plans.skills.trust.system_roots = value.is_on())),
    setting(("egress_ca_path", "egress-ca-path", "MACP_EGRESS_CA_PATH"), Kind::Text, Default::Unset("none"),
        "PEM file with further authorities that plans believe",
        set!(|draft, value| draft.plans.authorities = Some(PathBuf::from(value.text())))),
    setting(("egress_max_answer_bytes", "egress-max-answer-bytes", "MACP_EGRESS_MAX_ANSWER_BYTES"),
        ANSWER_BYTES, Default::Is("10485760"),
        "Largest answer that a plan's call reads, in bytes; no more than 10 MiB",
        set!(|draft, value| draft.plans.skills.limits.answer_bytes_max = value.narrow())),
    setting(("secrets_dir", "secrets-dir", "MACP_SECRETS_DIR"), Kind::Text,
        Default::Unset("only variables `MACP_SECRET_NAME`"),
        "Directory with one file for every secret that plans name as `secret://name`; variables win",
        set!(|draft, value| draft.plans.skills.secrets.directory = Some(PathBuf::from(value.text())))),
    setting(("bound_secrets", "bound-secrets", "MACP_BOUND_SECRETS"), Kind::List,
        Default::Unset("every secret goes wherever its plan may call; keys of providers to no other host"),
        "Hosts that a secret may be sent to, and no others, as `shop-token=api.shop.example`; a secret may have several",
        |draft, value| {
            let bindings = value.list();
            check_bindings(&bindings).map_err(|error| after_name(&error.to_string()))?;
            draft.plans.skills.secrets.hosts = bindings;
            Ok(())
        }),
    setting(("rate_cards", "rate-cards", "MACP_RATE_CARDS"), Kind::List, Default::Unset("the built-in card alone"),
        "JSON files with rate cards; a change of price is a card with another id",
        set!(|draft, value| draft.plans.rate_cards = value.list().into_iter().map(PathBuf::from).collect())),
    setting(("disabled_skills", "disabled-skills", "MACP_DISABLED_SKILLS"), Kind::List, Default::Unset("none"),
        "Skills that plans cannot use, as `http_call` or `http_call@1.2.0`",
        set!(|draft, value| draft.plans.skills.disabled = value.list())),
    setting(("skill_permissions", "skill-permissions", "MACP_SKILL_PERMISSIONS"), Kind::List,
        Default::Unset("whatever skills declare"),
        "Permissions that skills may have, and no others, such as `network:outbound`; a plan whose skill needs more is rejected",
        set!(|draft, value| draft.plans.skills.permissions = Some(value.list()))),
    setting(("plan_namespace", "plan-namespace", "MACP_PLAN_NAMESPACE"), Kind::Text, Default::Is("default"),
        "Part of every effect key; deployments that share targets need different ones",
        |draft, value| {
            let text = value.text();
            if text.trim().is_empty() {
                return Err("the name is empty".to_owned());
            }
            if text.contains('/') {
                return Err("`/` stands between the name and an agent, and cannot be part of it".to_owned());
            }
            draft.plans.executor.namespace = text.to_owned();
            Ok(())
        }),
    setting(("max_live_runs", "max-live-runs", "MACP_MAX_LIVE_RUNS"), POSITIVE, Default::Is("1024"),
        "Runs at work at once; a start beyond it is refused and can be tried again",
        set!(|draft, value| draft.plans.executor.runs_live_max = value.narrow())),
    setting(("agent_max_runs", "agent-max-runs", "MACP_AGENT_MAX_RUNS"),
        POSITIVE, Default::Unset("a quarter of `max_live_runs`"),
        "Runs of one agent at work at once; a run beyond it is rejected",
        set!(|draft, value| draft.plans.executor.agent.runs_max = Some(value.narrow()))),
    setting(("agent_max_calls", "agent-max-calls", "MACP_AGENT_MAX_CALLS"), POSITIVE, Default::Unset("no limit"),
        "Calls of one agent that are out at once; one beyond it is a failed attempt",
        set!(|draft, value| draft.plans.executor.agent.calls_max = Some(value.narrow()))),
    setting(("agent_calls_per_minute", "agent-calls-per-minute", "MACP_AGENT_CALLS_PER_MINUTE"),
        POSITIVE, Default::Unset("no limit"),
        "Calls of one agent in a minute; one beyond it is a failed attempt",
        set!(|draft, value| draft.plans.executor.agent.calls_per_minute = Some(value.narrow()))),
    setting(("agent_cents_per_run", "agent-cents-per-run", "MACP_AGENT_CENTS_PER_RUN"),
        CENTS, Default::Unset("no limit"),
        "Largest budget of a run, in cents; a run with a larger one is rejected",
        set!(|draft, value| draft.plans.executor.agent.cents_per_run = Some(value.number()))),
    setting(("agent_cents_per_day", "agent-cents-per-day", "MACP_AGENT_CENTS_PER_DAY"),
        CENTS, Default::Unset("no limit"),
        "What the runs of one agent may cost in a day (UTC), in cents; a run whose budget does not fit is rejected",
        set!(|draft, value| draft.plans.executor.agent.cents_per_day = Some(value.number()))),
    setting(("agent_cents_per_month", "agent-cents-per-month", "MACP_AGENT_CENTS_PER_MONTH"),
        CENTS, Default::Unset("no limit"),
        "The same for a month (UTC)",
        set!(|draft, value| draft.plans.executor.agent.cents_per_month = Some(value.number()))),
    setting(("agent_max_kept_bytes", "agent-max-kept-bytes", "MACP_AGENT_MAX_KEPT_BYTES"),
        BYTES, Default::Unset("no limit"),
        "What may be kept of the runs of one agent, journals and outputs, in bytes; once it is used up its runs are rejected",
        set!(|draft, value| draft.plans.executor.agent.kept_bytes_max = Some(value.number()))),
    setting(("run_grace_secs", "run-grace-secs", "MACP_RUN_GRACE_SECS"), Kind::Number { min: 0, max: 86_400 },
        Default::Is("5"),
        "How long calls that are out may take to answer when the server stops, in seconds; runs go on after a restart",
        set!(|draft, value| draft.plans.executor.shutdown_grace = Duration::from_secs(value.number()))),
    setting(("run_max_output_bytes", "run-max-output-bytes", "MACP_RUN_MAX_OUTPUT_BYTES"), BYTES,
        Default::Is("1073741824"),
        "Outputs above 16 KiB that are kept for one run, in bytes together; a step beyond it fails",
        set!(|draft, value| draft.plans.executor.run_output_bytes_max = value.number())),
    setting(("run_max_memory_bytes", "run-max-memory-bytes", "MACP_RUN_MAX_MEMORY_BYTES"), BYTES,
        Default::Is("1073741824"),
        "Memory that all runs reserve for their calls and outputs, one agent at most half of it; a run beyond it waits",
        set!(|draft, value| draft.plans.executor.memory_bytes_max = value.narrow())),
    setting(("max_import_bytes", "max-import-bytes", "MACP_MAX_IMPORT_BYTES"), BYTES, Default::Is("67108864"),
        "Largest exported run that is taken over, in bytes",
        set!(|draft, value| draft.plans.import_bytes_max = value.narrow())),
    setting(("plan_start", "plan-start", "MACP_PLAN_START"), Kind::Word(&["manual", "auto"]), Default::Is("manual"),
        "Whether a plan that a session committed to starts by itself: manual or auto",
        set!(|draft, value| draft.plans.sessions.start = match value.text() {
            "auto" => StartPolicy::Auto,
            _ => StartPolicy::Manual,
        })),
    setting(("plan_superseded", "plan-superseded", "MACP_PLAN_SUPERSEDED"),
        Kind::Word(&["cancel", "finish"]), Default::Is("cancel"),
        "What becomes of a run whose commitment is superseded while it runs: cancel or finish",
        set!(|draft, value| draft.plans.sessions.superseded = match value.text() {
            "finish" => SupersededPolicy::Finish,
            _ => SupersededPolicy::Cancel,
        })),
    setting(("execution_sessions", "execution-sessions", "MACP_EXECUTION_SESSIONS"),
        Kind::Switch, Default::Is("true"),
        "Report runs of committed plans in sessions of their own",
        set!(|draft, value| draft.plans.sessions.execution.enabled = value.is_on())),
    setting(("execution_identity", "execution-identity", "MACP_EXECUTION_IDENTITY"),
        Kind::Text, Default::Is("macp-executor"),
        "Who sends the messages of execution sessions; no agent may have a credential of this name",
        |draft, value| {
            let text = value.text();
            if text.trim().is_empty() {
                return Err("the name is empty".to_owned());
            }
            draft.plans.sessions.execution.identity = text.to_owned();
            Ok(())
        }),
    setting(("max_execution_sessions", "max-execution-sessions", "MACP_MAX_EXECUTION_SESSIONS"),
        POSITIVE, Default::Is("1024"),
        "Execution sessions under way at once; the reports of further runs wait for their turn",
        set!(|draft, value| draft.plans.sessions.execution.sessions_max = value.narrow())),
    setting(("max_execution_update_bytes", "max-execution-update-bytes", "MACP_MAX_EXECUTION_UPDATE_BYTES"),
        RECORD_BYTES, Default::Is("262144"),
        "Entries of a journal in one message of an execution session, in bytes",
        set!(|draft, value| draft.plans.sessions.execution.update_bytes_max = value.narrow())),
    setting(("execution_ttl_margin_secs", "execution-ttl-margin-secs", "MACP_EXECUTION_TTL_MARGIN_SECS"),
        SECONDS, Default::Is("600"),
        "How much longer an execution session lives than its plan can take, in seconds",
        set!(|draft, value| draft.plans.sessions.execution.ttl_margin_ms = value.number() * 1_000)),
];
