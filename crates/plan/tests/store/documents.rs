//! Plans, outputs, admissions and requests.

use macp_plan::store::{Admission, Commitment, Registered, RunStore, StartRequest, StoreError};
use macp_plan_core::digest::{self, BODY_LABEL};
use macp_plan_core::journal::{Body, Output};
use macp_wire::{canonical, memory};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::sample::{self, request_digest};

fn commitment(epoch: u64) -> Commitment {
    Commitment { session_id: "s".repeat(600), commitment_hash: "c0ffee".to_owned(), epoch }
}

/// The run that was admitted, after 20 tried at once.
async fn race(store: &RunStore, name: &str, epoch: u64) -> (usize, String) {
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (store, run_id) = (store.clone(), format!("{name}{number}"));
            tokio::spawn(async move {
                match store.admissions().admit(commitment(epoch), &run_id).await.unwrap() {
                    Admission::Admitted => (1, run_id),
                    Admission::Already { run_id } => (0, run_id),
                }
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    let run_id = answers[0].1.clone();
    assert!(answers.iter().all(|(_, found)| *found == run_id), "{answers:?}");
    (answers.iter().map(|(admitted, _)| admitted).sum(), run_id)
}

// AOS-110: exactly one run per session, commitment and epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_run_is_admitted_per_commitment_and_epoch_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = sample::sqlite(&directory);
    let (admitted, run_id) = race(&store, "a", 1).await;
    assert_eq!(admitted, 1);
    drop(store);
    let store = sample::sqlite(&directory);
    assert_eq!(race(&store, "b", 1).await, (0, run_id.clone()));
    assert_eq!(store.admissions().run_of(commitment(1)).await.unwrap(), Some(run_id.clone()));
    assert_eq!(store.admissions().run_of(commitment(2)).await.unwrap(), None);
    let (admitted, other) = race(&store, "c", 2).await;
    assert_eq!(admitted, 1);
    assert_ne!(other, run_id);
}

#[tokio::test]
async fn a_request_is_answered_by_one_run() {
    let store = sample::memory();
    let request = |sender: &str, asked: &str| StartRequest {
        sender: sender.to_owned(),
        request_id: "q1".to_owned(),
        digest: request_digest(asked),
    };
    let register =
        async |sender, asked, run_id| store.requests().register(request(sender, asked), run_id).await.unwrap();
    assert_eq!(register("alice", "this", "a").await, Registered::New);
    assert_eq!(register("alice", "this", "b").await, Registered::Same { run_id: "a".to_owned() });
    assert_eq!(register("alice", "that", "b").await, Registered::Differs { run_id: "a".to_owned() });
    assert_eq!(register("bob", "that", "b").await, Registered::New);
}

#[tokio::test]
async fn a_plan_is_kept_under_the_digest_that_leaves_out_when_it_was_made() {
    let store = sample::memory();
    let mut plan = sample::plan("p1");
    let hash = store.plans().keep(plan.clone()).await.unwrap();
    let first = plan.clone();
    plan["created_at"] = json!("later");
    assert_eq!(store.plans().keep(plan.clone()).await.unwrap(), hash);
    assert_eq!(store.plans().get(hash).await.unwrap(), Some(first));
    plan["goal"] = json!("other");
    let other = store.plans().keep(plan.clone()).await.unwrap();
    assert_eq!(store.plans().get(other).await.unwrap(), Some(plan));
    assert_eq!(store.plans().get(request_digest("none")).await.unwrap(), None);
}

// The minimal plan of the published vectors.
#[tokio::test]
async fn the_digest_of_a_plan_is_the_published_one() {
    let plan = json!({
        "agent_id": "a1", "context": {"allowed_skills": ["http_call"], "budget_cents": 1000}, "goal": "g",
        "plan_id": "p1", "created_at": "2026-03-01T09:00:00Z",
        "steps": [{"parameters": {"method": "GET", "timeout_ms": 5000, "url": "https://api.example.com/data"},
            "skill_id": "http_call", "skill_version": "1.2.0", "step_id": "s1"}],
    });
    let hash = sample::memory().plans().keep(plan).await.unwrap();
    assert_eq!(hash.as_str(), "sha256:7fed53b7bc7f30d35f93ddf6885dcd816716e2ca540c5846153d0051ec215d2d");
}

#[tokio::test]
async fn small_outputs_are_inline_and_large_ones_apart() {
    let store = sample::memory();
    // Two quotes make a string of 16,382 characters exactly as long as the limit.
    for (characters, inline) in [(16_382, true), (16_383, false)] {
        let value = Value::from("x".repeat(characters));
        let kept = store.bodies().keep(value.clone()).await.unwrap();
        assert_eq!(kept.output.output.is_some(), inline);
        let digest = digest::of_value(BODY_LABEL, &value).unwrap();
        assert_eq!(kept.output.output_ref, Some(digest.clone()));
        assert_eq!(store.bodies().of_output(&kept.output).await.unwrap(), Some(value.clone()));
        assert_eq!(store.bodies().get(digest).await.unwrap(), (!inline).then_some(value));
    }
    let null = store.bodies().keep(Value::Null).await.unwrap();
    assert!(null.output.output.is_none(), "a null in an entry reads like no output");
    assert_eq!(store.bodies().of_output(&null.output).await.unwrap(), Some(Value::Null));
    assert_eq!(store.bodies().of_output(&Default::default()).await.unwrap(), None);
    let lost = Output { output_ref: Some(request_digest("lost")), output: None };
    assert!(matches!(store.bodies().of_output(&lost).await, Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn an_output_means_the_same_to_every_reader_or_is_refused() {
    let store = sample::memory();
    let kept = store.bodies().keep(json!({"n": 1.0})).await.unwrap();
    assert_eq!(kept.output.output, Some(json!({"n": 1})));
    for value in [json!([9_007_199_254_740_992_u64]), json!([1e17]), json!({"n": -1e18})] {
        let refused = store.bodies().keep(value.clone()).await;
        assert!(matches!(refused, Err(StoreError::NotCanonical { .. })), "{value}: {refused:?}");
    }
    // Beyond what any reader takes for an integer.
    for value in [json!(-1e20), json!(1e300)] {
        assert_eq!(store.bodies().keep(value.clone()).await.unwrap().output.output, Some(value));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(64), ..ProptestConfig::default() })]

    // What a live run goes on with is what a replay reads from the journal.
    #[test]
    fn an_output_that_is_kept_is_read_back_as_it_was_used(value in any_json()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = sample::memory();
            if let Ok(kept) = store.bodies().keep(value.clone()).await {
                // What the value's text is read back as, wherever it is kept.
                let text = canonical::to_string(&value).unwrap();
                let value = canonical::parse(text.as_bytes()).unwrap();
                assert_eq!(kept.size.text, text.len());
                assert_eq!(kept.size.memory, memory::of(&value));
                let mut journal = sample::create(&store, "r").await;
                journal.append(vec![sample::observed("s1", kept.output)]).await.unwrap();
                let run = store.load("r").await.unwrap().unwrap();
                let Some(Body::AttemptObserved { output, .. }) = run.bodies().next_back() else {
                    panic!("the last entry is the one written")
                };
                let read = store.bodies().of_output(output).await.unwrap();
                assert_eq!(read, Some(value));
            }
        });
    }
}
