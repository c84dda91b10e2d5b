//! Calls that failed and may have taken effect all the same (AOS-42, AOS-78, AOS-80): nobody makes them again before an
//! operator has said what became of them. Against a server on this machine that misbehaves.

use macp_plan::executor::{Executor, Start, StartError, StartMode};
use macp_plan::result::RunResult;
use macp_plan::store::{Outcome, Status, StoreError};
use macp_plan_core::journal::StopReason;
use macp_plan_core::testkit::{plan, step};
use serde_json::{Value, json};

use super::execution::call;
use super::http::{authored, settings, standard};
use super::server::{Reply, Server, answer, json_answer};
use super::world::{World, begin, codes, contents, ended, frozen, step_of};

async fn retry(executor: &Executor, value: &Value, parent: &str) -> Result<RunResult, StartError> {
    let mode = StartMode::Retry { parent_run_id: parent.to_owned(), from_step: None };
    let start = Start { mode, ..Start::execute(frozen(value.clone()), "olga") };
    let run_id = executor.start(start).await?.run_id;
    Ok(ended(executor, &run_id).await)
}

/// A plan that posts once and is not tried again by itself.
fn posting(world: &World, server: &Server, dedupes: bool) -> Value {
    let parameters = json!({"url": server.url("/charge"), "method": "POST", "body": {"cents": 700},
        "target_dedupes": dedupes, "timeout_ms": 300});
    let step = json!({"step_id": "charge", "skill_id": "http_call", "skill_version": "1.2.0",
        "parameters": parameters, "retry_policy": {"max_retries": 0}});
    authored(world, json!([step]))
}

fn fine() -> Reply {
    Reply::Bytes(json_answer(200, &json!({"fine": true})))
}

fn keys(server: &Server) -> Vec<String> {
    server.requests().iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect()
}

/// A call whose fate is not known is not made again until somebody knows; what that is decides what a retry does.
#[tokio::test]
async fn a_timeout_is_settled_before_it_is_tried_again() {
    for (outcome, code, requests) in [(Outcome::Success, "OK_SKIP_DUPLICATE", 1), (Outcome::Failure, "OK_HTTP_CALL", 2)]
    {
        let server = Server::start(vec![Reply::ThenHang(Vec::new()), fine()]).await;
        let world = standard(&settings());
        let executor = world.executor();
        let value = posting(&world, &server, false);
        let first = begin(&executor, value.clone()).await;
        let result = ended(&executor, &first).await;
        // How the run ended is for the taxonomy to say, as ever.
        assert_eq!((result.status, codes(&result)), (Status::Failed, vec![("charge", "ERR_HTTP_TIMEOUT")]));
        assert_eq!(result.stop.as_ref().unwrap().reason, StopReason::StepFailed);
        assert_eq!(step_of(&result, "charge").outcome.details["effect"], "unknown");

        let refused = retry(&executor, &value, &first).await.unwrap_err();
        assert!(matches!(&refused, StartError::InDoubt { step_id, .. } if step_id == "charge"), "{refused:?}");
        let command = format!("macp run resolve {first} --step charge");
        assert!(refused.to_string().contains(&command), "{refused}");
        // Nor does another run of the plan make the call meanwhile; it says who can tell.
        let other = begin(&executor, value.clone()).await;
        let other = ended(&executor, &other).await;
        assert_eq!(codes(&other), [("charge", "ERR_IDEMPOTENCY_CONFLICT")]);
        let told = &step_of(&other, "charge").outcome;
        assert!(told.message.contains(&command), "{}", told.message);
        assert!(!told.details.contains_key("effect"), "it made no call: {told:?}");
        assert_eq!(server.requests().len(), 1);

        assert!(executor.settle(&first, "charge", outcome, "in their list", "olga").await.unwrap().is_none());
        let second = retry(&executor, &value, &first).await.unwrap();
        assert_eq!((second.status, codes(&second)), (Status::Succeeded, vec![("charge", code)]));
        let keys = keys(&server);
        assert_eq!(keys.len(), requests);
        assert!(keys.iter().all(|key| *key == keys[0]), "it is the same effect: {keys:?}");
    }
}

/// Whatever broke off, broke down or cannot be read may have acted before.
#[tokio::test]
async fn answers_that_prove_nothing_leave_doubt() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    let replies = [
        Reply::Bytes(answer(503, &[], "")),
        Reply::Bytes(answer(408, &[], "")),
        Reply::ThenReset(Vec::new()),
        Reply::ThenReset(half),
        Reply::Bytes(b"NOT HTTP AT ALL\r\n\r\n".to_vec()),
    ];
    for reply in replies {
        let server = Server::start(vec![reply.clone(), fine()]).await;
        let world = standard(&settings());
        let executor = world.executor();
        let value = posting(&world, &server, false);
        let first = begin(&executor, value.clone()).await;
        assert_eq!(ended(&executor, &first).await.status, Status::Failed, "{reply:?}");
        let refused = retry(&executor, &value, &first).await.unwrap_err();
        assert!(matches!(refused, StartError::InDoubt { .. }), "{reply:?}: {refused:?}");
    }
}

/// Nobody needs to ask where the target refused the call, or recognises it when it is repeated.
#[tokio::test]
async fn a_refusal_or_a_known_key_is_tried_again_at_once() {
    let refusal = Reply::Bytes(answer(400, &[], ""));
    for (reply, dedupes) in [(refusal.clone(), false), (refusal, true), (Reply::ThenHang(Vec::new()), true)] {
        let server = Server::start(vec![reply, fine()]).await;
        let world = standard(&settings());
        let executor = world.executor();
        let value = posting(&world, &server, dedupes);
        let first = begin(&executor, value.clone()).await;
        let result = ended(&executor, &first).await;
        assert_eq!(result.status, Status::Failed);
        assert!(!step_of(&result, "charge").outcome.details.contains_key("effect"));
        let none = executor.settle(&first, "charge", Outcome::Success, "", "olga").await;
        assert!(matches!(none, Err(StoreError::NotInDoubt { .. })), "{none:?}");
        assert_eq!(codes(&retry(&executor, &value, &first).await.unwrap()), [("charge", "OK_HTTP_CALL")]);
        let keys = keys(&server);
        assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    }
}

/// A run that went on past a failure has as much to settle as one that stopped at it, step by step.
#[tokio::test(start_paused = true)]
async fn every_step_in_doubt_is_settled() {
    for world in World::both() {
        let executor = world.executor();
        let mut lenient = step("s1", "mail_send", json!({"script": "timeout, 200"}));
        lenient["on_error"] = json!("continue");
        let value =
            plan(100, vec![lenient, step("s2", "mail_send", json!({"script": "panic, 200"})), call("s3", "200")]);
        let first = begin(&executor, value.clone()).await;
        let result = ended(&executor, &first).await;
        assert_eq!(codes(&result), [("s1", "ERR_HTTP_TIMEOUT"), ("s2", "ERR_INTERNAL")]);
        // Neither effect is given free.
        let claims = contents(&*world.store).into_iter().filter(|(kind, ..)| kind == "aos.claim");
        let claims: Vec<_> = claims.map(|(_, _, bytes)| String::from_utf8(bytes).unwrap()).collect();
        assert!(claims.len() == 2 && claims.iter().all(|claim| claim.contains(r#""state":"claimed""#)), "{claims:?}");
        for (step_id, outcome) in [("s1", Outcome::Success), ("s2", Outcome::Failure)] {
            let refused = retry(&executor, &value, &first).await.unwrap_err();
            assert!(matches!(&refused, StartError::InDoubt { step_id: of, .. } if of == step_id), "{refused:?}");
            executor.settle(&first, step_id, outcome, "asked", "olga").await.unwrap();
        }
        let second = retry(&executor, &value, &first).await.unwrap();
        assert_eq!(codes(&second), [("s1", "OK_SKIP_DUPLICATE"), ("s2", "OK"), ("s3", "OK_HTTP_CALL")]);
        assert_eq!(world.stage.calls(), 4, "s1 once, s2 twice, s3");
    }
}

/// A run that is stopped while it waits to try again has made a call, too.
#[tokio::test]
async fn a_cancelled_wait_leaves_doubt() {
    let world = World::memory();
    let executor = world.executor();
    let mut waiting = step("s1", "mail_send", json!({"script": "503, 200"}));
    waiting["retry_policy"]["backoff_base_ms"] = json!(600_000);
    waiting["retry_policy"]["max_delay_ms"] = json!(600_000);
    let value = plan(100, vec![waiting]);
    let first = begin(&executor, value.clone()).await;
    let mut watch = executor.runs().watch(&first, 0).await.unwrap().unwrap();
    while !watch.next().await.unwrap().unwrap().iter().any(|entry| entry.body().kind() == "retry_scheduled") {}
    executor.cancel(&first, "olga", "enough").await.unwrap();
    let result = ended(&executor, &first).await;
    assert_eq!((result.status, codes(&result)), (Status::Cancelled, vec![("s1", "ERR_CANCELLED")]));
    assert_eq!(step_of(&result, "s1").outcome.details["effect"], "unknown");
    assert!(matches!(retry(&executor, &value, &first).await, Err(StartError::InDoubt { .. })));
    assert_eq!(world.stage.calls(), 1);
}
