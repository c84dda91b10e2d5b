//! ListSessions with standard sessions, and calls whose requests are wrong in other ways than an envelope.

use macp_wire::v1::*;
use tonic::Code;

use crate::common::*;
use crate::standard_common::*;

async fn list(edge: &Edge, page_size: i32, page_token: &str) -> Result<ListSessionsResponse, tonic::Status> {
    let request = ListSessionsRequest { page_size, page_token: page_token.into() };
    body(edge.runtime.clone().list_sessions(authorized("alice", request)).await)
}

#[tokio::test]
async fn std_rpc_11_pages_follow_each_other_by_the_bytes_of_the_ids() {
    let edge = Edge::start().await;
    let mut ids: Vec<String> = (0..230).map(sid).collect();
    ids.push("Zzzzzzzzzzzzzzzzzzzzzz".into());
    ids.push("_underscores-come-late".into());
    for id in ids.iter().rev() {
        edge.decide(id).await;
    }
    edge.suspend_as("alice", &ids[1]).await.expect("suspended");
    edge.cancel_as("alice", &ids[2]).await.expect("cancelled");
    ids.sort_unstable();

    let (mut found, mut sizes, mut token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = list(&edge, 0, &token).await.expect("a page");
        sizes.push(page.sessions.len());
        found.extend(page.sessions);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(sizes, [100, 100, 32], "0 is the default of 100");
    assert_eq!(found.iter().map(|session| &session.session_id).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    let state = |id: &str| found.iter().find(|session| session.session_id == id).expect("listed").state;
    assert_eq!((state(&sid(0)), state(&sid(1)), state(&sid(2))), (OPEN, SUSPENDED, CANCELLED));
    let listed = found.iter().find(|session| session.session_id == sid(5)).expect("listed");
    let read = edge.session_as("alice", &sid(5)).await.expect("a session");
    assert_eq!(
        (&listed.mode, &listed.initiator, &listed.policy_version),
        (&read.mode, &read.initiator, &read.policy_version)
    );
    assert_eq!((listed.participants.clone(), listed.expires_at_unix_ms), (read.participants, read.expires_at_unix_ms));

    // A page that ends where the list ends says so, and a cursor need not name a session.
    let page = list(&edge, 231, "").await.expect("a page");
    assert_eq!((page.sessions.len(), page.next_page_token.is_empty()), (231, false));
    assert_eq!(list(&edge, 10, &page.next_page_token).await.expect("a page").sessions.len(), 1);
    let page = list(&edge, 232, "").await.expect("a page");
    assert_eq!((page.sessions.len(), page.next_page_token.as_str()), (232, ""));
    assert_eq!(list(&edge, i32::MAX, "").await.expect("a page").sessions.len(), 232);
    // "v1:zzz" and "v1:4": behind all of them, and behind those that begin with a 3.
    assert!(list(&edge, 10, "djE6enp6").await.expect("a page").sessions.is_empty());
    assert_eq!(list(&edge, 10, "djE6NA").await.expect("a page").sessions.len(), 2);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_11_other_tokens_and_sizes_are_refused() {
    let edge = Edge::start().await;
    let over_long = "A".repeat(2000);
    for (size, token) in [(-1, ""), (i32::MIN, ""), (1, "?"), (1, "djE"), (1, "djI6Yg"), (1, "djE6_w"), (1, &over_long)]
    {
        refused(list(&edge, size, token).await, Code::InvalidArgument, "INVALID_REQUEST");
    }
    let request = ill_authorized(ListSessionsRequest::default());
    refused(edge.runtime.clone().list_sessions(request).await, Code::Unauthenticated, "UNAUTHENTICATED");
    edge.shut_down().await;
}

#[tokio::test]
async fn requests_that_lack_their_message_are_invalid() {
    let edge = Edge::start().await;
    edge.resolve(&sid(1)).await;
    let mut client = edge.runtime.clone();
    let answer = client.register_ext_mode(authorized("alice", RegisterExtModeRequest::default())).await;
    refused(answer, Code::InvalidArgument, "INVALID_REQUEST");
    let answer = client.register_policy(authorized("alice", RegisterPolicyRequest::default())).await;
    refused(answer, Code::InvalidArgument, "INVALID_REQUEST");
    let request = WhatIfReplayRequest { session_id: sid(1), candidate: None };
    let answer = client.what_if_replay(authorized("alice", request)).await;
    refused(answer, Code::InvalidArgument, "INVALID_REQUEST");
    edge.shut_down().await;
}
