//! Random operations on a store and on a model too simple to be wrong.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::random::Random;
use super::sample::Session;
use crate::chain::Hash;
use crate::record::Record;
use crate::store::{Append, AppendError, Filter, Head, Store};

/// Batches per run.
const ROUNDS: usize = 150;
/// Few enough that sessions meet often within a batch.
const IDS: [&str; 7] = ["", "A", "a", "a\0", "aa", "b", "ü"];

#[derive(Debug, Default)]
struct Model {
    sessions: BTreeMap<Vec<u8>, (Head, Vec<Record>)>,
}

/// Compares `store`, which is empty, with the model.
pub fn check(store: &dyn Store, seed: u64) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    for round in 0..ROUNDS {
        let batch: Vec<_> = model.random_batch(&mut random);
        let expected: Vec<_> = batch.iter().map(|append| outcome(&model.append(append))).collect();
        let found: Vec<_> = store.append(&batch).iter().map(outcome).collect();
        assert_eq!(found, expected, "seed {seed}, round {round}");
        model.compare(store, &mut random, &format!("seed {seed}, round {round}"));
    }
}

fn outcome(result: &Result<(), AppendError>) -> String {
    match result {
        Ok(()) => String::from("stored"),
        Err(AppendError::Conflict { expected, found }) => format!("conflict {expected} {found}"),
        Err(AppendError::Failed(failure)) => String::from(failure.code()),
    }
}

impl Model {
    fn random_batch(&self, random: &mut Random) -> Vec<Append> {
        // Each session goes on from its stored end, as if every append of the batch were going to be stored.
        let mut sessions: Vec<_> = IDS.iter().map(|id| self.continued(id)).collect();
        (0..=random.below(6))
            .map(|_| {
                let session = &mut sessions[random.below(IDS.len() as u64) as usize];
                session.deadline_ms = random.below(20) as i64;
                let mut append = session.append(1 + random.below(3) as usize);
                append.index.open = !random.one_in(3);
                append.index.state = random.below(3) as i32;
                append.index.summary = random.one_in(2).then(|| Bytes::from(random.draw().to_string()));
                match random.below(12) {
                    0 => append.expected_sequence += 1,
                    1 => append.records.clear(),
                    // As a stale owner would: from the start again.
                    2 => append = Session::new(&session.id).append(1),
                    // As one that was fenced off: at the right number of another history.
                    3 => append.expected_hash = Some(Hash::from_bytes([9; 32])),
                    4 => append.expected_hash = None,
                    _ => {}
                }
                append
            })
            .collect()
    }

    fn continued(&self, id: &str) -> Session {
        let mut session = Session::new(id);
        if let Some((head, _)) = self.sessions.get(id.as_bytes()) {
            session.sequence = head.sequence;
            session.hash = Some(head.hash);
        }
        session
    }

    fn append(&mut self, append: &Append) -> Result<(), AppendError> {
        let last = append.validate()?;
        let id = append.session_id.as_bytes();
        let stored = self.sessions.get(id).map(|(head, _)| head);
        let found = stored.map_or(0, |head| head.sequence);
        let is_other = append.expected_hash.is_some() && stored.map(|head| head.hash) != append.expected_hash;
        if found != append.expected_sequence || is_other {
            return Err(AppendError::Conflict { expected: append.expected_sequence, found });
        }
        let (mut records, summary) = match self.sessions.remove(id) {
            Some((head, records)) => (records, head.summary),
            None => (Vec::new(), Bytes::new()),
        };
        records.extend(append.records.iter().cloned());
        let head = Head {
            session_id: append.session_id.clone(),
            sequence: last.sequence,
            hash: last.hash,
            open: append.index.open,
            deadline_ms: append.index.deadline_ms,
            state: append.index.state,
            summary: append.index.summary.clone().unwrap_or(summary),
        };
        self.sessions.insert(id.to_vec(), (head, records));
        Ok(())
    }

    fn compare(&self, store: &dyn Store, random: &mut Random, place: &str) {
        let heads: Vec<_> = self.sessions.values().map(|(head, _)| head.clone()).collect();
        let open: Vec<_> = heads.iter().filter(|head| head.open).cloned().collect();
        assert_eq!(store.list(None, 100, Filter::All).unwrap(), heads, "{place}");
        assert_eq!(store.list(None, 100, Filter::Open).unwrap(), open, "{place}");
        assert_eq!(store.open_sessions().unwrap(), open.len() as u64, "{place}");
        let next = open.iter().map(|head| head.deadline_ms).min();
        assert_eq!(store.next_deadline().unwrap(), next, "{place}");

        let now_ms = random.below(22) as i64;
        let limit = random.below(4) as usize;
        let mut due: Vec<_> = open.into_iter().filter(|head| head.deadline_ms < now_ms).collect();
        due.sort_by_key(|head| (head.deadline_ms, head.session_id.clone()));
        let due: Vec<_> = due.into_iter().map(|head| head.session_id).take(limit).collect();
        assert_eq!(store.due(now_ms, limit).unwrap(), due, "{place}");

        let id = IDS[random.below(IDS.len() as u64) as usize];
        let after = random.below(10);
        let records = self.sessions.get(id.as_bytes()).map_or(&[][..], |(_, records)| records);
        let expected: Vec<_> = records.iter().filter(|record| record.sequence > after).take(limit).cloned().collect();
        assert_eq!(store.read(id, after, limit, usize::MAX).unwrap(), expected, "{place}");
        assert_eq!(store.head(id).unwrap().map(|head| head.sequence).unwrap_or(0), records.len() as u64, "{place}");
    }
}
