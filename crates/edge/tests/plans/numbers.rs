//! /metrics: exactly the names of AOS-97, and no label that could grow without bounds.

use std::collections::BTreeSet;
use std::path::Path;

use macp_wire::plan::v1::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::*;

pub(crate) async fn scrape(world: &World) -> String {
    let address = world.server.local_addr();
    let mut connection = TcpStream::connect(address).await.expect("the server listens");
    let accept = "application/openmetrics-text";
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.expect("written");
    let mut response = String::new();
    connection.read_to_string(&mut response).await.expect("read");
    response
}

#[tokio::test]
async fn aos_97_runs_steps_and_replays_are_counted() {
    let world = World::start().await;
    let before = scrape(&world).await;
    for line in ["aos_runs_total{status=\"succeeded\"} 0", "aos_replay_behavior_match_total{aspect=\"error_code\"} 0"] {
        assert!(before.lines().any(|found| found == line), "{line} is not in:\n{before}");
    }
    world.target.script(&[503, 200]);
    let run_id = world.run_to_end(&["/a", "/b"]).await;
    world.target.script(&[400]);
    world.run_to_end(&["/c"]).await;
    world.try_replay(mock(&run_id)).await.expect("a report");
    world.target.script(&[503, 200, 200]);
    let full = ReplayRequest { mode: ReplayMode::Full.into(), request_id: "counted once".to_owned(), ..mock(&run_id) };
    world.try_replay(full.clone()).await.expect("a report");
    world.try_replay(full).await.expect("the same report");
    // Differs on purpose, and counts for no aspect.
    let what_if = ReplayRequest { what_if_taxonomy_version: "1.0.0".to_owned(), ..mock(&run_id) };
    world.try_replay(what_if).await.expect("a report");
    let text = scrape(&world).await;
    for line in [
        "aos_runs_total{status=\"succeeded\"} 1",
        "aos_runs_total{status=\"failed\"} 1",
        "aos_steps_total{skill_id=\"http_call\",code=\"OK_HTTP_CALL\"} 2",
        "aos_steps_total{skill_id=\"http_call\",code=\"ERR_HTTP_400\"} 1",
        "aos_step_retries_total{skill_id=\"http_call\",code=\"ERR_HTTP_503\"} 1",
        "aos_cost_microcents_total{skill_id=\"http_call\"} 0",
        "aos_replay_total{mode=\"mock_replay\",verdict=\"match\"} 1",
        "aos_replay_total{mode=\"full_replay\",verdict=\"match\"} 1",
        "aos_replay_behavior_match_total{aspect=\"error_code\"} 2",
        "aos_replay_behavior_match_total{aspect=\"retry_count\"} 2",
        "aos_replay_behavior_mismatch_total{aspect=\"retry_count\"} 0",
        "aos_idempotency_total{result=\"conflict\"} 0",
        "aos_pin_violation_total{kind=\"skill_missing\"} 0",
        "aos_determinism_violation_total{kind=\"conformance\"} 0",
        "aos_budget_stops_total{breach=\"per_step\"} 0",
        "macp_request_duration_seconds_count{rpc=\"StartRun\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    assert!(text.contains("\naos_journal_append_seconds_count "), "{text}");
    let own: Vec<&str> = text.lines().filter(|line| line.starts_with("aos_")).collect();
    assert!(!own.iter().any(|line| line.contains(&run_id) || line.contains("p-1") || line.contains("agent-1")));
    assert_eq!(listed(), served(&text), "docs/OPERATIONS.md lists every metric, with its help");
    world.shut_down().await;
}

/// Names and helps of the metrics of plans, as a scrape gives them.
fn served(text: &str) -> BTreeSet<(String, String)> {
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let own = helps.filter(|(name, _)| name.starts_with("aos_"));
    own.map(|(name, help)| (name.to_owned(), help.trim_end_matches('.').to_owned())).collect()
}

/// The same as the guide for operators gives them.
fn listed() -> BTreeSet<(String, String)> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATIONS.md");
    let guide = std::fs::read_to_string(guide).expect("readable");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| aos_")?.strip_suffix(" |")?.split_once(" | "));
    rows.map(|(name, help)| (format!("aos_{name}"), help.to_owned())).collect()
}

#[tokio::test]
async fn a_budget_stop_is_counted_by_its_breach() {
    let world = World::with(|settings| {
        let plans = settings.plans.as_mut().expect("plans are executed");
        let card = r#"{"id":"dear","skills":{"http_call@1.2.0":{"base":9000000}}}"#;
        plans.skills.rate_cards = vec![serde_json::from_str(card).expect("JSON")];
    })
    .await;
    let mut plan = world.authored(&["/a"]);
    plan["pins"] = serde_json::json!({"rate_card": {"id": "dear"}});
    let run_id = world.run(world.freeze(&plan).await).await;
    world.finished(&run_id).await;
    assert_eq!(world.get(&run_id).await["status"], "budget_exceeded");
    let text = scrape(&world).await;
    for line in ["aos_budget_stops_total{breach=\"budget\"} 1", "aos_runs_total{status=\"budget_exceeded\"} 1"] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    world.shut_down().await;
}

/// Whoever asked for a replay may leave before it has ended; it counts all the same, and once.
#[tokio::test]
async fn a_replay_counts_whoever_waits_for_it() {
    let world = World::start().await;
    let run_id = world.run_to_end(&["/a", "/b"]).await;
    let request = ReplayRequest { mode: ReplayMode::Full.into(), request_id: "left".to_owned(), ..mock(&run_id) };
    drop(world.plans.clone().replay(request.clone()).await.expect("a stream"));
    world.try_replay(request).await.expect("the report");
    let counted = "aos_replay_total{mode=\"full_replay\",verdict=\"match\"} 1";
    let waited = tokio::time::timeout(PATIENCE, async {
        while !scrape(&world).await.lines().any(|line| line == counted) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("it is counted");
    world.shut_down().await;
}
