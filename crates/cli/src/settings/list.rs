//! The one list of settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use macp_auth::Given;
use macp_edge::{AuditSettings, Settings};
use macp_kernel::{ProfileSetting, SignatureRule};
use macp_plan::session::{StartPolicy, SupersededPolicy};

use super::files::{ReceiptFiles, TlsFiles};
use super::plans::{Plans, set_egress};
use super::roles;
use super::value::{Kind, Value};
use crate::logging;

/// One setting, with every name it has.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in the config file.
    pub(crate) key: &'static str,
    /// Its flag, without the dashes. Secrets have none: a command line can be read by everyone on the machine.
    pub(crate) flag: Option<&'static str>,
    /// Its environment variable.
    pub(crate) env: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    /// One line for people.
    pub(crate) help: &'static str,
    /// Puts a value in its place.
    pub(crate) apply: fn(&mut Draft, &Value) -> Result<(), String>,
}

/// What holds when nobody says anything.
#[derive(Debug)]
pub(crate) enum Default {
    /// This text, read like a flag's.
    Is(&'static str),
    /// Nothing is applied; the words say what that means.
    Unset(&'static str),
}

/// Settings being put together.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) server: Settings,
    pub(crate) data: PathBuf,
    pub(crate) memory: bool,
    pub(crate) keys_file: Option<PathBuf>,
    pub(crate) auth: Given,
    pub(crate) tls: TlsFiles,
    pub(crate) policies_dir: Option<PathBuf>,
    pub(crate) receipts: ReceiptFiles,
    pub(crate) audit_file: Option<PathBuf>,
    pub(crate) audit_bytes_max: u64,
    pub(crate) audit_files_max: usize,
    pub(crate) log_format: logging::Format,
    pub(crate) log_filter: String,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) plans: Plans,
}

impl Draft {
    pub(crate) fn new() -> Draft {
        Draft {
            server: Settings::default(),
            data: PathBuf::new(),
            memory: false,
            keys_file: None,
            auth: Given::default(),
            tls: TlsFiles::default(),
            policies_dir: None,
            receipts: ReceiptFiles::default(),
            audit_file: None,
            audit_bytes_max: 0,
            audit_files_max: 0,
            log_format: logging::Format::default(),
            log_filter: String::new(),
            ready_file: None,
            plans: Plans::new(),
        }
    }

    pub(crate) fn audit(&self) -> Option<AuditSettings> {
        self.audit_file.as_ref().map(|path| AuditSettings {
            path: path.clone(),
            bytes_per_file_max: self.audit_bytes_max,
            files_max: self.audit_files_max,
        })
    }
}

/// Bounds of a number that only has to be there.
const POSITIVE: Kind = Kind::Number { min: 1, max: u32::MAX as u64 };
/// Bounds of a rate, where 0 means none.
const RATE: Kind = Kind::Number { min: 0, max: u32::MAX as u64 };
/// Bounds of a size in bytes: up to what one record may hold.
const RECORD_BYTES: Kind = Kind::Number { min: 1, max: 128 * 1024 * 1024 };
/// Bounds of a total in bytes.
const BYTES: Kind = Kind::Number { min: 1, max: i64::MAX as u64 };
/// Bounds of a time in seconds: up to a day.
const SECONDS: Kind = Kind::Number { min: 1, max: 86_400 };

const fn setting(
    names: (&'static str, &'static str, &'static str),
    kind: Kind,
    default: Default,
    help: &'static str,
    apply: fn(&mut Draft, &Value) -> Result<(), String>,
) -> Setting {
    let (key, flag, env) = names;
    Setting { key, flag: Some(flag), env, kind, default, help, apply }
}

/// A setting whose value nobody else should see.
const fn secret(
    (key, env): (&'static str, &'static str),
    default: &'static str,
    help: &'static str,
    apply: fn(&mut Draft, &Value) -> Result<(), String>,
) -> Setting {
    Setting { key, flag: None, env, kind: Kind::Secret, default: Default::Unset(default), help, apply }
}

/// A table row that cannot fail.
macro_rules! set {
    (|$draft:ident, $value:ident| $body:expr) => {
        |$draft: &mut Draft, $value: &Value| {
            $body;
            Ok(())
        }
    };
}

/// Every setting, in the order of the reference.
#[rustfmt::skip]
pub(crate) static SETTINGS: &[Setting] = &[
    setting(("listen", "listen", "MACP_BIND_ADDR"), Kind::Text, Default::Is("127.0.0.1:50051"),
        "Address and port to listen on; port 0 takes any free one",
        |draft, value| {
            let text = value.text();
            draft.server.listen = text.parse::<SocketAddr>()
                .map_err(|_| format!("{text:?} is not an address and a port, such as 127.0.0.1:50051"))?;
            Ok(())
        }),
    setting(("data", "data", "MACP_DATA_DIR"), Kind::Text, Default::Is("macp-data"),
        "Directory that keeps the histories; created if it is missing",
        set!(|draft, value| draft.data = PathBuf::from(value.text()))),
    setting(("memory", "memory", "MACP_MEMORY_ONLY"), Kind::Switch, Default::Is("false"),
        "Keep histories in memory only; nothing survives the process",
        set!(|draft, value| draft.memory = value.is_on())),
    setting(("profile", "profile", "MACP_PROFILE"),
        Kind::Word(&["auto", "classic", "standard"]), Default::Is("auto"),
        "Which rules sessions may choose: auto, classic or standard",
        set!(|draft, value| draft.server.engine.limits.profile = match value.text() {
            "classic" => ProfileSetting::Classic,
            "standard" => ProfileSetting::Standard,
            _ => ProfileSetting::Auto,
        })),
    setting(("allow_insecure", "allow-insecure", "MACP_ALLOW_INSECURE"), Kind::Switch, Default::Is("false"),
        "Listen beyond this machine although there is no TLS or no authentication",
        set!(|draft, value| draft.server.allow_insecure = value.is_on())),
    setting(("tls_cert_path", "tls-cert-path", "MACP_TLS_CERT_PATH"), Kind::Text, Default::Unset("no TLS"),
        "PEM file with the certificate of the server and those it was issued through; a change needs a restart",
        set!(|draft, value| draft.tls.certificate = Some(PathBuf::from(value.text())))),
    setting(("tls_key_path", "tls-key-path", "MACP_TLS_KEY_PATH"), Kind::Text, Default::Unset("no TLS"),
        "PEM file with the private key of that certificate; a change needs a restart",
        set!(|draft, value| draft.tls.key = Some(PathBuf::from(value.text())))),
    setting(("tls_client_ca_path", "tls-client-ca-path", "MACP_TLS_CLIENT_CA_PATH"),
        Kind::Text, Default::Unset("clients need no certificate"),
        "PEM file with the authorities that must have issued the certificates of clients; a change needs a restart",
        set!(|draft, value| draft.tls.client_authorities = Some(PathBuf::from(value.text())))),
    setting(("auth_tokens_file", "auth-tokens-file", "MACP_AUTH_TOKENS_FILE"), Kind::Text, Default::Unset("no tokens"),
        "JSON file with static tokens and whom they stand for; read again on SIGHUP",
        set!(|draft, value| draft.auth.tokens_file = Some(PathBuf::from(value.text())))),
    secret(("auth_tokens_json", "MACP_AUTH_TOKENS_JSON"), "no tokens",
        "The same as text; a file can be read again and is easier to protect",
        set!(|draft, value| draft.auth.tokens_json = Some(value.secret().clone()))),
    setting(("auth_issuer", "auth-issuer", "MACP_AUTH_ISSUER"), Kind::Text, Default::Unset("no JSON Web Tokens"),
        "The `iss` of the JSON Web Tokens to believe; needs keys",
        set!(|draft, value| draft.auth.issuer = Some(value.text().to_owned()))),
    setting(("auth_audience", "auth-audience", "MACP_AUTH_AUDIENCE"), Kind::Text, Default::Unset("`macp-runtime`"),
        "The `aud` that JSON Web Tokens must name",
        set!(|draft, value| draft.auth.audience = Some(value.text().to_owned()))),
    setting(("auth_jwks_url", "auth-jwks-url", "MACP_AUTH_JWKS_URL"), Kind::Secret, Default::Unset("none"),
        "Where the issuer publishes its keys (https, or http on this machine); fetched at start and again when due",
        set!(|draft, value| draft.auth.jwks_url = Some(value.secret().clone()))),
    setting(("auth_jwks_file", "auth-jwks-file", "MACP_AUTH_JWKS_FILE"), Kind::Text, Default::Unset("none"),
        "JSON Web Key Set file with the keys of the issuer; read again on SIGHUP",
        set!(|draft, value| draft.auth.jwks_file = Some(PathBuf::from(value.text())))),
    secret(("auth_jwks_json", "MACP_AUTH_JWKS_JSON"), "none",
        "The same as text",
        set!(|draft, value| draft.auth.jwks_json = Some(value.secret().clone()))),
    setting(("auth_jwks_ttl_secs", "auth-jwks-ttl-secs", "MACP_AUTH_JWKS_TTL_SECS"), SECONDS, Default::Unset("`300`"),
        "How long keys from a URL are used before they are fetched again, in seconds",
        set!(|draft, value| draft.auth.jwks_ttl = Some(Duration::from_secs(value.number())))),
    setting(("auth_jwt_algs", "auth-jwt-algs", "MACP_AUTH_JWT_ALGS"), Kind::Text,
        Default::Unset("`RS256,ES256,EdDSA`"),
        "Algorithms JSON Web Tokens may be signed with, separated by commas; HS256 only if named here",
        set!(|draft, value| draft.auth.algorithms = Some(value.text().to_owned()))),
    setting(("auth_roles_json", "auth-roles-json", "MACP_AUTH_ROLES_JSON"), Kind::Text, Default::Unset("none"),
        "What roles entitle to, as JSON such as `{\"operator\": {\"cancel\": true}}`; or `[roles.NAME]` in the file",
        |draft, value| {
            draft.auth.roles = roles::from_json(value.text())?;
            Ok(())
        }),
    setting(("runtime_id", "runtime-id", "MACP_RUNTIME_ID"), Kind::Text, Default::Is("macp-runtime"),
        "Name of this runtime in its manifest and in receipts; signed receipts need one that is set",
        |draft, value| {
            let text = value.text();
            if text.trim().is_empty() {
                return Err("the name is empty".to_owned());
            }
            draft.server.runtime_id = text.to_owned();
            Ok(())
        }),
    setting(("policies_dir", "policies-dir", "MACP_POLICIES_DIR"), Kind::Text, Default::Unset("none"),
        "Directory of `*.json` policies to register at start, by file name; a change needs a restart",
        set!(|draft, value| draft.policies_dir = Some(PathBuf::from(value.text())))),
    setting(("policies_read_only", "policies-read-only", "MACP_POLICIES_READ_ONLY"), Kind::Switch, Default::Is("false"),
        "Clients cannot register or unregister policies",
        set!(|draft, value| draft.server.policies_read_only = value.is_on())),
    secret(("receipt_signing_key", "MACP_RECEIPT_SIGNING_KEY"), "receipts are not signed",
        "Ed25519 key that signs decision receipts, as PKCS#8 PEM or private JWK",
        set!(|draft, value| draft.receipts.signing_key = Some(value.secret().clone()))),
    setting(("receipt_signing_key_path", "receipt-signing-key-path", "MACP_RECEIPT_SIGNING_KEY_PATH"),
        Kind::Text, Default::Unset("receipts are not signed"),
        "The same as a file; a change needs a restart",
        set!(|draft, value| draft.receipts.signing_key_path = Some(PathBuf::from(value.text())))),
    setting(("receipt_signing_kid", "receipt-signing-kid", "MACP_RECEIPT_SIGNING_KID"),
        Kind::Text, Default::Unset("the JWK's own"),
        "Key id the signing key is published under; a PEM needs one",
        set!(|draft, value| draft.receipts.signing_kid = Some(value.text().to_owned()))),
    setting(("receipt_public_keys_path", "receipt-public-keys-path", "MACP_RECEIPT_PUBLIC_KEYS_PATH"),
        Kind::Text, Default::Unset("none"),
        "JSON Web Key Set file with retired signing keys, public parts only, so that old receipts can be checked",
        set!(|draft, value| draft.receipts.public_keys_path = Some(PathBuf::from(value.text())))),
    setting(("max_payload_bytes", "max-payload-bytes", "MACP_MAX_PAYLOAD_BYTES"), RECORD_BYTES, Default::Is("1048576"),
        "Largest payload of one envelope, in bytes",
        set!(|draft, value| draft.server.engine.limits.payload_bytes_max = value.number())),
    setting(("max_clock_skew_secs", "max-clock-skew-secs", "MACP_MAX_CLOCK_SKEW_SECS"), SECONDS, Default::Is("300"),
        "How far in the future the timestamp of a SessionStart may lie, in seconds",
        set!(|draft, value| draft.server.engine.limits.skew_ms_max = value.narrow::<i64>() * 1_000)),
    setting(("max_session_entries", "max-session-entries", "MACP_MAX_SESSION_ENTRIES"), POSITIVE, Default::Is("100000"),
        "Most entries of one session; bound at its start",
        set!(|draft, value| draft.server.engine.limits.session_entries_max = value.number())),
    setting(("max_session_bytes", "max-session-bytes", "MACP_MAX_SESSION_BYTES"), BYTES, Default::Is("268435456"),
        "Most bytes of envelopes of one session; bound at its start",
        set!(|draft, value| draft.server.engine.limits.session_bytes_max = value.number())),
    setting(("session_start_limit_per_minute", "session-start-limit-per-minute", "MACP_SESSION_START_LIMIT_PER_MINUTE"),
        RATE, Default::Unset("60 with authentication, otherwise no limit"),
        "Sessions one sender may start in a minute; 0 is no limit",
        set!(|draft, value| draft.server.start_limit_per_minute = Some(value.narrow()))),
    setting(("message_limit_per_minute", "message-limit-per-minute", "MACP_MESSAGE_LIMIT_PER_MINUTE"),
        RATE, Default::Unset("600 with authentication, otherwise no limit"),
        "Messages one sender may send in a minute; 0 is no limit",
        set!(|draft, value| draft.server.message_limit_per_minute = Some(value.narrow()))),
    setting(("list_sessions_default_page_size", "list-sessions-default-page-size",
             "MACP_LIST_SESSIONS_DEFAULT_PAGE_SIZE"),
        Kind::Number { min: 1, max: 10_000 }, Default::Is("100"),
        "Sessions on a page of ListSessions when the client asks for no size",
        set!(|draft, value| draft.server.list_page_size_default = value.narrow())),
    setting(("list_sessions_max_page_size", "list-sessions-max-page-size", "MACP_LIST_SESSIONS_MAX_PAGE_SIZE"),
        Kind::Number { min: 1, max: 10_000 }, Default::Is("1000"),
        "Most sessions on a page of ListSessions",
        set!(|draft, value| draft.server.list_page_size_max = value.narrow())),
    setting(("request_timeout_secs", "request-timeout-secs", "MACP_REQUEST_TIMEOUT_SECS"), SECONDS, Default::Is("30"),
        "Longest time one request may take, in seconds; streams are not bounded",
        set!(|draft, value| draft.server.request_timeout = Duration::from_secs(value.number()))),
    setting(("max_concurrent_streams", "max-concurrent-streams", "MACP_MAX_CONCURRENT_STREAMS"),
        POSITIVE, Default::Is("1024"),
        "Most requests and streams at once on one connection",
        set!(|draft, value| draft.server.streams_per_connection_max = value.narrow())),
    setting(("shutdown_drain_secs", "shutdown-drain-secs", "MACP_SHUTDOWN_DRAIN_SECS"),
        Kind::Number { min: 0, max: 86_400 }, Default::Is("10"),
        "Longest time to finish what is in flight when told to stop, in seconds",
        set!(|draft, value| draft.server.drain_timeout = Duration::from_secs(value.number()))),
    setting(("shards", "shards", "MACP_SHARDS"), Kind::Number { min: 1, max: 1_024 }, Default::Unset("one per core"),
        "Independent ordering loops that sessions are spread over",
        set!(|draft, value| draft.server.engine.shards = value.narrow())),
    setting(("max_requests_in_flight", "max-requests-in-flight", "MACP_MAX_REQUESTS_IN_FLIGHT"),
        POSITIVE, Default::Is("16384"),
        "Requests being worked on at once; more are refused as overload",
        set!(|draft, value| draft.server.engine.requests_in_flight_max = value.narrow())),
    setting(("max_bytes_in_flight", "max-bytes-in-flight", "MACP_MAX_BYTES_IN_FLIGHT"), BYTES, Default::Is("268435456"),
        "Bytes of envelopes being worked on at once; more are refused as overload",
        set!(|draft, value| draft.server.engine.bytes_in_flight_max = value.number())),
    setting(("max_resident_sessions", "max-resident-sessions", "MACP_MAX_RESIDENT_SESSIONS"),
        POSITIVE, Default::Is("100000"),
        "Sessions kept in memory at once; others are loaded when they are needed",
        set!(|draft, value| draft.server.engine.resident_sessions_max = value.narrow())),
    setting(("session_idle_secs", "session-idle-secs", "MACP_SESSION_IDLE_SECS"), SECONDS, Default::Is("300"),
        "How long an open session nobody touches stays in memory, in seconds",
        set!(|draft, value| draft.server.engine.idle_ms_max = value.narrow::<i64>() * 1_000)),
    setting(("subscriber_buffer", "subscriber-buffer", "MACP_SUBSCRIBER_BUFFER"),
        Kind::Number { min: 1, max: 1_048_576 }, Default::Is("256"),
        "Envelopes a subscriber may fall behind before it is dropped",
        set!(|draft, value| draft.server.engine.subscriber_buffer = value.narrow())),
    setting(("watcher_buffer", "watcher-buffer", "MACP_WATCHER_BUFFER"),
        Kind::Number { min: 1, max: 1_048_576 }, Default::Is("1024"),
        "Lifecycle events and signals a watcher may fall behind before it is dropped",
        set!(|draft, value| draft.server.engine.watcher_buffer = value.narrow())),
    setting(("signatures", "signatures", "MACP_SIGNATURES"),
        Kind::Word(&["optional", "required"]), Default::Is("optional"),
        "Whether every envelope must carry a signature of a registered key: optional or required",
        set!(|draft, value| draft.server.engine.limits.signatures = match value.text() {
            "required" => SignatureRule::Required,
            _ => SignatureRule::Optional,
        })),
    setting(("signing_keys_file", "signing-keys-file", "MACP_SIGNING_KEYS_FILE"), Kind::Text, Default::Unset("no keys"),
        "JSON file with the Ed25519 keys of senders; read again on SIGHUP",
        set!(|draft, value| draft.keys_file = Some(PathBuf::from(value.text())))),
    setting(("reflection", "reflection", "MACP_REFLECTION"), Kind::Switch, Default::Is("true"),
        "Answer gRPC reflection, so that tools such as grpcurl need no protocol files",
        set!(|draft, value| draft.server.reflection = value.is_on())),
    setting(("plans", "plans", "MACP_PLANS"), Kind::Switch, Default::Is("true"),
        "Execute plans; runs are kept in `plans` below the data directory",
        set!(|draft, value| draft.plans.enabled = value.is_on())),
    setting(("egress_allow_hosts", "egress-allow-hosts", "MACP_EGRESS_ALLOW_HOSTS"),
        Kind::List, Default::Unset("plans can reach nothing"),
        "Hosts that plans may call if their addresses are public: names, addresses or `*.example.com`",
        |draft, value| set_egress(&mut draft.plans, |egress| egress.allow_hosts = value.list())),
    setting(("egress_allow_any_public", "egress-allow-any-public", "MACP_EGRESS_ALLOW_ANY_PUBLIC"),
        Kind::Switch, Default::Is("false"),
        "Plans may call every host with a public address",
        set!(|draft, value| draft.plans.skills.egress.allow_any_public = value.is_on())),
    setting(("egress_allow_http", "egress-allow-http", "MACP_EGRESS_ALLOW_HTTP"), Kind::Switch, Default::Is("false"),
        "Plans may call by plain http beside https",
        set!(|draft, value| draft.plans.skills.egress.allow_http = value.is_on())),
    setting(("egress_allow_private_hosts", "egress-allow-private-hosts", "MACP_EGRESS_ALLOW_PRIVATE_HOSTS"),
        Kind::List, Default::Unset("none"),
        "Hosts that plans may call although their addresses are not public: names or addresses",
        |draft, value| set_egress(&mut draft.plans, |egress| egress.allow_private_hosts = value.list())),
    setting(("egress_allow_networks", "egress-allow-networks", "MACP_EGRESS_ALLOW_NETWORKS"),
        Kind::List, Default::Unset("none"),
        "Networks that are not public and yet allowed, such as `10.1.0.0/16`",
        |draft, value| set_egress(&mut draft.plans, |egress| egress.allow_networks = value.list())),
    setting(("egress_system_roots", "egress-system-roots", "MACP_EGRESS_SYSTEM_ROOTS"),
        Kind::Switch, Default::Is("true"),
        "Plans believe servers whose certificates the operating system trusts",
        set!(|draft, value| draft.plans.skills.trust.system_roots = value.is_on())),
    setting(("egress_ca_path", "egress-ca-path", "MACP_EGRESS_CA_PATH"), Kind::Text, Default::Unset("none"),
        "PEM file with further authorities that plans believe",
        set!(|draft, value| draft.plans.authorities = Some(PathBuf::from(value.text())))),
    setting(("egress_max_answer_bytes", "egress-max-answer-bytes", "MACP_EGRESS_MAX_ANSWER_BYTES"),
        RECORD_BYTES, Default::Is("10485760"),
        "Largest answer that a plan's call reads, in bytes",
        set!(|draft, value| draft.plans.skills.limits.answer_bytes_max = value.narrow())),
    setting(("secrets_dir", "secrets-dir", "MACP_SECRETS_DIR"), Kind::Text,
        Default::Unset("only variables `MACP_SECRET_NAME`"),
        "Directory with one file for every secret that plans name as `secret://name`; variables win",
        set!(|draft, value| draft.plans.skills.secrets.directory = Some(PathBuf::from(value.text())))),
    setting(("rate_cards", "rate-cards", "MACP_RATE_CARDS"), Kind::List, Default::Unset("the built-in card alone"),
        "JSON files with rate cards; a change of price is a card with another id",
        set!(|draft, value| draft.plans.rate_cards = value.list().into_iter().map(PathBuf::from).collect())),
    setting(("disabled_skills", "disabled-skills", "MACP_DISABLED_SKILLS"), Kind::List, Default::Unset("none"),
        "Skills that plans cannot use, as `http_call` or `http_call@1.2.0`",
        set!(|draft, value| draft.plans.skills.disabled = value.list())),
    setting(("plan_namespace", "plan-namespace", "MACP_PLAN_NAMESPACE"), Kind::Text, Default::Is("default"),
        "Part of every effect key; deployments that share targets need different ones",
        |draft, value| {
            let text = value.text();
            if text.trim().is_empty() {
                return Err("the name is empty".to_owned());
            }
            draft.plans.executor.namespace = text.to_owned();
            Ok(())
        }),
    setting(("max_live_runs", "max-live-runs", "MACP_MAX_LIVE_RUNS"), POSITIVE, Default::Is("1024"),
        "Runs at work at once; a start beyond it is refused and can be tried again",
        set!(|draft, value| draft.plans.executor.runs_live_max = value.narrow())),
    setting(("agent_max_runs", "agent-max-runs", "MACP_AGENT_MAX_RUNS"), POSITIVE, Default::Unset("no limit"),
        "Runs of one agent at work at once; a run beyond it is rejected",
        set!(|draft, value| draft.plans.executor.agent.runs_max = Some(value.narrow()))),
    setting(("agent_max_calls", "agent-max-calls", "MACP_AGENT_MAX_CALLS"), POSITIVE, Default::Unset("no limit"),
        "Calls of one agent that are out at once; one beyond it is a failed attempt",
        set!(|draft, value| draft.plans.executor.agent.calls_max = Some(value.narrow()))),
    setting(("agent_calls_per_minute", "agent-calls-per-minute", "MACP_AGENT_CALLS_PER_MINUTE"),
        POSITIVE, Default::Unset("no limit"),
        "Calls of one agent in a minute; one beyond it is a failed attempt",
        set!(|draft, value| draft.plans.executor.agent.calls_per_minute = Some(value.narrow()))),
    setting(("run_grace_secs", "run-grace-secs", "MACP_RUN_GRACE_SECS"), Kind::Number { min: 0, max: 86_400 },
        Default::Is("5"),
        "How long calls that are out may take to answer when the server stops, in seconds; runs go on after a restart",
        set!(|draft, value| draft.plans.executor.shutdown_grace = Duration::from_secs(value.number()))),
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
    setting(("audit_file", "audit", "MACP_AUDIT_FILE"), Kind::Text, Default::Unset("no trace"),
        "Record every input with its verdict, refused ones too, in this file for `macp replay`",
        set!(|draft, value| draft.audit_file = Some(PathBuf::from(value.text())))),
    setting(("audit_max_bytes", "audit-max-bytes", "MACP_AUDIT_MAX_BYTES"),
        Kind::Number { min: 65_536, max: i64::MAX as u64 }, Default::Is("67108864"),
        "Bytes after which the trace goes on in a new file",
        set!(|draft, value| draft.audit_bytes_max = value.number())),
    setting(("audit_max_files", "audit-max-files", "MACP_AUDIT_MAX_FILES"),
        Kind::Number { min: 1, max: 1_000 }, Default::Is("4"),
        "Trace files kept, the current one included; older ones are removed",
        set!(|draft, value| draft.audit_files_max = value.narrow())),
    setting(("log_format", "log-format", "MACP_LOG_FORMAT"), Kind::Word(&["text", "json"]), Default::Is("text"),
        "Form of the log lines on stderr: text or json",
        set!(|draft, value| draft.log_format = match value.text() {
            "json" => logging::Format::Json,
            _ => logging::Format::Text,
        })),
    setting(("log", "log", "MACP_LOG"), Kind::Text, Default::Is("info"),
        "What to log, such as warn or info,macp_engine=debug; RUST_LOG is read as well",
        set!(|draft, value| draft.log_filter = value.text().to_owned())),
    setting(("ready_file", "ready-file", "MACP_READY_FILE"), Kind::Text, Default::Unset("none"),
        "Write the address in use to this file once the server is ready; removed when it stops",
        set!(|draft, value| draft.ready_file = Some(PathBuf::from(value.text())))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_one_style() {
        let mut seen = std::collections::BTreeSet::new();
        for setting in SETTINGS {
            assert!(seen.insert(setting.key) && seen.insert(setting.env), "{}", setting.key);
            assert!(setting.env.starts_with("MACP_"), "{}", setting.env);
            let flag = setting.flag.unwrap_or_default();
            assert!(flag.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{flag}");
            assert!(!setting.help.ends_with('.'), "{}", setting.key);
        }
    }

    /// The texts in the reference are the values the server's own defaults have.
    #[test]
    fn defaults_are_those_of_the_server() {
        let mut draft = Draft::new();
        for setting in SETTINGS {
            if let Default::Is(text) = setting.default {
                let value = setting.kind.parse(text).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
                (setting.apply)(&mut draft, &value).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
            }
        }
        assert_eq!(format!("{:?}", draft.server), format!("{:?}", Settings::default()));
        let Plans { skills, executor, sessions, import_bytes_max, .. } = draft.plans;
        let default = macp_edge::PlanSettings::new(std::sync::Arc::new(macp_ledger::MemoryStore::new()));
        assert_eq!(skills, default.skills);
        assert_eq!(format!("{executor:?}"), format!("{:?}", default.executor));
        assert_eq!(sessions, default.sessions);
        assert_eq!(import_bytes_max, default.import_bytes_max);
    }
}
