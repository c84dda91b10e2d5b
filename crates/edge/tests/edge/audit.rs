//! REPLAY-2 from outside: what a server recorded is decided the same way again.

use macp_archive::{Keys, TraceReport};
use macp_edge::{AuditSettings, Reloadable};
use macp_wire::v1::{CancelSessionRequest, Envelope};

use crate::common::*;

#[tokio::test]
async fn replay_2_a_recorded_trace_replays_to_the_same_verdicts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let edge = Edge::with(|settings| settings.audit = Some(AuditSettings::new(&path))).await;
    edge.server.reload(Reloadable { keys: Keys::none(), ..Reloadable::default() });
    edge.accept(start("s")).await;
    edge.refuse(commitment("s", "early"), "INVALID_ENVELOPE").await;
    edge.accept(proposal("s", "p")).await;
    assert!(edge.send(proposal("s", "p")).await.duplicate);
    edge.accept(vote("s", "v")).await;
    edge.accept(commitment("s", "c")).await;
    edge.refuse(vote("s", "late"), "SESSION_NOT_OPEN").await;
    edge.refuse(vote("unknown", "v"), "SESSION_NOT_FOUND").await;
    edge.accept(envelope("", "sig", "Signal", "")).await;
    edge.refuse(Envelope { timestamp_unix_ms: now_ms() + 3_600_000, ..start("t") }, "INVALID_ENVELOPE").await;
    edge.accept(start("cancelled")).await;
    let cancel = CancelSessionRequest { session_id: "cancelled".into(), reason: String::new() };
    edge.runtime.clone().cancel_session(cancel).await.expect("cancelled");
    edge.shut_down().await;

    let report: TraceReport =
        macp_archive::replay_trace(&path, &mut |difference| panic!("{difference:?}")).expect("a trace");
    assert_eq!((report.events, report.operational, report.different, report.lost), (12, 1, 0, 0), "{report:?}");
}
