//! Which secrets a skill of others gets at: those its step names, unless they are bound to hosts, and those it was set
//! up with.

use std::collections::BTreeSet;
use std::sync::Arc;

use macp_plan::registry::Registry;
use macp_plan::skill::{Call, Calling, Observation, Skill};
use macp_plan::skills::SkillSettings;
use macp_plan::skills::llm_invoke::{LlmKind, LlmProvider};
use macp_plan::testkit::{ScriptedSkill, Stage};
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::Effect;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use serde_json::{Map, Value, json};

use crate::world::{SECRET, registry, settings};

/// Reads the secret `token`, whatever its step says, and tells what it got.
#[derive(Debug)]
struct Curious {
    metadata: SkillMetadata,
}

impl Curious {
    fn new(version: &str) -> Arc<Self> {
        Arc::new(Self { metadata: ScriptedSkill::new("curious", version).metadata().clone() })
    }
}

impl PureSkill for Curious {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, _parameters: &Map<String, Value>) -> Vec<Effect> {
        Vec::new()
    }

    fn usage_bound(&self, _parameters: &Map<String, Value>) -> Usage {
        Usage::default()
    }

    fn check_input(&self, _parameters: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }
}

impl Skill for Curious {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(async move {
            let read = call.secrets.secret("token").map_err(|error| error.to_string());
            let got = read.is_ok();
            // Under another shape the executor would not recognise it, so that this tells who really had it.
            let length = read.as_ref().map_or(0, |value| value.len());
            let read = read.map_or_else(|error| error, |value| value.to_string());
            Observation::success(json!({"got": got, "length": length, "read": read}), "read")
        })
    }
}

/// What the skill read in a step that names this, and how long it was.
async fn read(registry: Registry, named: &str) -> (bool, usize, String) {
    let plan = json!({
        "plan_id": "read", "agent_id": "clerk", "goal": "Read",
        "steps": [{"step_id": "read", "skill_id": "curious", "skill_version": "1.0.0", "parameters": {"as": named}}],
        "context": {"budget_cents": 1, "allowed_skills": ["curious"]},
    });
    let performed = Stage::new(registry).secret("token", SECRET).run(&plan).await;
    performed.ends("OK", 0, 0).replays();
    assert!(!format!("{performed:?}").contains(SECRET), "{performed:?}");
    let output = performed.outcome("read").unwrap().outcome.details["output"].clone();
    let length = usize::try_from(output["length"].as_u64().unwrap()).unwrap();
    (output["got"].as_bool().unwrap(), length, output["read"].as_str().unwrap().to_owned())
}

fn with(settings: &SkillSettings) -> Registry {
    let mut registry = registry(settings);
    registry.register(Curious::new("1.0.0"), None).unwrap();
    registry
}

/// AOS-83: plans name secrets, so that whoever reads one knows which it uses.
#[tokio::test]
async fn a_skill_reads_what_its_step_names() {
    let got = read(with(&settings()), "Bearer secret://token").await;
    assert_eq!(got, (true, SECRET.len(), "[secret token]".to_owned()));
    for silent in ["nobody", "secret://other", "secret://tokens", "token"] {
        let (got, length, told) = read(with(&settings()), silent).await;
        assert!(!got && length == 0 && told.contains("does not name `secret://token`"), "{silent}: {told}");
    }
}

/// Whoever holds the text can send it anywhere, so that what an operator bound stays with the client.
#[tokio::test]
async fn a_skill_reads_no_secret_that_is_bound() {
    let mut bound = settings();
    bound.secrets.hosts = vec!["token=shop.example".to_owned()];
    let (got, _, told) = read(with(&bound), "secret://token").await;
    let unavailable = "the secret `token` is not available to this call; the server's log has the reason";
    assert!(!got && told == unavailable, "{told}");
    let provider = LlmProvider {
        name: "models".to_owned(),
        kind: LlmKind::OpenAi,
        base_url: "http://127.0.0.1:9".to_owned(),
        api_key: Some("token".to_owned()),
        models: None,
        max_tokens_field: None,
    };
    let (got, _, told) = read(with(&SkillSettings { providers: vec![provider], ..settings() }), "secret://token").await;
    assert!(!got && told == unavailable, "the key of a provider is for it alone: {told}");
}

/// What an operator sets a skill up with is the operator's word, as the key of a provider is for `llm_invoke`.
#[tokio::test]
async fn a_skill_reads_what_it_was_set_up_with() {
    let mut entrusted = with(&settings());
    entrusted.entrust("curious", BTreeSet::from(["token".to_owned()])).unwrap();
    assert_eq!(read(entrusted, "nobody").await, (true, SECRET.len(), "[secret token]".to_owned()));
    // Whichever version comes later, and whatever it is set up with beside.
    let mut later = registry(&settings());
    later.register(Curious::new("0.9.0"), None).unwrap();
    later.entrust("curious", BTreeSet::from(["token".to_owned()])).unwrap();
    later.entrust("curious", BTreeSet::from(["another".to_owned()])).unwrap();
    later.register(Curious::new("1.0.0"), None).unwrap();
    assert_eq!(read(later, "nobody").await, (true, SECRET.len(), "[secret token]".to_owned()));
    let mut other = with(&settings());
    other.entrust("http_call", BTreeSet::from(["token".to_owned()])).unwrap();
    let (got, _, told) = read(other, "nobody").await;
    assert!(!got, "another skill's secrets are not its own: {told}");
    let unknown = with(&settings()).entrust("curios", BTreeSet::new()).expect_err("must be refused");
    assert!(unknown.to_string().contains("`curios`"), "{unknown}");
}
