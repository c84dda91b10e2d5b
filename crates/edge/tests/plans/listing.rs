//! ListRuns: newest first, page by page, filtered.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use macp_wire::plan::v1::*;

use crate::common::*;
use crate::rights::{end, freeze_for, guarded, start, token};

async fn list(world: &World, request: ListRunsRequest) -> Result<ListRunsResponse, tonic::Status> {
    Ok(world.plans.clone().list_runs(request).await?.into_inner())
}

fn ids(page: &ListRunsResponse) -> Vec<String> {
    page.runs.iter().map(|run| run.run_id.clone()).collect()
}

#[tokio::test]
async fn runs_are_paged_newest_first() {
    let world = World::start().await;
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(world.run_to_end(&["/a"]).await);
    }
    started.reverse();
    let (mut seen, mut page_token) = (Vec::new(), String::new());
    loop {
        let page =
            list(&world, ListRunsRequest { page_size: 2, page_token, ..Default::default() }).await.expect("a page");
        assert!(page.runs.len() <= 2);
        seen.extend(ids(&page));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    seen.sort();
    started.sort();
    assert_eq!(seen, started, "each is shown once");
    for (request, code) in [
        (ListRunsRequest { page_size: -1, ..Default::default() }, "INVALID_REQUEST"),
        (ListRunsRequest { page_token: "§".to_owned(), ..Default::default() }, "INVALID_REQUEST"),
        (ListRunsRequest { page_token: "A".repeat(100_000), ..Default::default() }, "INVALID_REQUEST"),
        (ListRunsRequest { status: 99, ..Default::default() }, "INVALID_REQUEST"),
    ] {
        refused(list(&world, request).await, code);
    }
    let all = list(&world, ListRunsRequest { page_size: i32::MAX, ..Default::default() }).await.expect("a page");
    assert_eq!(all.runs.len(), 5);
    world.shut_down().await;
}

#[tokio::test]
async fn runs_are_found_by_what_they_are() {
    let world = World::start().await;
    let good = world.run_to_end(&["/a"]).await;
    world.target.script(&[400]);
    let bad = world.run_to_end(&["/b"]).await;
    let retried = world.try_start(retry_of(&bad)).await.expect("a run").run_id;
    world.finished(&retried).await;
    for (request, expected) in [
        (ListRunsRequest { status: RunStatus::Failed.into(), ..Default::default() }, vec![&bad]),
        (ListRunsRequest { final_code: "ERR_HTTP_400".to_owned(), ..Default::default() }, vec![&bad]),
        (ListRunsRequest { of_run_id: bad.clone(), ..Default::default() }, vec![&retried]),
        (ListRunsRequest { status: RunStatus::Succeeded.into(), ..Default::default() }, vec![&good, &retried]),
        (ListRunsRequest { plan_id: "p-1".to_owned(), ..Default::default() }, vec![&good, &bad, &retried]),
        (ListRunsRequest { agent_id: "agent-1".to_owned(), ..Default::default() }, vec![&good, &bad, &retried]),
        (ListRunsRequest { status: RunStatus::Running.into(), ..Default::default() }, vec![]),
        (ListRunsRequest { session_id: "none".to_owned(), ..Default::default() }, vec![]),
    ] {
        let mut found = ids(&list(&world, request.clone()).await.expect("a page"));
        let mut expected: Vec<String> = expected.into_iter().cloned().collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{request:?}");
    }
    world.shut_down().await;
}

/// A page that ends among runs of others has a token that does not name them.
#[tokio::test]
async fn a_page_token_tells_nothing_of_what_others_started() {
    let world = guarded().await;
    let mut of = Vec::new();
    for sender in ["bob", "alice", "bob"] {
        let run_id = start(&world, sender, of_plan(freeze_for(&world, sender, &["/a"]).await)).await.expect("a run");
        end(&world, sender, &run_id).await;
        of.push((sender, run_id));
    }
    let (mut seen, mut page_token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let request = ListRunsRequest { page_size: 1, page_token, ..Default::default() };
        let page = world.plans.clone().list_runs(as_caller(&token("alice"), request)).await.expect("a page");
        let page = page.into_inner();
        pages += 1;
        seen.extend(ids(&page));
        page_token = page.next_page_token;
        let inside = URL_SAFE_NO_PAD.decode(&page_token).expect("base64");
        let inside = String::from_utf8_lossy(&inside);
        assert!(of.iter().all(|(sender, run_id)| *sender == "alice" || !inside.contains(run_id)), "{inside}");
        if page_token.is_empty() {
            break;
        }
        let foreign = ListRunsRequest { page_size: 1, page_token: page_token.clone(), ..Default::default() };
        let is_sealed = !inside.starts_with("v1:");
        let by_bob = world.plans.clone().list_runs(as_caller(&token("bob"), foreign)).await;
        assert_eq!(by_bob.is_err(), is_sealed, "a sealed token is for one caller");
    }
    assert_eq!((seen, pages), (vec![of[1].1.clone()], 3));
    world.shut_down().await;
}
