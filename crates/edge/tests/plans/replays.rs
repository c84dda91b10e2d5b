//! Replay: progress, then the report of AOS-95.

use macp_wire::plan::v1::*;
use serde_json::json;

use crate::common::*;

fn full(run_id: &str, allow: &[&str]) -> ReplayRequest {
    let allow_step_ids = allow.iter().map(|step| (*step).to_owned()).collect();
    ReplayRequest { mode: ReplayMode::Full.into(), allow_step_ids, ..mock(run_id) }
}

#[tokio::test]
async fn a_mock_replay_matches_and_calls_nothing() {
    let world = World::start().await;
    world.target.script(&[503, 200]);
    let run_id = world.run_to_end(&["/a", "/b"]).await;
    let before = world.target.asked();
    let (progress, report) = world.try_replay(mock(&run_id)).await.expect("a report");
    assert_eq!(world.target.asked(), before);
    assert_eq!((progress[0].steps_done, progress[0].steps_total), (0, 2));
    assert_eq!(progress.last().expect("progress").steps_done, 2);
    assert_eq!((&report["verdict"], &report["replay_mode"]), (&json!("match"), &json!("mock_replay")));
    assert_eq!((&report["original_run_id"], &report["what_if"]), (&json!(run_id), &json!(false)));
    assert!(report["trace_id"].as_str().is_some_and(|id| id.len() == 32), "{report}");
    assert_eq!(report["behavior_digest"]["original"], report["behavior_digest"]["replay"]);
    for (aspect, matches) in report["behavior_match"].as_object().expect("aspects") {
        assert_eq!(matches, true, "{aspect}");
    }
    assert_eq!(report["replay_run_id"], json!(progress.last().expect("progress").replay_run_id));
    world.shut_down().await;
}

#[tokio::test]
async fn aos_100_what_if_is_never_a_match() {
    let world = World::start().await;
    world.target.script(&[503, 503, 503]);
    let run_id = world.run_to_end(&["/a"]).await;
    let request = ReplayRequest { what_if_taxonomy_version: "1.0.0".to_owned(), ..mock(&run_id) };
    let (_, report) = world.try_replay(request).await.expect("a report");
    assert_eq!(report["what_if"], true);
    assert_ne!(report["verdict"], "match");
    assert_eq!(report["substitutions"][0]["replay"], "1.0.0");

    let same = ReplayRequest { what_if_taxonomy_version: "1.1.0".to_owned(), ..mock(&run_id) };
    refused(world.try_replay(same).await, "INVALID_REQUEST");
    let card = ReplayRequest { what_if_rate_card_json: "{".to_owned(), ..mock(&run_id) };
    refused(world.try_replay(card).await, "INVALID_REQUEST");
    let card = ReplayRequest { what_if_rate_card_json: "{}".to_owned(), ..mock(&run_id) };
    refused(world.try_replay(card).await, "INVALID_REQUEST");
    let unknown = ReplayRequest { what_if_taxonomy_version: "7".to_owned(), ..mock(&run_id) };
    let status = refused(world.try_replay(unknown).await, "INVALID_REQUEST");
    assert!(status.message().contains("there are 1.0.0, 1.1.0"), "{status:?}");
    world.shut_down().await;
}

#[tokio::test]
async fn aos_92_a_full_replay_calls_again_and_says_what_the_world_changed() {
    let world = World::start().await;
    let run_id = world.run_to_end(&["/a", "/b"]).await;
    let (progress, report) = world.try_replay(full(&run_id, &[])).await.expect("a report");
    assert_eq!((&report["verdict"], &report["conformance"]), (&json!("match"), &json!(true)), "{report}");
    assert_eq!(world.target.asked(), ["/a", "/b", "/a", "/b"]);
    let replay_run_id = &progress[0].replay_run_id;
    assert_eq!(report["replay_run_id"], json!(replay_run_id));
    assert_eq!(progress.last().map(|last| (last.steps_done, last.steps_total)), Some((2, 2)));
    let (_, summary) = world.get_run(replay_run_id).await;
    assert_eq!((summary.mode.as_str(), &summary.original_run_id), ("full_replay", &run_id));

    world.target.script(&[503]);
    let (_, report) = world.try_replay(full(&run_id, &[])).await.expect("a report");
    assert_eq!((&report["verdict"], &report["conformance"]), (&json!("explained"), &json!(true)), "{report}");
    assert_eq!(report["behavior_match"]["retry_count"], false);
    refused(world.try_replay(full(replay_run_id, &[])).await, "RUN_CONFLICT");
    world.shut_down().await;
}

/// Asked for twice, such as by a caller who lost the first answer, it calls once.
#[tokio::test]
async fn the_same_request_is_the_same_replay() {
    let world = World::start().await;
    let run_id = world.run_to_end(&["/a"]).await;
    let request = ReplayRequest { request_id: "once".to_owned(), ..full(&run_id, &[]) };
    let (first, report) = world.try_replay(request.clone()).await.expect("a report");
    let (second, again) = world.try_replay(request.clone()).await.expect("the same report");
    assert_eq!(first[0].replay_run_id, second[0].replay_run_id);
    assert_eq!((&report["verdict"], &again["verdict"]), (&json!("match"), &json!("match")));
    assert_eq!(world.target.asked(), ["/a", "/a"]);

    let other = ReplayRequest { allow_step_ids: vec!["s1".to_owned()], ..request.clone() };
    refused(world.try_replay(other).await, "REQUEST_REUSED");
    let long = ReplayRequest { request_id: "x".repeat(10_000), ..request };
    refused(world.try_replay(long).await, "INVALID_REQUEST");
    world.shut_down().await;
}

#[tokio::test]
async fn aos_89_what_nothing_recognises_as_a_repetition_is_named_first() {
    let world = World::start().await;
    let mut step = world.step("s1", "/a");
    step["parameters"]["method"] = json!("POST");
    step.as_object_mut().expect("an object").remove("retry_policy");
    let run_id = world.run(world.freeze(&authored(vec![step])).await).await;
    world.finished(&run_id).await;
    let status = refused(world.try_replay(full(&run_id, &[])).await, "PLAN_REFUSED");
    assert!(status.message().contains("s1"), "{status:?}");
    assert_eq!(world.target.asked().len(), 1);
    world.try_replay(full(&run_id, &["s1"])).await.expect("a report");
    assert_eq!(world.target.asked().len(), 2);
    world.shut_down().await;
}

#[tokio::test]
async fn what_does_not_go_together_is_refused() {
    let world = World::start().await;
    let run_id = world.run(world.plan(&["/gate"]).await).await;
    world.target.wait_for(1).await;
    refused(world.try_replay(mock(&run_id)).await, "RUN_CONFLICT");
    refused(world.try_replay(full(&run_id, &[])).await, "RUN_CONFLICT");
    world.target.open_gate();
    world.finished(&run_id).await;
    let allow_step_ids = vec!["s1".to_owned()];
    for request in [
        ReplayRequest { mode: 0, ..mock(&run_id) },
        ReplayRequest { mode: 77, ..mock(&run_id) },
        ReplayRequest { allow_step_ids, ..mock(&run_id) },
        ReplayRequest { what_if_taxonomy_version: "1.0.0".to_owned(), ..full(&run_id, &[]) },
        full(&run_id, &["nowhere"]),
    ] {
        refused(world.try_replay(request).await, "INVALID_REQUEST");
    }
    world.shut_down().await;
}
