//! Listing for those who may see few of many sessions.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use macp_ledger::{Append, IndexUpdate, MemoryStore, Store, record};
use macp_wire::history::v1::Entry;
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Status};

use crate::common::*;
use crate::security_common::*;
use crate::standard_common::*;

/// More than one call looks at.
const OTHERS: usize = 20_000;

/// A store in which a sender has the last session and someone else all before it.
fn crowded(sender: &str) -> MemoryStore {
    let store = MemoryStore::new();
    let session = |session_id: String, initiator: &str| {
        let summary = SessionMetadata { initiator: initiator.into(), ..Default::default() }.encode_to_vec();
        Append {
            session_id: session_id.into(),
            expected_sequence: 0,
            expected_hash: None,
            records: vec![record::seal(None, &Entry { sequence: 1, ..Entry::default() })],
            index: IndexUpdate { open: false, deadline_ms: 0, state: RESOLVED, summary: Some(summary.into()) },
        }
    };
    let mut sessions: Vec<_> = (0..OTHERS).map(|number| session(format!("secret-{number:05}"), "somebody")).collect();
    sessions.push(session("shared".into(), sender));
    assert!(store.append(&sessions).iter().all(Result::is_ok));
    store
}

async fn page(edge: &Edge, identity: &str, page_token: String) -> Result<ListSessionsResponse, Status> {
    let request = authorized(identity, ListSessionsRequest { page_size: 0, page_token });
    body(edge.runtime.clone().list_sessions(request).await)
}

#[tokio::test]
async fn std_rpc_11_a_call_looks_at_so_many_sessions_and_its_token_leads_on_without_telling_of_others() {
    let edge = Edge::on(Arc::new(crowded("alice")), |settings| settings.auth = settled(team())).await;
    let (alice, bob) = (token_of("alice"), token_of("bob"));
    let (mut listed, mut tokens, mut token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = page(&edge, &alice, token).await.expect("a page");
        listed.extend(page.sessions.into_iter().map(|session| session.session_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
        tokens.push(token.clone());
    }
    assert_eq!(listed, ["shared"]);
    assert_eq!(tokens.len(), 2, "each call looked at a part");
    for token in tokens {
        let inside = URL_SAFE_NO_PAD.decode(&token).expect("base64");
        assert!(!inside.windows(6).any(|part| part == b"secret"), "the token tells of a session of others");
        refused(page(&edge, &bob, token).await, Code::InvalidArgument, "INVALID_REQUEST");
    }
    let all = page(&edge, &token_of("olga"), String::new()).await.expect("a page");
    assert_eq!(all.sessions.len(), 100, "an observer sees them all");
    edge.shut_down().await;
}
