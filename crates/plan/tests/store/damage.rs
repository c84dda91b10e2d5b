//! Loading a journal that is not what was written: the first entry that is wrong is named.

use std::sync::Arc;

use macp_ledger::{Hash, Store};
use macp_plan::store::{CorruptionKind, RunStore, StoreError};

use crate::sample::finished_run;
use crate::wrapped::Wrapped;

const ENTRIES: u64 = 6;

async fn recorded() -> (Arc<Wrapped>, RunStore) {
    let wrapped = Wrapped::new();
    let store = RunStore::open(Arc::clone(&wrapped) as Arc<dyn Store>).unwrap();
    finished_run(&store, "r", Default::default()).await;
    (wrapped, store)
}

/// The first bad entry and what is wrong with it.
async fn found(store: &RunStore) -> (u64, CorruptionKind) {
    match store.load("r").await {
        Err(StoreError::Corruption(corruption)) => (corruption.seq, corruption.kind),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_changed_byte_is_named_by_its_entry() {
    for sequence in 1..=ENTRIES {
        for from_end in [false, true] {
            let (wrapped, store) = recorded().await;
            wrapped.tamper(move |records| {
                for record in records.iter_mut().filter(|record| record.sequence == sequence) {
                    let mut bytes = record.bytes.to_vec();
                    let position = if from_end { bytes.len() - 2 } else { 2 };
                    bytes[position] ^= 1;
                    record.bytes = bytes.into();
                }
            });
            let (seq, kind) = found(&store).await;
            assert_eq!(seq, sequence - 1);
            assert!(matches!(kind, CorruptionKind::Entry(_)), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_entry_and_a_cut_end_are_told_apart() {
    for sequence in 1..=ENTRIES {
        let (wrapped, store) = recorded().await;
        wrapped.tamper(move |records| records.retain(|record| record.sequence != sequence));
        let (seq, kind) = found(&store).await;
        assert_eq!(seq, sequence - 1, "{kind:?}");
        let expected = if sequence < ENTRIES {
            matches!(kind, CorruptionKind::Missing { found } if found == sequence)
        } else {
            matches!(kind, CorruptionKind::Truncated { indexed: ENTRIES })
        };
        assert!(expected, "{kind:?}");
    }
}

#[tokio::test]
async fn the_index_must_agree_with_the_journal() {
    let (wrapped, store) = recorded().await;
    wrapped.tamper_head(|head| head.hash = Hash::from_bytes([0; 32]));
    assert!(matches!(found(&store).await, (5, CorruptionKind::Head { .. })));
    wrapped.tamper_head(|head| head.open = true);
    assert!(matches!(found(&store).await, (5, CorruptionKind::Index { open: true })));
    wrapped.tamper_head(|head| {
        head.sequence = 0;
    });
    assert!(matches!(found(&store).await, (0, CorruptionKind::Truncated { .. })));
}

#[tokio::test]
async fn a_journal_under_another_id_is_no_journal_of_that_run() {
    let (wrapped, store) = recorded().await;
    let records = wrapped.read("r", 0, 10, usize::MAX).unwrap();
    let index = macp_ledger::IndexUpdate { open: false, deadline_ms: 0, state: 1, summary: None };
    let append =
        macp_ledger::Append { session_id: "q".into(), expected_sequence: 0, expected_hash: None, records, index };
    assert!(wrapped.append(&[append])[0].is_ok());
    let error = store.load("q").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Corruption(corruption)
            if corruption.seq == 0 && matches!(&corruption.kind, CorruptionKind::OtherRun { found } if found == "r")),
        "{error}"
    );
}

#[tokio::test]
async fn pages_are_checked_too() {
    let (wrapped, store) = recorded().await;
    wrapped.tamper(|records| {
        for record in records.iter_mut().filter(|record| record.sequence == 4) {
            record.bytes = b"{}".as_slice().into();
        }
    });
    assert_eq!(store.entries_from("r", 1, 2).await.unwrap().len(), 2);
    let error = store.entries_from("r", 2, 2).await.unwrap_err();
    assert!(matches!(error, StoreError::Corruption(corruption) if corruption.seq == 3));
}
