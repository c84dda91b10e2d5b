//! Lists: newest first, page by page, filtered.

use macp_ledger::{Append, IndexUpdate};
use macp_plan::store::{Page, Query, RunStore, Status, StoreError};
use macp_plan_core::journal::{RunMode, RunStatus};

use crate::sample::{self, create, create_with, run_finished, run_id};

async fn page(store: &RunStore, query: &Query, after: Option<String>, limit: usize) -> Page {
    store.list(query.clone(), after, limit).await.unwrap()
}

/// Ids of all runs the query admits, read in pages of a size.
async fn all(store: &RunStore, query: &Query, limit: usize) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = page(store, query, after, limit).await;
        assert!(page.runs.len() <= limit);
        ids.extend(page.runs.into_iter().map(|run| run.run_id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

#[tokio::test]
async fn the_newest_run_comes_first_whatever_the_page_size() {
    let store = sample::memory();
    assert_eq!(page(&store, &Query::default(), None, 5).await, Page { runs: Vec::new(), next: None });
    let mut expected = Vec::new();
    // Not in the order of their times.
    for second in (0..30).map(|number| number * 7 % 30) {
        let id = run_id(second);
        create(&store, &id).await;
        expected.push((std::cmp::Reverse(second), id));
    }
    expected.sort();
    let expected: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();
    for limit in [1, 7, 15, 29, 30, 31, 1_000] {
        assert_eq!(all(&store, &Query::default(), limit).await, expected, "pages of {limit}");
    }
    let whole = page(&store, &Query::default(), None, 30).await;
    assert_eq!(whole.next, None, "a page that ends the list says so");
    assert!(whole.runs.windows(2).all(|pair| pair[0].started_at_ms > pair[1].started_at_ms));
}

#[tokio::test]
async fn filters_admit_what_they_say() {
    let store = sample::memory();
    let ids: Vec<String> = (0..6).map(run_id).collect();
    let mut journals = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let original = ids[0].clone();
        let journal = create_with(&store, id, |start| {
            start.session = (number % 2 == 0).then(|| sample::session("sess"));
            match number {
                3 => (start.mode, start.original_run_id) = (RunMode::MockReplay, Some(original)),
                4 => start.parent_run_id = Some(original),
                5 => start.plan_id = "p2".to_owned(),
                _ => {}
            }
        });
        journals.push(journal.await);
    }
    journals[0].append(vec![run_finished(RunStatus::Failed)]).await.unwrap();
    journals[1].append(vec![run_finished(RunStatus::Succeeded)]).await.unwrap();
    let check = async |query: Query, expected: &[usize]| {
        let expected: Vec<String> = expected.iter().map(|&number| ids[number].clone()).collect();
        for limit in [1, 2, 100] {
            assert_eq!(all(&store, &query, limit).await, expected, "{query:?} in pages of {limit}");
        }
    };
    let text = |text: &str| Some(text.to_owned());
    check(Query::default(), &[5, 4, 3, 2, 1, 0]).await;
    check(Query { session_id: text("sess"), ..Query::default() }, &[4, 2, 0]).await;
    check(Query { plan_id: text("p2"), ..Query::default() }, &[5]).await;
    check(Query { agent_id: text("nobody"), ..Query::default() }, &[]).await;
    check(Query { status: Some(Status::Running), ..Query::default() }, &[5, 4, 3, 2]).await;
    check(Query { status: Some(Status::Failed), ..Query::default() }, &[0]).await;
    check(Query { final_code: text("OK"), ..Query::default() }, &[1]).await;
    check(Query { mode: Some(RunMode::MockReplay), ..Query::default() }, &[3]).await;
    check(Query { of_run_id: text(&ids[0]), ..Query::default() }, &[4, 3]).await;
    let both = Query { session_id: text("sess"), status: Some(Status::Running), ..Query::default() };
    check(both, &[4, 2]).await;
}

#[tokio::test]
async fn a_filter_nothing_passes_gives_short_pages_instead_of_a_long_wait() {
    let store = sample::memory();
    for second in 0..5_000 {
        create(&store, &run_id(second)).await;
    }
    let nobody = Query { agent_id: Some("nobody".to_owned()), ..Query::default() };
    let first = page(&store, &nobody, None, 1_000).await;
    assert!(first.runs.is_empty());
    let second = page(&store, &nobody, first.next.clone(), 1_000).await;
    assert!(first.next.is_some() && second.next.is_none(), "{first:?} {second:?}");
}

/// The damaged run is in no page, and its id leads on from one like any other's.
#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let store = sample::memory();
    let ids: Vec<String> = (0..4).map(run_id).collect();
    for number in [0, 2, 3] {
        create(&store, &ids[number]).await;
    }
    let records = store.ledger().read(&ids[0], 0, 1, usize::MAX).unwrap();
    let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 0, summary: Some("{".into()) };
    let (session_id, expected_sequence, expected_hash) = (ids[1].as_str().into(), 0, None);
    let damaged = Append { session_id, expected_sequence, expected_hash, records, index };
    assert!(store.ledger().append(&[damaged]).into_iter().all(|result| result.is_ok()));
    let expected = [3, 2, 0].map(|number| ids[number].clone());
    for query in [Query::default(), Query { status: Some(Status::Running), ..Query::default() }] {
        for limit in [1, 2, 3, 100] {
            assert_eq!(all(&store, &query, limit).await, expected, "{query:?} in pages of {limit}");
        }
    }
    assert!(matches!(store.summary(&ids[1]).await, Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn unfinished_runs_are_found_page_by_page() {
    let store = sample::memory();
    for second in 0..10 {
        let mut journal = create(&store, &run_id(second)).await;
        if second % 2 == 0 {
            journal.append(vec![run_finished(RunStatus::Succeeded)]).await.unwrap();
        }
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.open_runs(after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.to_string());
        found.extend(page);
    }
    assert_eq!(found.len(), 5);
    for id in found {
        assert_eq!(store.summary(&id).await.unwrap().unwrap().status, Status::Running);
    }
}
