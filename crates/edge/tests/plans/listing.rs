//! ListRuns: newest first, page by page, filtered.

use macp_wire::plan::v1::*;

use crate::common::*;

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
