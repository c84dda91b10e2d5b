//! Claims on effects (AOS-78): one winner, whoever is fast and whatever crashed.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan::store::{Claim, ClaimRequest, Done, Outcome, RunStore, Scope, Settlement, StoreError};
use macp_plan_core::journal::{Body, EFFECT, EFFECT_UNKNOWN, Output, RunStatus};
use macp_plan_core::plan::StepStatus;
use serde_json::json;

use crate::sample::{
    self, create, effect_key, finished_run, intent, observed, request_digest, run_finished, step_finished, step_started,
};
use crate::wrapped::{Wrapped, Writes};

fn request(run_id: &str) -> ClaimRequest {
    ClaimRequest {
        effect_key: effect_key("s1"),
        request_digest: request_digest("s1"),
        run_id: run_id.to_owned(),
        step_id: "s1".to_owned(),
        scope: Scope::All,
    }
}

async fn claim(store: &RunStore, run_id: &str) -> Claim {
    store.claims().claim(request(run_id)).await.unwrap()
}

async fn output(store: &RunStore) -> Output {
    store.bodies().keep(json!({"id": 7})).await.unwrap().output
}

/// What 20 runs are told that claim the same effect at once.
async fn race(store: &RunStore, name: &str) -> Vec<(String, Claim)> {
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (store, run_id) = (store.clone(), format!("{name}{number}"));
            tokio::spawn(async move {
                let answer = claim(&store, &run_id).await;
                (run_id, answer)
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// The one run that may dispatch; all others were told of it.
fn winner(answers: &[(String, Claim)]) -> String {
    let winners: Vec<_> = answers.iter().filter(|(_, answer)| matches!(answer, Claim::New)).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let winner = &winners[0].0;
    let told = |answer: &Claim| matches!(answer, Claim::New | Claim::Unfinished { .. });
    assert!(answers.iter().all(|(_, answer)| told(answer)), "{answers:?}");
    for (_, answer) in answers {
        if let Claim::Unfinished { run_id } = answer {
            assert_eq!(run_id, winner);
        }
    }
    winner.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_twenty_claims_one_wins_also_after_a_failure_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = sample::sqlite(&directory);
    let first = winner(&race(&store, "a").await);
    assert!(matches!(claim(&store, &first).await, Claim::Held));
    store.claims().fail(request(&first)).await.unwrap();

    let second = winner(&race(&store, "b").await);
    drop(store);
    let store = sample::sqlite(&directory);
    assert!(matches!(claim(&store, &second).await, Claim::Held), "recovery after a restart");
    let error = store.claims().finish(request(&first), Done::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotHeld { run_id, .. } if run_id == first));
    store.claims().finish(request(&second), Done { ended: None, output: output(&store).await }).await.unwrap();

    for (_, answer) in race(&store, "c").await {
        let Claim::Duplicate { run_id, done } = answer else { panic!("{answer:?}") };
        assert_eq!((run_id, done.output.output), (second.clone(), Some(json!({"id": 7}))));
    }
}

#[tokio::test]
async fn another_request_under_the_same_key_is_a_conflict_in_every_state() {
    let store = sample::memory();
    let other = || ClaimRequest { request_digest: request_digest("other"), ..request("b") };
    let conflict = async || match store.claims().claim(other()).await.unwrap() {
        Claim::Conflict { run_id } => run_id == "a",
        answer => panic!("{answer:?}"),
    };
    claim(&store, "a").await;
    assert!(conflict().await);
    store.claims().fail(request("a")).await.unwrap();
    assert!(conflict().await);
    store.claims().finish(request("a"), Done::default()).await.unwrap();
    assert!(conflict().await);
}

/// A run that was killed after it claimed, and before its journal said what led to that, may come to another request.
#[tokio::test]
async fn a_claim_under_which_nothing_was_sent_binds_to_no_request() {
    let other = |run_id: &str| ClaimRequest { request_digest: request_digest("other"), ..request(run_id) };
    let conflict = |answer: &Claim| matches!(answer, Claim::Conflict { run_id } if run_id == "a");

    let store = sample::memory();
    let mut journal = create(&store, "a").await;
    claim(&store, "a").await;
    let answer = store.claims().claim(other("b")).await.unwrap();
    assert!(conflict(&answer), "a is under way, and may still send it: {answer:?}");
    assert!(matches!(store.claims().claim(other("a")).await.unwrap(), Claim::New));
    assert!(matches!(store.claims().claim(other("a")).await.unwrap(), Claim::Held));
    journal.append(vec![step_started("s1"), intent("s1")]).await.unwrap();
    let answer = claim(&store, "a").await;
    assert!(conflict(&answer), "the other request may have been sent: {answer:?}");

    let store = sample::memory();
    let mut journal = create(&store, "a").await;
    claim(&store, "a").await;
    journal.append(vec![run_finished(RunStatus::Cancelled)]).await.unwrap();
    assert!(matches!(store.claims().claim(other("b")).await.unwrap(), Claim::New), "nothing was sent, and a has ended");
}

#[tokio::test]
async fn a_replay_has_claims_of_its_own() {
    let store = sample::memory();
    claim(&store, "a").await;
    store.claims().finish(request("a"), Done::default()).await.unwrap();
    let replay = || ClaimRequest { scope: Scope::Run, ..request("b") };
    assert!(matches!(store.claims().claim(replay()).await.unwrap(), Claim::New));
    assert!(matches!(store.claims().claim(replay()).await.unwrap(), Claim::Held));
    assert!(matches!(claim(&store, "b").await, Claim::Duplicate { .. }));
}

#[tokio::test]
async fn a_claim_its_run_never_ended_is_judged_by_the_journal() {
    // The process went down after the result was journalled and before the claim was.
    let store = sample::memory();
    claim(&store, "a").await;
    let output = output(&store).await;
    finished_run(&store, "a", output).await;
    let Claim::Duplicate { run_id, done } = claim(&store, "b").await else { panic!("the effect was done") };
    assert_eq!((run_id.as_str(), done.output.output), ("a", Some(json!({"id": 7}))));

    let store = sample::memory();
    let mut journal = create(&store, "a").await;
    claim(&store, "a").await;
    journal.append(vec![step_started("s1"), intent("s1"), observed("s1", Output::default())]).await.unwrap();
    assert!(matches!(claim(&store, "b").await, Claim::Unfinished { run_id } if run_id == "a"), "a is still under way");
    let end = vec![step_finished("s1", StepStatus::Failure), run_finished(RunStatus::Failed)];
    journal.append(end).await.unwrap();
    assert!(matches!(claim(&store, "b").await, Claim::New), "the step failed");
    assert!(matches!(claim(&store, "c").await, Claim::Unfinished { run_id } if run_id == "b"));

    let store = sample::memory();
    let mut journal = create(&store, "a").await;
    claim(&store, "a").await;
    journal.append(vec![step_started("s1"), run_finished(RunStatus::Cancelled)]).await.unwrap();
    assert!(matches!(claim(&store, "b").await, Claim::New), "nothing was dispatched");
}

/// AOS-80: whether the answer was lost with the process, or what came back proves nothing.
#[tokio::test]
async fn an_effect_in_doubt_waits_for_the_operator() {
    let lost = || vec![step_finished("s1", StepStatus::Failure), run_finished(RunStatus::InDoubt)];
    let failed = || {
        let mut step = step_finished("s1", StepStatus::Failure);
        if let Body::StepFinished(step) = &mut step {
            step.details.insert(EFFECT.to_owned(), EFFECT_UNKNOWN.into());
        }
        vec![step, run_finished(RunStatus::Failed)]
    };
    let ends = [(Outcome::Success, lost()), (Outcome::Failure, lost())];
    for (outcome, end) in ends.into_iter().chain([(Outcome::Success, failed()), (Outcome::Failure, failed())]) {
        let store = sample::memory();
        let mut journal = create(&store, "a").await;
        claim(&store, "a").await;
        journal.append(vec![step_started("s1"), intent("s1")]).await.unwrap();
        let settlement = |outcome, step_id: &str| Settlement {
            run_id: "a".to_owned(),
            step_id: step_id.to_owned(),
            outcome,
            note: "looked".to_owned(),
            by: "operator".to_owned(),
            at_ms: sample::NOON_MS,
        };
        let early = store.settlements().settle(settlement(outcome, "s1")).await;
        assert!(matches!(early, Err(StoreError::NotInDoubt { .. })), "the run is under way: {early:?}");
        journal.append(end).await.unwrap();
        assert!(matches!(claim(&store, "b").await, Claim::Unfinished { .. }), "never guessed (AOS-80)");

        let elsewhere = store.settlements().settle(settlement(outcome, "s2")).await;
        assert!(matches!(elsewhere, Err(StoreError::NotInDoubt { .. })), "{elsewhere:?}");
        assert_eq!(store.settlements().settle(settlement(outcome, "s1")).await.unwrap(), None);
        let contrary = if outcome == Outcome::Success { Outcome::Failure } else { Outcome::Success };
        let stands = store.settlements().settle(settlement(contrary, "s1")).await.unwrap();
        assert_eq!(stands, Some(settlement(outcome, "s1")));
        assert_eq!(store.settlements().get("a", "s1").await.unwrap(), stands);
        assert_eq!(store.settlements().of_run("a").await.unwrap(), [settlement(outcome, "s1")]);
        match (outcome, claim(&store, "b").await) {
            (Outcome::Success, Claim::Duplicate { run_id, .. }) => assert_eq!(run_id, "a"),
            (Outcome::Failure, Claim::New) => {}
            (outcome, answer) => panic!("{outcome:?}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn without_a_store_there_is_no_claim() {
    let wrapped = Wrapped::new();
    let store = RunStore::open(Arc::clone(&wrapped) as Arc<dyn Store>).unwrap();
    wrapped.set(Writes::Fail);
    let answer = store.claims().claim(request("a")).await;
    assert!(matches!(answer, Err(StoreError::Failure(_))), "{answer:?}");
    wrapped.set(Writes::Work);
    assert!(matches!(claim(&store, "a").await, Claim::New));
}
