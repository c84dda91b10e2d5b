//! Puts flags, environment, config file and defaults on top of each other.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use super::file::ConfigFile;
use super::files::Files;
use super::list::{Default, Draft, SETTINGS, Setting};
use super::value::Value;
use super::{Place, Serve, SettingFlags};

/// The variable that names the config file.
const CONFIG_VARIABLE: &str = "MACP_CONFIG";

/// Variables of this program that are no settings of a server.
const OTHER_VARIABLES: [&str; 7] = [
    CONFIG_VARIABLE,
    "MACP_SERVER",
    "MACP_TOKEN",
    "MACP_CA",
    "MACP_CLIENT_CERT",
    "MACP_CLIENT_KEY",
    "MACP_CONFORMANCE_DIR",
];

/// Variables with the secrets that plans name; they belong to whoever resolves them.
const SECRET_PREFIX: &str = "MACP_SECRET_";

/// Variables that promise protection. Ignoring one whose name was mistyped would leave a server open that its operator
/// believes closed.
const PROTECTING_PREFIXES: [&str; 2] = ["MACP_TLS_", "MACP_AUTH_"];

/// Variables of the public runtime that mean nothing here, and why.
const WITHOUT_EFFECT: [(&str, &str); 9] = [
    ("MACP_CLEANUP_INTERVAL_SECS", "sessions leave the memory by themselves (MACP_SESSION_IDLE_SECS)"),
    ("MACP_SESSION_RETENTION_SECS", "histories are kept, and sessions leave the memory (MACP_SESSION_IDLE_SECS)"),
    ("MACP_SESSION_DISK_RETENTION_SECS", "histories are kept"),
    ("MACP_COMPACT_TERMINAL_LOGS", "histories are kept whole"),
    ("MACP_CHECKPOINT_INTERVAL", "no checkpoint is needed"),
    ("MACP_STORAGE_BACKEND", "histories are in a directory (MACP_DATA_DIR) or in memory (MACP_MEMORY_ONLY)"),
    ("MACP_STRICT_RECOVERY", "a damaged history always stops its session, and only that"),
    ("MACP_METRICS_ADDR", "metrics are served at /metrics on MACP_BIND_ADDR"),
    ("MACP_HTTP_", "this version does not serve the protocol as JSON over HTTP"),
];

/// Everything that was said, before it is put together. Kept, so that the config file can be read again. Not to be
/// shown: the environment holds secrets, its own and those of others.
#[derive(Clone)]
pub(crate) struct Layers {
    flags: SettingFlags,
    environment: BTreeMap<OsString, OsString>,
    config: Option<PathBuf>,
}

/// Why settings cannot be used: every problem, one a line.
#[derive(Debug)]
pub(crate) struct Invalid(Vec<String>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => write!(f, "invalid settings: {problem}"),
            problems => write!(f, "invalid settings:\n  {}", problems.join("\n  ")),
        }
    }
}

impl std::error::Error for Invalid {}

/// Where a value came from; the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Default,
    File,
    Environment,
    Flag,
}

impl Layers {
    /// Notes what the command line and the environment say. An empty variable counts as absent.
    pub(crate) fn new(
        flags: SettingFlags,
        config: Option<PathBuf>,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Layers {
        let environment: BTreeMap<_, _> = environment.filter(|(_, value)| !value.is_empty()).collect();
        let config = config.or_else(|| environment.get(OsStr::new(CONFIG_VARIABLE)).map(PathBuf::from));
        Layers { flags, environment, config }
    }

    /// Reads the config file and puts everything together.
    pub(crate) fn resolve(&self) -> Result<Serve, Invalid> {
        let mut problems = self.refused_variables();
        let file = match &self.config {
            None => ConfigFile::default(),
            Some(path) => ConfigFile::read(path).unwrap_or_else(|found| {
                problems.extend(found);
                ConfigFile::default()
            }),
        };
        let mut draft = Draft::new();
        let mut layers = BTreeMap::new();
        for setting in SETTINGS {
            let found = match self.find(setting, &file) {
                Ok(found) => found,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            if let Some((layer, value)) = found {
                layers.insert(setting.key, layer);
                if let Err(problem) = (setting.apply)(&mut draft, &value) {
                    problems.push(format!("{}: {problem}", self.origin(setting, layer)));
                }
            }
        }
        let in_memory = in_memory(&draft, &layers).unwrap_or_else(|problem| {
            problems.push(problem);
            false
        });
        if !file.roles.is_empty() {
            if !draft.auth.roles.is_empty() {
                problems.push("roles are given in the config file and as JSON; keep one of them".to_owned());
            }
            draft.auth.roles.clone_from(&file.roles);
        }
        draft.plans.skills.providers.clone_from(&file.providers);
        draft.plans.sessions.scopes.clone_from(&file.scopes);
        problems.extend(check_whole(&draft));
        let files = Files {
            tls: draft.tls.clone(),
            receipts: draft.receipts.clone(),
            policies_dir: draft.policies_dir.clone(),
        };
        let names_runtime = layers.get("runtime_id").is_some_and(|layer| *layer > Layer::Default);
        problems.extend(files.check(names_runtime).into_iter().map(str::to_owned));
        match std::mem::take(&mut draft.auth).settings() {
            Ok(auth) => draft.server.auth = auth,
            Err(found) => problems.extend(found.iter().map(ToString::to_string)),
        }
        if !problems.is_empty() {
            return Err(Invalid(problems));
        }
        Ok(self.assemble(draft, files, in_memory, file))
    }

    fn assemble(&self, mut draft: Draft, files: Files, in_memory: bool, file: ConfigFile) -> Serve {
        draft.server.audit = draft.audit();
        let place = if in_memory { Place::Memory } else { Place::Directory(draft.data) };
        Serve {
            server: draft.server,
            place,
            files,
            plans: draft.plans,
            keys_file: draft.keys_file,
            roots: file.roots,
            log_format: draft.log_format,
            log_filter: draft.log_filter,
            ready_file: draft.ready_file,
            warnings: self.warnings(),
        }
    }

    /// The value of the highest layer that says something.
    fn find(&self, setting: &Setting, file: &ConfigFile) -> Result<Option<(Layer, Value)>, String> {
        if let Some(text) = self.flags.given.get(setting.key) {
            return self.parse(setting, Layer::Flag, text).map(Some);
        }
        if let Some(text) = self.variable(setting) {
            return self.parse(setting, Layer::Environment, text).map(Some);
        }
        if let Some(value) = file.values.get(setting.key) {
            return Ok(Some((Layer::File, value.clone())));
        }
        match setting.default {
            Default::Is(text) => self.parse(setting, Layer::Default, OsStr::new(text)).map(Some),
            Default::Unset(_) => Ok(None),
        }
    }

    fn parse(&self, setting: &Setting, layer: Layer, text: &OsStr) -> Result<(Layer, Value), String> {
        let origin = || self.origin(setting, layer);
        let text = text.to_str().ok_or_else(|| format!("{}: the value is not valid UTF-8", origin()))?;
        let value = setting.kind.parse(text).map_err(|problem| format!("{}: {problem}", origin()))?;
        Ok((layer, value))
    }

    fn variable(&self, setting: &Setting) -> Option<&OsString> {
        // Rust programs share this variable, so it counts where ours is not set.
        let also = if setting.key == "log" { self.environment.get(OsStr::new("RUST_LOG")) } else { None };
        self.environment.get(OsStr::new(setting.env)).or(also)
    }

    /// How the operator named it.
    fn origin(&self, setting: &Setting, layer: Layer) -> String {
        match layer {
            Layer::Flag => format!("--{}", setting.flag.unwrap_or(setting.key)),
            Layer::Environment => setting.env.to_owned(),
            Layer::File => match &self.config {
                Some(path) => format!("{}: {}", path.display(), setting.key),
                None => setting.key.to_owned(),
            },
            Layer::Default => format!("default of {}", setting.key),
        }
    }

    fn refused_variables(&self) -> Vec<String> {
        let protects = |name: &&str| PROTECTING_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let refused = self.unknown_variables().filter(protects);
        refused
            .map(|name| {
                format!("{name} is set, but there is no such setting, so it would protect nothing; check its name")
            })
            .collect()
    }

    fn warnings(&self) -> Vec<String> {
        let warning = |name: &str| match WITHOUT_EFFECT.iter().find(|(known, _)| name.starts_with(known)) {
            Some((_, why)) => format!("the environment variable {name} has no effect here: {why}"),
            None => format!("the environment variable {name} is no setting and is ignored"),
        };
        self.unknown_variables().map(warning).collect()
    }

    /// The variables that look like ours and are not.
    fn unknown_variables(&self) -> impl Iterator<Item = &str> {
        let known = |name: &str| {
            OTHER_VARIABLES.contains(&name)
                || name.starts_with(SECRET_PREFIX)
                || SETTINGS.iter().any(|setting| setting.env == name)
        };
        let names = self.environment.keys().filter_map(|name| name.to_str());
        names.filter(move |name| name.starts_with("MACP_") && !known(name))
    }
}

/// A data directory and memory exclude each other: whatever was said closer to the command line wins.
fn in_memory(draft: &Draft, layers: &BTreeMap<&'static str, Layer>) -> Result<bool, String> {
    if !draft.memory {
        return Ok(false);
    }
    let layer = |key| layers.get(key).copied().unwrap_or(Layer::Default);
    match layer("memory").cmp(&layer("data")) {
        std::cmp::Ordering::Greater => Ok(true),
        std::cmp::Ordering::Less => Ok(false),
        std::cmp::Ordering::Equal => {
            Err("both memory and a data directory are asked for; choose one of them".to_owned())
        }
    }
}

/// What no setting can see for itself.
fn check_whole(draft: &Draft) -> Vec<String> {
    let mut problems = Vec::new();
    let server = &draft.server;
    if server.list_page_size_default > server.list_page_size_max {
        problems.push(format!(
            "list_sessions_default_page_size ({}) is larger than list_sessions_max_page_size ({})",
            server.list_page_size_default, server.list_page_size_max
        ));
    }
    let limits = &server.engine.limits;
    if limits.payload_bytes_max > server.engine.bytes_in_flight_max {
        problems.push(format!(
            "max_payload_bytes ({}) is larger than max_bytes_in_flight ({}), so such a payload could never be taken",
            limits.payload_bytes_max, server.engine.bytes_in_flight_max
        ));
    }
    if limits.signatures == macp_kernel::SignatureRule::Required && draft.keys_file.is_none() {
        problems.push("signatures are required, but no signing_keys_file names any key".to_owned());
    }
    if draft.data.as_os_str().is_empty() {
        problems.push("data: the name of the directory is empty".to_owned());
    }
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(&draft.log_filter) {
        problems.push(format!("log: {:?} is not a filter: {error}", draft.log_filter));
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// What was said, with the config file it was said in.
    struct Said {
        layers: Layers,
        _file: Option<tempfile::TempPath>,
    }

    impl Said {
        fn resolve(&self) -> Result<Serve, Invalid> {
            self.layers.resolve()
        }
    }

    fn layers(flags: &[(&'static str, &str)], environment: &[(&str, &str)], config: Option<&str>) -> Said {
        let given = flags.iter().map(|(key, text)| (*key, OsString::from(text))).collect();
        let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let file = config.map(|text| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.into_temp_path()
        });
        let path = file.as_ref().map(|file| file.to_path_buf());
        Said { layers: Layers::new(SettingFlags { given }, path, environment), _file: file }
    }

    #[test]
    fn the_layer_closest_to_the_command_line_wins() {
        let file = Some("shards = 3\nmax_payload_bytes = 300\nsession_idle_secs = 30");
        let environment = [("MACP_SHARDS", "2"), ("MACP_MAX_PAYLOAD_BYTES", "200")];
        let serve = layers(&[("shards", "1")], &environment, file).resolve().unwrap();
        assert_eq!(serve.server.engine.shards, 1);
        assert_eq!(serve.server.engine.limits.payload_bytes_max, 200);
        assert_eq!(serve.server.engine.idle_ms_max, 30_000);
        assert_eq!(serve.server.engine.watcher_buffer, 1_024);
        assert_eq!(serve.place, Place::Directory("macp-data".into()));
    }

    #[test]
    fn memory_and_directory_exclude_each_other_within_a_layer() {
        let place = |flags: &[(&'static str, &str)], environment: &[(&str, &str)]| {
            layers(flags, environment, None).resolve().map(|serve| serve.place).map_err(|error| error.to_string())
        };
        assert_eq!(place(&[("memory", "true")], &[("MACP_DATA_DIR", "d")]), Ok(Place::Memory));
        assert_eq!(place(&[("data", "d")], &[("MACP_MEMORY_ONLY", "1")]), Ok(Place::Directory("d".into())));
        assert!(place(&[("data", "d"), ("memory", "true")], &[]).unwrap_err().contains("choose one"));
        assert_eq!(
            place(&[], &[("MACP_MEMORY_ONLY", "0"), ("MACP_DATA_DIR", "")]),
            Ok(Place::Directory("macp-data".into()))
        );
    }

    #[test]
    fn every_problem_is_told_with_its_name() {
        let error = layers(&[("listen", "nowhere")], &[("MACP_SHARDS", "many"), ("MACP_PROFILE", "modern")], None)
            .resolve()
            .unwrap_err()
            .to_string();
        assert!(error.contains("--listen: \"nowhere\" is not an address"), "{error}");
        assert!(error.contains("MACP_SHARDS: \"many\" is not a whole number"), "{error}");
        assert!(error.contains("MACP_PROFILE: \"modern\" is not one of auto, classic, standard"), "{error}");
    }

    #[test]
    fn promises_of_protection_are_not_ignored() {
        for mistyped in ["MACP_AUTH_TOKEN_FILE", "MACP_TLS_CERT"] {
            let error = layers(&[], &[(mistyped, "x")], None).resolve().unwrap_err().to_string();
            assert!(error.contains(mistyped) && error.contains("protect nothing"), "{error}");
        }
        // A secret is for the plans that name it.
        let others = [
            ("MACP_SHARD", "2"),
            ("MACP_SERVER", "x"),
            ("MACP_CA", "x"),
            ("MACP_HTTP_BIND_ADDR", "x"),
            ("MACP_SECRET_SHOP_TOKEN", "x"),
        ];
        let serve = layers(&[], &others, None).resolve().unwrap();
        let [http, shard] = serve.warnings.as_slice() else { panic!("{:?}", serve.warnings) };
        assert!(http.contains("MACP_HTTP_BIND_ADDR has no effect here: "), "{http}");
        assert!(shard.contains("MACP_SHARD is no setting"), "{shard}");
    }

    /// Half of a protection is refused, and the message says what to add.
    #[test]
    fn half_configured_protection_is_refused() {
        let check = |environment: &[(&str, &str)], expected: &str| {
            let error = layers(&[], environment, None).resolve().unwrap_err().to_string();
            assert!(error.contains(expected), "{environment:?}: {error}");
        };
        check(&[("MACP_TLS_CERT_PATH", "c")], "MACP_TLS_KEY_PATH");
        check(&[("MACP_TLS_KEY_PATH", "k")], "MACP_TLS_CERT_PATH");
        check(&[("MACP_TLS_CLIENT_CA_PATH", "a")], "no certificate of a client would be checked");
        check(&[("MACP_AUTH_ISSUER", "https://i")], "add one of MACP_AUTH_JWKS_URL");
        check(&[("MACP_AUTH_JWKS_FILE", "k")], "add MACP_AUTH_ISSUER");
        check(&[("MACP_AUTH_TOKENS_FILE", "t"), ("MACP_AUTH_TOKENS_JSON", "[]")], "keep one of them");
        check(&[("MACP_RECEIPT_SIGNING_KEY_PATH", "k")], "MACP_RUNTIME_ID");
        check(&[("MACP_RECEIPT_SIGNING_KID", "k")], "without a key");
        check(
            &[("MACP_RECEIPT_SIGNING_KEY_PATH", "k"), ("MACP_RECEIPT_SIGNING_KEY", "k"), ("MACP_RUNTIME_ID", "r")],
            "keep one of them",
        );
        check(&[("MACP_AUTH_ROLES_JSON", "{")], "MACP_AUTH_ROLES_JSON: no valid JSON");
    }

    #[test]
    fn authentication_comes_from_every_layer() {
        let file = Some("auth_issuer = \"https://i\"\nauth_jwks_file = \"k\"\n[roles.operator]\ncancel = true");
        let serve = layers(&[("auth_audience", "us")], &[("MACP_AUTH_JWT_ALGS", "HS256")], file).resolve().unwrap();
        let jwt = serve.server.auth.jwt.expect("an issuer is given");
        assert_eq!((jwt.issuer.as_str(), jwt.audience.as_str()), ("https://i", "us"));
        assert_eq!(jwt.algorithms, [macp_auth::Algorithm::HS256].into());
        assert!(serve.server.auth.roles["operator"].cancel);
        let both = layers(&[("auth_roles_json", r#"{"a":{}}"#)], &[], Some("[roles.b]\nobserve = true")).resolve();
        assert!(both.unwrap_err().to_string().contains("keep one of them"));
    }

    #[test]
    fn a_secret_is_in_no_message() {
        use std::os::unix::ffi::OsStringExt;
        let not_text = OsString::from_vec(b"hunter2\xff".to_vec());
        let environment = [(OsString::from("MACP_AUTH_TOKENS_JSON"), not_text)];
        let layers = Layers::new(SettingFlags::default(), None, environment.into_iter());
        let error = layers.resolve().unwrap_err().to_string();
        assert!(error.contains("MACP_AUTH_TOKENS_JSON") && !error.contains("hunter2"), "{error}");
        let said = self::layers(&[], &[("MACP_AUTH_TOKENS_JSON", "hunter2")], None);
        assert!(!format!("{:?}", said.resolve().unwrap()).contains("hunter2"));
    }

    #[test]
    fn plans_are_set_from_every_layer() {
        let file =
            Some("egress_allow_hosts = [\"a.example\", \"*.b.example\"]\n[scopes.team]\nagents = \"*\"\nskills = []");
        let said = [("MACP_AGENT_MAX_CALLS", "3"), ("MACP_PLAN_START", "auto"), ("MACP_EGRESS_ALLOW_HTTP", "yes")];
        let serve = layers(&[("plan_namespace", "acme")], &said, file).resolve().unwrap();
        let plans = &serve.plans;
        assert_eq!(plans.skills.egress.allow_hosts, ["a.example", "*.b.example"]);
        assert!(plans.skills.egress.allow_http && plans.enabled);
        assert_eq!((plans.executor.agent.calls_max, plans.executor.agent.runs_max), (Some(3), None));
        assert_eq!(plans.executor.namespace, "acme");
        assert_eq!(plans.sessions.start, macp_plan::session::StartPolicy::Auto);
        assert!(plans.sessions.scopes["team"].agents.allow("anyone"));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let cases: [&[(&'static str, &str)]; 4] = [
            &[("list_sessions_default_page_size", "2000")],
            &[("max_payload_bytes", "2000"), ("max_bytes_in_flight", "1000")],
            &[("signatures", "required")],
            &[("log", "=,=")],
        ];
        for flags in cases {
            assert!(layers(flags, &[], None).resolve().is_err(), "{flags:?}");
        }
    }
}
