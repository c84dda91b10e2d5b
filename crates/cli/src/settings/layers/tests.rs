//! What wins, what is refused, and what is told about it.

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
fn a_server_listens_on_an_address_or_on_localhost() {
    let listen = |text: &str| layers(&[("listen", text)], &[], None).resolve().map(|serve| serve.server.listen);
    assert_eq!(listen("localhost:4000").expect("an address"), ([127, 0, 0, 1], 4000).into());
    assert_eq!(listen("[::1]:0").expect("an address"), (std::net::Ipv6Addr::LOCALHOST, 0).into());
    for wrong in ["localhost", "localhost:", "localhost:70000", "example.org:4000", ":4000", "127.0.0.1"] {
        assert!(listen(wrong).unwrap_err().to_string().contains("not an address and a port"), "{wrong}");
    }
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
    for empty in ["MACP_AUTH_TOKENS_JSON", "MACP_TLS_CERT_PATH"] {
        let error = layers(&[], &[(empty, "")], None).resolve().unwrap_err().to_string();
        assert!(error.contains(empty) && error.contains("has no value"), "{error}");
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
fn what_agents_may_spend_and_where_secrets_may_go_is_set_from_every_layer() {
    let file = Some("agent_cents_per_day = 500\nbound_secrets = [\"a=shop.example\", \"a=*.shop.example\"]");
    let said = [("MACP_AGENT_CENTS_PER_MONTH", "0"), ("MACP_AGENT_MAX_KEPT_BYTES", "1000")];
    let serve = layers(&[("agent_cents_per_run", "5")], &said, file).resolve().unwrap();
    let agent = serve.plans.executor.agent;
    assert_eq!((agent.cents_per_run, agent.cents_per_day, agent.cents_per_month), (Some(5), Some(500), Some(0)));
    assert_eq!(agent.kept_bytes_max, Some(1_000));
    assert_eq!(serve.plans.skills.secrets.hosts, ["a=shop.example", "a=*.shop.example"]);
    let unlimited = layers(&[], &[], None).resolve().unwrap().plans.executor.agent;
    assert_eq!(unlimited, macp_plan::executor::AgentLimits::default());
    let refused = [
        ("MACP_AGENT_CENTS_PER_DAY", "-1", "MACP_AGENT_CENTS_PER_DAY: "),
        ("MACP_BOUND_SECRETS", "shop.example", "MACP_BOUND_SECRETS: `shop.example` is not the name of a secret"),
        ("MACP_EGRESS_ALLOW_HOSTS", "*.*", "MACP_EGRESS_ALLOW_HOSTS: `*.*` is neither a host name"),
        ("MACP_EGRESS_MAX_ANSWER_BYTES", "10485761", "MACP_EGRESS_MAX_ANSWER_BYTES: "),
    ];
    for (name, text, told) in refused {
        let error = layers(&[], &[(name, text)], None).resolve().unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
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
