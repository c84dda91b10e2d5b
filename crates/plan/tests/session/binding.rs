//! AOS-106, AOS-107, AOS-108 for standard sessions: what binds a plan, and everything that does not.

use std::sync::Arc;

use macp_kernel::Input;
use macp_ledger::MemoryStore;
use macp_plan::session::{Bound, EXTENSION, Error, Names, Reason, Scope, SessionSettings, StartFromSession};
use macp_plan_core::journal::SessionLink;
use macp_wire::modes::decision::v1::ProposalPayload;
use prost::Message;
use serde_json::{Value, json};

use crate::decision::{Decision, committed, control};
use crate::world::{Gate, World, frozen, plan, step, step_with, token};

async fn world() -> World {
    World::memory(SessionSettings::default()).await
}

fn reasons(result: Result<Bound, Error>) -> Vec<Reason> {
    match result {
        Err(Error::Refused(refusals)) => {
            assert!(refusals.iter().all(|refusal| refusal.code().starts_with("ERR_") && !refusal.message.is_empty()));
            refusals.into_iter().map(|refusal| refusal.reason).collect()
        }
        other => panic!("not refused: {other:?}"),
    }
}

async fn refused(world: &World, session_id: &str) -> Vec<Reason> {
    let reasons = reasons(world.session_runs.bind(session_id).await);
    // What does not bind does not start either. Where it is clear which plan that is, a rejected run tells so.
    let told = matches!(
        reasons[0],
        Reason::OutcomeNotPositive
            | Reason::ScopeUnknown
            | Reason::AgentOutsideScope
            | Reason::AgentNotInSession
            | Reason::SkillOutsideScope
    );
    let before = world.listed().await.len();
    let started = world.session_runs.start_from_session(StartFromSession::first(session_id, "op")).await;
    assert_eq!(matches!(started, Err(Error::Rejected { .. })), told, "{started:?}");
    assert_eq!(matches!(started, Err(Error::Refused(_))), !told, "{started:?}");
    assert_eq!(world.listed().await.len(), before + usize::from(told));
    assert_eq!(world.skill.begun(), 0);
    reasons
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_a_proposal_named_by_the_commitment_id() {
    let world = world().await;
    let plan = plan("p1", vec![step("s1")]);
    let (session_id, hash) = committed(&world.engine, "binds", &plan).await;
    let bound = world.session_runs.bind(&session_id).await.unwrap();
    assert_eq!(bound.plan.hash, frozen(&plan).hash);
    assert_eq!((bound.coordinator.as_str(), bound.committer.as_str()), ("alice", "alice"));
    assert_eq!(bound.participants, ["alice", "bob"]);
    // AOS-108: what the run is bound to.
    let link = bound.link;
    assert_eq!((link.session_id, link.commitment_hash, link.position), (session_id, hash, 3));
    assert_eq!((link.mode_version.as_str(), link.configuration_version.as_str()), ("1.0.0", "c1"));
    assert_eq!(link.policy_version, "policy.default");
    world.stop().await;
}

/// AOS-106.3 holds for a retry as for a first start: what was taken away since is not used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_bound_again() {
    let (sessions, runs) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let over = |settings| World::over(sessions.clone(), runs.clone(), Gate::open(), settings);
    let first = over(SessionSettings::default()).await;
    let (session_id, _) = committed(&first.engine, "again", &plan("p1", vec![step("s1")])).await;
    let link = first.session_runs.bind(&session_id).await.unwrap().link;
    drop(first.session_runs.claim_start(&link).await.unwrap());
    // A run that came from elsewhere may name a session that committed to something else here.
    let other = SessionLink { commitment_hash: "0".repeat(64), ..link.clone() };
    let error = first.session_runs.claim_start(&other).await.map(drop).unwrap_err();
    assert_eq!(error.refusals()[0].reason, Reason::CommitmentOther);
    first.stop().await;
    let scope = Scope { agents: Names::Any, skills: Names::Only(["http_call".to_owned()].into()) };
    let scopes = [("ops".to_owned(), scope)].into();
    let later = over(SessionSettings { scopes, ..SessionSettings::default() }).await;
    let error = later.session_runs.claim_start(&link).await.map(drop).unwrap_err();
    assert_eq!(error.refusals()[0].reason, Reason::SkillOutsideScope);
    later.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_at_the_start_named_in_the_reason() {
    let world = world().await;
    let plan = plan("p1", vec![step("s1")]);
    let text = plan.to_string().into_bytes();
    let start = |start: &mut macp_wire::v1::SessionStartPayload| {
        start.extensions.insert(EXTENSION.to_owned(), text.into());
    };
    let mut decision = Decision::standard_with(&world.engine, "extension", start).await;
    // Named twice, also in another place: the same is one.
    let reason = format!("see {0}. Again: {0}", token(&plan));
    decision.propose("p1", b"").await.commit_with(|commitment| commitment.reason = reason).await;
    let bound = world.session_runs.bind(&decision.session_id).await.unwrap();
    assert_eq!(bound.plan.hash, frozen(&plan).hash);
    world.stop().await;
}

/// The digest decides, not the proposal, nor when the plan was made.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_proposed_plans() {
    let world = world().await;
    let (first, second) = (plan("p1", vec![step("s1")]), plan("p1", vec![step("s1"), step("s2")]));
    let mut decision = Decision::standard(&world.engine, "several").await;
    decision.propose("a", first.to_string().as_bytes()).await;
    decision.propose("b", b"{not json").await;
    let mut later = second.clone();
    later["created_at"] = json!("2027-01-01T00:00:00Z");
    decision.propose("c", later.to_string().as_bytes()).await.commit_to(&token(&second)).await;
    let bound = world.session_runs.bind(&decision.session_id).await.unwrap();
    assert_eq!(bound.plan.plan.steps.len(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_by_reference() {
    let world = world().await;
    let plan = plan("p1", vec![step("s1")]);
    let reference = json!({"plan_hash": frozen(&plan).hash, "uri": "https://plans.example/p1"}).to_string();
    let mut decision = Decision::standard(&world.engine, "reference").await;
    decision.propose("p1", reference.as_bytes()).await.commit_to(&token(&plan)).await;
    assert_eq!(refused(&world, &decision.session_id).await, [Reason::PlanNotResolvable]);
    world.runs().plans().keep(plan.clone()).await.unwrap();
    assert_eq!(world.session_runs.bind(&decision.session_id).await.unwrap().plan.hash, frozen(&plan).hash);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_not_resolved() {
    let world = world().await;
    let plan = plan("p1", vec![step("s1")]);
    assert_eq!(refused(&world, "there-is-none").await, [Reason::SessionNotFound]);
    let mut open = Decision::standard(&world.engine, "open").await;
    open.propose_plan(&plan).await;
    assert_eq!(refused(&world, &open.session_id).await, [Reason::SessionNotResolved]);
    control(&world.engine, &open.session_id, "alice", Input::Cancel { reason: "no".to_owned() }).await;
    assert_eq!(refused(&world, &open.session_id).await, [Reason::SessionNotResolved]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_is_not_positive() {
    let world = world().await;
    let plan = plan("p1", vec![step("s1")]);
    let mut decision = Decision::standard(&world.engine, "negative").await;
    decision.propose_plan(&plan).await;
    let token = token(&plan);
    decision
        .commit_with(|commitment| {
            commitment.commitment_id = token;
            commitment.action = "decision.rejected".to_owned();
            commitment.outcome_positive = false;
        })
        .await;
    assert_eq!(refused(&world, &decision.session_id).await, [Reason::OutcomeNotPositive]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_that_are_missing_wrong_or_too_many() {
    let world = world().await;
    let (one, other) = (plan("p1", vec![step("s1")]), plan("p2", vec![step("s1")]));
    let (one_token, other_token) = (token(&one), token(&other));
    let upper = one_token.to_uppercase().replace("AOS-PLAN:SHA256:", "aos-plan:sha256:");
    let cases: [(&str, String, String, Reason); 7] = [
        ("none", "c-1".to_owned(), "agreed".to_owned(), Reason::NoPlanNamed),
        ("bare", frozen(&one).hash.to_string(), "agreed".to_owned(), Reason::NoPlanNamed),
        ("empty", "aos-plan:".to_owned(), "agreed".to_owned(), Reason::DigestMalformed),
        ("short", "c-1".to_owned(), one_token[..one_token.len() - 1].to_owned(), Reason::DigestMalformed),
        ("long", "c-1".to_owned(), format!("{one_token}0"), Reason::DigestMalformed),
        ("upper", upper, "agreed".to_owned(), Reason::DigestMalformed),
        ("two", one_token.clone(), format!("and {other_token}"), Reason::SeveralPlansNamed),
    ];
    for (name, commitment_id, reason, expected) in cases {
        let mut decision = Decision::standard(&world.engine, name).await;
        decision.propose("a", one.to_string().as_bytes()).await;
        decision.propose("b", other.to_string().as_bytes()).await;
        decision
            .commit_with(|commitment| (commitment.commitment_id, commitment.reason) = (commitment_id, reason))
            .await;
        assert_eq!(refused(&world, &decision.session_id).await, [expected], "{name}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_are_not_there_or_no_plans() {
    let world = world().await;
    let plan = plan("p1", vec![step("s1")]);
    let mut absent = Decision::standard(&world.engine, "absent").await;
    absent.propose("p1", b"").await.commit_to(&token(&plan)).await;
    assert_eq!(refused(&world, &absent.session_id).await, [Reason::PlanNotInHistory]);
    // The digest is right, and what has it is no frozen plan: it is as untrusted as any other input.
    for (name, value) in [
        ("unfrozen", json!({"plan_id": "p1", "goal": "g", "steps": []})),
        ("skill", {
            let mut broken = plan.clone();
            broken["steps"][0]["skill_id"] = json!("NOT A SKILL");
            broken
        }),
    ] {
        let digest = macp_plan_core::plan::plan_hash(&value).unwrap();
        let mut decision = Decision::standard(&world.engine, name).await;
        decision.propose_plan(&value).await.commit_to(&format!("aos-plan:{digest}")).await;
        assert_eq!(refused(&world, &decision.session_id).await, [Reason::PlanInvalid], "{name}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_scopes() {
    let only = |names: &[&str]| Names::Only(names.iter().map(|name| (*name).to_owned()).collect());
    let scopes = [
        ("ops", Scope { agents: Names::Any, skills: only(&["sample"]) }),
        ("agents", Scope { agents: only(&["agent-2"]), skills: Names::Any }),
        ("nothing", Scope { agents: only(&["agent-2"]), skills: only(&["http_call"]) }),
    ];
    let scopes = scopes.into_iter().map(|(name, scope)| (name.to_owned(), scope)).collect();
    let world = World::memory(SessionSettings { scopes, ..SessionSettings::default() }).await;
    let plan = plan("p1", vec![step("s1")]);
    let commit = async |scope: &str| {
        let mut decision = Decision::standard(&world.engine, &format!("scope-{scope}")).await;
        let (token, scope) = (token(&plan), scope.to_owned());
        decision.propose_plan(&plan).await;
        decision.commit_with(|it| (it.commitment_id, it.authority_scope) = (token, scope)).await;
        decision.session_id
    };
    world.session_runs.bind(&commit("ops").await).await.expect("within its scope");
    assert_eq!(refused(&world, &commit("other").await).await, [Reason::ScopeUnknown]);
    assert_eq!(refused(&world, &commit("agents").await).await, [Reason::AgentOutsideScope]);
    let all = refused(&world, &commit("nothing").await).await;
    assert_eq!(all, [Reason::AgentOutsideScope, Reason::SkillOutsideScope], "every reason, not the first alone");
    world.stop().await;
}

/// Without scopes, the agent of a plan takes part in the session that committed to it. Limits and budgets count by agent.
#[tokio::test(flavor = "multi_thread")]
async fn without_scopes_a_plan_names_an_agent_of_its_session() {
    let settings = SessionSettings { authenticated: true, ..SessionSettings::default() };
    let world = World::memory(settings).await;
    let by_agent = |agent: &str| {
        let mut plan = plan("p1", vec![step("s1")]);
        plan["agent_id"] = json!(agent);
        plan
    };
    for (agent, allowed) in [("alice", true), ("bob", true), ("agent-1", false), ("Alice", false), ("alic", false)] {
        let (session_id, _) = committed(&world.engine, &format!("by-{agent}"), &by_agent(agent)).await;
        match allowed {
            true => assert_eq!(world.session_runs.bind(&session_id).await.expect("may run").plan.plan.agent_id, agent),
            false => assert_eq!(refused(&world, &session_id).await, [Reason::AgentNotInSession], "{agent}"),
        }
    }
    // An initiator who is not a participant.
    let plan = by_agent("carol");
    let mut decision = Decision::standard_by(&world.engine, "initiator", "carol", |start| {
        start.participants = vec!["alice".to_owned(), "bob".to_owned()];
        start.extensions = [(EXTENSION.to_owned(), plan.to_string().into_bytes().into())].into();
    })
    .await;
    let proposal = ProposalPayload { proposal_id: "p1".to_owned(), option: "run it".to_owned(), ..Default::default() };
    decision.send("Proposal", "alice", proposal.encode_to_vec()).await;
    decision.commit_to(&token(&plan)).await;
    assert_eq!(world.session_runs.bind(&decision.session_id).await.expect("may run").coordinator, "carol");
    world.stop().await;
}

/// A session cannot outlive a day, so a plan that can take longer has nowhere to be reported.
#[tokio::test(flavor = "multi_thread")]
async fn a_worst_case_beyond_the_longest_session() {
    let world = world().await;
    let slow = |step_id: &str| -> Value {
        let mut slow = step_with(step_id, json!({"output": 1}));
        slow["retry_policy"]["max_retries"] = json!(10);
        slow["retry_policy"]["max_delay_ms"] = json!(3_600_000);
        slow["retry_policy"]["retryable_codes"] = json!(["ERR_HTTP_503"]);
        slow
    };
    let plan = plan("p1", vec![step("s1"), slow("s2"), slow("s3"), slow("s4")]);
    let (session_id, _) = committed(&world.engine, "slow", &plan).await;
    world.session_runs.bind(&session_id).await.expect("the binding itself holds");
    let error = world.session_runs.start_from_session(StartFromSession::first(&session_id, "op")).await.unwrap_err();
    assert_eq!(error.refusals()[0].reason, Reason::WorstCaseTooLong);
    assert!(error.to_string().contains("86400 s") && error.to_string().contains("s2 "), "{error}");
    let listed = world.listed().await;
    assert_eq!((listed.len(), listed[0].status.as_str()), (1, "rejected"));
    world.stop().await;
}
