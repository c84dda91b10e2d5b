//! StartRun, WatchRun, GetRun, CancelRun: the life of a run as a client sees it.

use std::time::Duration;

use macp_wire::plan::v1::*;
use serde_json::json;
use tonic::Code;

use crate::common::*;

#[tokio::test]
async fn a_plan_runs_and_its_journal_is_a_chain() {
    let world = World::start().await;
    world.target.script(&[503, 200]);
    let run_id = world.run(world.plan(&["/a", "/b"]).await).await;
    let entries = world.finished(&run_id).await;
    assert_eq!(world.target.asked(), ["/a", "/a", "/b"]);

    // AOS-30: the hashes of what was streamed can be checked by whoever reads it.
    let mut previous: Option<String> = None;
    for (entry, seq) in entries.iter().zip(0..) {
        assert_eq!(entry.seq, seq);
        assert_eq!(entry.hash, macp_plan_core::journal::link(previous.as_deref(), entry.entry_json.as_bytes()));
        previous = Some(entry.hash.clone());
    }
    let kinds = kinds(&entries);
    assert_eq!(
        (kinds.first().map(String::as_str), kinds.last().map(String::as_str)),
        (Some("run_started"), Some("run_finished"))
    );
    assert_eq!(kinds.iter().filter(|kind| *kind == "retry_scheduled").count(), 1);

    let (result, summary) = world.get_run(&run_id).await;
    assert_eq!((&result["status"], &result["final_code"]), (&json!("succeeded"), &json!("OK_HTTP_CALL")));
    assert_eq!((&result["retry_count"], &result["journal_head"]), (&json!(1), &json!(previous)));
    assert_eq!(result["steps"][0]["outcome"]["observability"]["backend_retries"], 1);
    assert_eq!(summary.status(), RunStatus::Succeeded);
    assert_eq!((summary.steps_done, summary.steps_total, summary.retry_count, summary.epoch), (2, 2, 1, 1));
    assert!(summary.finished_unix_ms >= summary.started_unix_ms && summary.started_unix_ms > 0);
    world.shut_down().await;
}

#[tokio::test]
async fn a_watch_goes_on_where_it_is_told_and_ends_with_the_run() {
    let world = World::start().await;
    let run_id = world.run(world.plan(&["/gate", "/b"]).await).await;
    world.target.wait_for(1).await;
    let request = WatchRunRequest { run_id: run_id.clone(), from_seq: 2 };
    let mut stream = world.plans.clone().watch_run(request).await.expect("a watch").into_inner();
    let first = next(&mut stream).await.expect("entries").expect("no status").entries;
    assert_eq!(first[0].seq, 2);
    assert_eq!(world.get(&run_id).await["status"], "running");

    world.target.open_gate();
    let mut seen = first;
    while let Some(message) = next(&mut stream).await {
        seen.extend(message.expect("entries").entries);
    }
    let whole = world.finished(&run_id).await;
    assert_eq!(seen, whole[2..]);
    let last = whole.last().expect("entries").seq;
    assert_eq!(world.watched(&run_id, last).await, whole[whole.len() - 1..]);
    assert_eq!(world.watched(&run_id, last + 1).await, []);
    assert_eq!(world.watched(&run_id, u64::MAX).await, []);
    world.shut_down().await;
}

#[tokio::test]
async fn the_same_request_is_the_same_run() {
    let world = World::start().await;
    let plan_json = world.plan(&["/a"]).await;
    let request = StartRunRequest { request_id: "once".to_owned(), ..of_plan(plan_json) };
    let first = world.try_start(request.clone()).await.expect("a run");
    let second = world.try_start(request).await.expect("the same run");
    assert_eq!((first.existing, second.existing, &first.run_id), (false, true, &second.run_id));
    world.finished(&first.run_id).await;
    assert_eq!(world.target.asked(), ["/a"]);

    let other = StartRunRequest { request_id: "once".to_owned(), ..of_plan(world.plan(&["/b"]).await) };
    let status = refused(world.try_start(other).await, "REQUEST_REUSED");
    assert_eq!(status.code(), Code::AlreadyExists);
    world.shut_down().await;
}

#[tokio::test]
async fn only_what_is_frozen_runs() {
    let world = World::start().await;
    let status = refused(world.try_start(of_plan(world.authored(&["/a"]).to_string())).await, "PLAN_INVALID");
    assert!(status.message().contains("freeze it first"), "{status:?}");
    assert!(world.target.asked().is_empty());

    // AOS-99: what cannot run here becomes a run that says why.
    let mut altered = parse(&world.plan(&["/a"]).await);
    altered["steps"][0]["skill_version"] = json!("9.9.9");
    let run_id = world.run(altered.to_string()).await;
    world.finished(&run_id).await;
    let (result, summary) = world.get_run(&run_id).await;
    assert_eq!((summary.status(), summary.final_code.as_str()), (RunStatus::Rejected, "ERR_SKILL_NOT_FOUND"));
    assert!(!result["findings"].as_array().expect("findings").is_empty());
    let why = QueryRequest { run_id, question: Question::WhyStopped.into(), as_of_seq: None };
    let why = parse(&world.plans.clone().query(why).await.expect("an answer").into_inner().answer_json);
    assert_eq!((&why["reason"], &why["findings"]), (&json!("preflight"), &result["findings"]), "{why:#}");
    world.shut_down().await;
}

#[tokio::test]
async fn a_run_is_cancelled_at_the_next_boundary() {
    let world = World::start().await;
    let run_id = world.run(world.plan(&["/gate", "/b"]).await).await;
    world.target.wait_for(1).await;
    let cancel = |reason: &str| CancelRunRequest { run_id: run_id.clone(), reason: reason.to_owned() };
    world.plans.clone().cancel_run(cancel("enough")).await.expect("taken");
    world.target.open_gate();
    world.finished(&run_id).await;
    let (result, summary) = world.get_run(&run_id).await;
    assert_eq!(summary.status(), RunStatus::Cancelled);
    assert_eq!(result["cancelled"]["reason"], "enough");
    assert_eq!(world.target.asked(), ["/gate"], "the call that was out was not repeated, and no other was made");
    refused(world.plans.clone().cancel_run(cancel("again")).await, "RUN_CONFLICT");
    world.shut_down().await;
}

#[tokio::test]
async fn a_retry_takes_over_what_is_done() {
    let world = World::start().await;
    world.target.script(&[200, 400]);
    let run_id = world.run(world.plan(&["/a", "/b"]).await).await;
    world.finished(&run_id).await;
    assert_eq!(world.get(&run_id).await["final_code"], "ERR_HTTP_400");

    let retry = StartRunRequest { request_id: "again".to_owned(), ..retry_of(&run_id) };
    let started = world.try_start(retry.clone()).await.expect("a run");
    world.finished(&started.run_id).await;
    let (result, summary) = world.get_run(&started.run_id).await;
    assert_eq!((summary.status(), summary.parent_run_id.as_str()), (RunStatus::Succeeded, run_id.as_str()));
    assert_eq!(result["steps"][0]["final_code"], "OK_SKIP_DUPLICATE");
    assert_eq!(world.target.asked(), ["/a", "/b", "/b"]);
    assert!(world.try_start(retry).await.expect("the same run").existing);

    refused(world.try_start(retry_of(&started.run_id)).await, "RUN_CONFLICT");
    let whole = StartRunRequest { from_step_id: "s1".to_owned(), ..retry_of(&started.run_id) };
    let again = world.try_start(whole).await.expect("a run");
    world.finished(&again.run_id).await;
    let unknown = StartRunRequest { from_step_id: "s9".repeat(4_000), ..retry_of(&run_id) };
    refused(world.try_start(unknown).await, "INVALID_REQUEST");
    world.shut_down().await;
}

#[tokio::test]
async fn a_deadline_ends_a_run() {
    let world = World::start().await;
    let request = StartRunRequest { deadline_ms: 1, ..of_plan(world.plan(&["/gate", "/b"]).await) };
    let run_id = world.try_start(request).await.expect("a run").run_id;
    // The time runs before the first call goes out, and the call is answered when the time is up; or it is up before.
    tokio::select! {
        () = world.target.wait_for(1) => tokio::time::sleep(Duration::from_millis(2)).await,
        _ = world.finished(&run_id) => {}
    }
    world.target.open_gate();
    let kinds = kinds(&world.finished(&run_id).await);
    assert!(kinds.iter().any(|kind| kind == "deadline_reached"), "{kinds:?}");
    assert!(!world.target.asked().iter().any(|path| path == "/b"));
    world.shut_down().await;
}

#[tokio::test]
async fn questions_are_answered_as_of_an_entry() {
    let world = World::start().await;
    world.target.script(&[503, 200, 400]);
    let run_id = world.run(world.plan(&["/a", "/b", "/c"]).await).await;
    let entries = world.finished(&run_id).await;
    let ask = async |question: Question, as_of_seq: Option<u64>| {
        let request = QueryRequest { run_id: run_id.clone(), question: question.into(), as_of_seq };
        let answer = world.plans.clone().query(request).await.map(tonic::Response::into_inner);
        answer.map(|answer| (parse(&answer.answer_json), answer.as_of_seq))
    };
    let last = entries.last().expect("entries").seq;
    let (why, as_of) = ask(Question::WhyStopped, None).await.expect("an answer");
    assert_eq!(as_of, last);
    assert_eq!(
        (&why["reason"], &why["step_id"], &why["code"]),
        (&json!("step_failed"), &json!("s2"), &json!("ERR_HTTP_400"))
    );
    assert_eq!(why["not_reached"], json!(["s3"]));
    assert!(why["meaning"].is_string() && why["what_to_do"].is_string());

    // As of the start of the second step, its failure had not happened.
    let second = entries.iter().map(|entry| parse(&entry.entry_json));
    let second = second.into_iter().find(|entry| entry["type"] == "step_started" && entry["step_id"] == "s2");
    let second = second.expect("s2 started")["seq"].as_u64().expect("a number");
    assert_eq!(ask(Question::WhyStopped, Some(second)).await.expect("an answer").0, json!({"stopped": false}));
    let (outcome, _) = ask(Question::LastOutcome, Some(second)).await.expect("an answer");
    assert_eq!((&outcome["step_id"], &outcome["backend_retries"]), (&json!("s1"), &json!(1)));
    assert_eq!(ask(Question::LastOutcome, Some(0)).await.expect("an answer").0, json!(null));
    let (tried, _) = ask(Question::TriedSoFar, Some(second)).await.expect("an answer");
    let codes: Vec<_> =
        tried["steps"][0]["attempts"].as_array().expect("attempts").iter().map(|one| &one["code"]).collect();
    assert_eq!(codes, ["ERR_HTTP_503", "OK_HTTP_CALL"]);
    assert_eq!(tried["steps"][1]["attempts"], json!([]));
    let (skills, _) = ask(Question::AllowedSkills, None).await.expect("an answer");
    assert_eq!(skills, json!({"allowed_skills": ["http_call"], "used": ["http_call@1.2.0"]}));
    for as_of_seq in [Some(0), Some(second), None] {
        let (budget, _) = ask(Question::RemainingBudget, as_of_seq).await.expect("an answer");
        assert_eq!((&budget["spent_microcents"], &budget["remaining_microcents"]), (&json!(0), &json!(5_000_000)));
        assert_eq!(ask(Question::RemainingBudget, as_of_seq).await.expect("an answer").0, budget, "and so every time");
    }
    refused(ask(Question::WhyStopped, Some(last + 1)).await, "INVALID_REQUEST");
    refused(ask(Question::Unspecified, None).await, "INVALID_REQUEST");
    world.shut_down().await;
}

/// Whoever waits for the summary to say that a run has ended finds that the result says so too.
#[tokio::test]
async fn a_run_is_told_as_it_stands_while_it_ends() {
    let world = World::start().await;
    for _ in 0..20 {
        let run_id = world.run(world.plan(&["/a"]).await).await;
        loop {
            let (result, summary) = world.get_run(&run_id).await;
            assert_eq!(result["status"] == "running", summary.status() == RunStatus::Running, "{result} {summary:?}");
            if summary.status() != RunStatus::Running {
                break;
            }
        }
    }
    world.shut_down().await;
}
