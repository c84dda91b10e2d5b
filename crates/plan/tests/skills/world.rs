//! What calls of these tests have in common: settings that reach this machine and nothing else, secrets, names.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use macp_plan::egress::{self, Resolver, Resolving};
use macp_plan::outbound::Http;
use macp_plan::registry::{self, Registry};
use macp_plan::secrets::Held;
use macp_plan::skill::{Call, Observation, Skill};
use macp_plan::skills::{SkillSettings, TrustSettings};
use macp_plan_core::taxonomy::{DEFAULT_VERSION, Taxonomy};
use serde_json::{Map, Value};

pub(crate) const SECRET: &str = "the-value-nobody-may-see-4711";
pub(crate) const EFFECT_KEY: &str = "aos1-00ff";
/// Long enough never to be reached by a server that answers.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);
/// Short, for servers that never answer.
pub(crate) const BRIEF: Duration = Duration::from_millis(150);

/// Names of a world of their own: no question leaves this machine.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) BTreeMap<&'static str, Vec<IpAddr>>);

impl Resolver for Names {
    fn resolve(&self, name: &str) -> Resolving {
        let found = self.0.get(name).cloned();
        Box::pin(async move { found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name")) })
    }
}

/// Loopback is allowed, by http.
pub(crate) fn settings() -> SkillSettings {
    let egress = egress::Settings {
        allow_networks: vec!["127.0.0.0/8".to_owned()],
        allow_http: true,
        ..egress::Settings::default()
    };
    let trust = TrustSettings { system_roots: false, roots_pem: Vec::new() };
    SkillSettings { egress, trust, ..SkillSettings::default() }
}

pub(crate) fn registry(settings: &SkillSettings) -> Registry {
    registry_with(settings, &[])
}

pub(crate) fn registry_with(settings: &SkillSettings, names: &[(&'static str, &str)]) -> Registry {
    let mut known: BTreeMap<&'static str, Vec<IpAddr>> = BTreeMap::new();
    for (name, address) in names {
        known.entry(name).or_default().push(address.parse().expect("an address"));
    }
    registry::standard_with(settings, Arc::new(Names(known))).expect("usable settings")
}

pub(crate) fn http(settings: &SkillSettings) -> Arc<dyn Skill> {
    registry(settings).callable("http_call", "1.2.0").expect("http_call comes with the runtime")
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("parameters are an object, not {other}"),
    }
}

/// One dispatch. Whatever the skill reports, the secret is not in it.
pub(crate) async fn call(skill: &dyn Skill, parameters: Value, timeout: Duration) -> Observation {
    let effects = skill.effects(&object(parameters.clone())).len();
    call_with_keys(skill, parameters, timeout, &vec![EFFECT_KEY.to_owned(); effects]).await
}

pub(crate) async fn call_with_keys(
    skill: &dyn Skill,
    parameters: Value,
    timeout: Duration,
    effect_keys: &[String],
) -> Observation {
    let parameters = object(parameters);
    let secrets = Held::default().with("token", SECRET);
    let http = Http::closed(&secrets);
    let call = Call { parameters: &parameters, timeout, effect_keys, secrets: &secrets, http, random_seed: 7 };
    let observation = skill.call(call).await;
    assert!(!format!("{observation:?}").contains(SECRET), "{observation:?}");
    observation
}

/// The code an observation gets.
pub(crate) fn code(skill: &dyn Skill, observation: &Observation) -> &'static str {
    let taxonomy = Taxonomy::version(DEFAULT_VERSION).expect("the default version is kept");
    taxonomy.resolve(&observation.cause, skill)
}

/// Checks the code, and that it is one the skill declares.
#[track_caller]
pub(crate) fn expect_code(skill: &dyn Skill, observation: &Observation, expected: &str) {
    assert_eq!(code(skill, observation), expected, "{observation:?}");
    let declared = expected.starts_with("OK") || skill.metadata().failure_modes.iter().any(|code| code == expected);
    assert!(declared, "{expected} is not among the failure modes");
}
