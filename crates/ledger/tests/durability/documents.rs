//! Documents survive the same crashes as histories.

use std::collections::BTreeMap;

use macp_ledger::contract::random::{self, Random};
use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{Options, POSITION_FILE, Synchronous};
use macp_ledger::{FailureKind, PutMode, PutOutcome, SqliteStore, Store};
use tempfile::TempDir;

use crate::vfs::{Event, Fault, Recorder};
use crate::{acknowledged, checkpoints, image, options, points, quiet};

/// Bytes of every document, by key.
type Documents = BTreeMap<String, Vec<u8>>;

const CHANGES_MIN: usize = 60;
const CHECKPOINTS_MIN: usize = 3;
/// So that a workload whose checkpoints never run ends as well.
const CHANGES_MAX: usize = 5_000;

/// A recorded run: its events, where the store was first open, and the documents after each change.
struct Run {
    events: Vec<Event>,
    opened: usize,
    states: Vec<Documents>,
    /// The position file after each change.
    notes: Vec<Vec<u8>>,
}

fn run(synchronous: Synchronous, random: &mut Random) -> Run {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), options(recorder, synchronous)).unwrap();
    let opened = recorder.events().len();
    let mut session = Session::new("between the documents");
    let mut states = vec![Documents::new()];
    let note = || std::fs::read(directory.path().join(POSITION_FILE)).unwrap();
    let mut notes = vec![note()];
    while states.len() <= CHANGES_MIN || (checkpoints(recorder) < CHECKPOINTS_MIN && states.len() < CHANGES_MAX) {
        let mut documents = states.last().unwrap().clone();
        let key = format!("k{}", random.below(5));
        let bytes = vec![random.draw() as u8; random.below(6_000) as usize];
        match random.below(5) {
            4 => {
                let new_key = format!("k{}", random.below(5));
                let moved = documents.remove(&key).is_some();
                assert_eq!(store.move_document("kind", &key, &new_key, &bytes).unwrap(), moved);
                if moved {
                    documents.insert(new_key, bytes);
                }
            }
            0 => assert_eq!(store.delete_document("kind", &key).unwrap(), documents.remove(&key).is_some()),
            1 => {
                let expected = match documents.get(&key) {
                    Some(kept) => PutOutcome::Kept(kept.clone().into()),
                    None => PutOutcome::Stored,
                };
                assert_eq!(store.put_document("kind", &key, &bytes, PutMode::IfAbsent).unwrap(), expected);
                documents.entry(key).or_insert(bytes);
            }
            _ => {
                store.put_document("kind", &key, &bytes, PutMode::Replace).unwrap();
                documents.insert(key, bytes);
            }
        }
        recorder.record(Event::Acknowledged(states.len()));
        states.push(documents);
        notes.push(note());
        if random.one_in(4) {
            assert!(store.append(&[session.append(1)])[0].is_ok());
        }
    }
    assert!(states.len() < CHANGES_MAX, "no checkpoint ran");
    Run { events: recorder.events(), opened, states, notes }
}

/// Opens the image, with one of the position files that may be there, and returns what of the promise does not hold.
fn check(run: &Run, point: usize, age: u64, keep: impl FnMut() -> bool) -> Result<(), String> {
    let directory = TempDir::new().unwrap();
    image::write(directory.path(), &run.events, point, keep);
    let acknowledged = acknowledged(&run.events[..point]);
    std::fs::write(directory.path().join(POSITION_FILE), &run.notes[acknowledged.saturating_sub(age as usize)])
        .unwrap();
    // Recovery does not need to be durable here, only quick.
    let options = Options { synchronous: Synchronous::Off, ..Options::default() };
    let store = SqliteStore::open_with(directory.path(), options).map_err(|failure| format!("{failure:?}"))?;
    let found = store.documents("kind", None, usize::MAX).map_err(|failure| format!("{failure:?}"))?;
    let found: Documents = found.into_iter().map(|it| (it.key.to_string(), it.bytes.to_vec())).collect();
    // A change that was under way may be there, whole, or not at all.
    let allowed = acknowledged..=(acknowledged + 1).min(run.states.len() - 1);
    if !allowed.clone().any(|changes| run.states[changes] == found) {
        let found: Vec<_> = found.iter().map(|(key, bytes)| (key, bytes.len())).collect();
        return Err(format!("{acknowledged} changes acknowledged, found {found:?}"));
    }
    let outcome = store.put_document("kind", "after the crash", b"", PutMode::IfAbsent);
    outcome.map(|_| ()).map_err(|failure| format!("the store does not go on: {failure}"))
}

#[test]
fn acknowledged_documents_survive_every_crash() {
    let seed = random::seed();
    println!("MACP_SEED={seed}");
    let mut random = Random::new(seed);
    let run = run(Synchronous::Full, &mut random);
    let points = points(&run.events, run.opened, &mut random);
    println!("{} changes, {} events, {} crash points", run.states.len() - 1, run.events.len(), points.len());
    for point in points {
        let age = random.below(4) * random.below(4);
        check(&run, point, age, || false).unwrap_or_else(|lost| panic!("crash after event {point}: {lost}"));
        let odds = 1 + random.below(4);
        check(&run, point, age, || random.one_in(odds))
            .unwrap_or_else(|lost| panic!("crash after event {point}, some writes kept: {lost}"));
    }
}

#[test]
fn the_same_test_finds_the_loss_of_documents_when_nothing_is_synced() {
    let seed = random::seed();
    println!("MACP_SEED={seed}");
    let mut random = Random::new(seed);
    let run = run(Synchronous::Off, &mut random);
    let points = points(&run.events, run.opened, &mut random);
    let lost = points.into_iter().filter(|point| check(&run, *point, 0, || false).is_err()).count();
    assert!(lost > CHANGES_MIN / 4, "only {lost} crashes were noticed");
}

#[test]
fn a_change_of_a_document_is_one_sync_and_keeping_one_is_none() {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), quiet(recorder)).unwrap();
    let syncs = || recorder.count(|event| matches!(event, Event::Sync { .. }));
    let changes: [(&dyn Fn(), usize); 5] = [
        (&|| drop(store.put_document("kind", "key", b"a", PutMode::IfAbsent).unwrap()), 1),
        (&|| drop(store.put_document("kind", "key", b"b", PutMode::IfAbsent).unwrap()), 0),
        (&|| drop(store.put_document("kind", "key", b"c", PutMode::Replace).unwrap()), 1),
        (&|| assert!(store.delete_document("kind", "key").unwrap()), 1),
        (&|| assert!(!store.delete_document("kind", "key").unwrap()), 0),
    ];
    for (at, (change, expected)) in changes.into_iter().enumerate() {
        let before = syncs();
        change();
        assert_eq!(syncs(), before + expected, "change {at}");
    }
}

#[test]
fn a_failed_sync_fails_the_change_and_the_next_one_works() {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), quiet(recorder)).unwrap();
    store.put_document("kind", "key", b"kept", PutMode::Replace).unwrap();
    let opened = recorder.events().len();
    for (fault, kind) in [(Fault::LogSync, FailureKind::Io), (Fault::LogWrite, FailureKind::DiskFull)] {
        recorder.fail(fault, 1);
        let failure = store.put_document("kind", "key", b"lost", PutMode::Replace).unwrap_err();
        assert_eq!(failure.kind(), kind);
        recorder.fail(fault, 1);
        assert_eq!(store.put_document("kind", "new", b"lost", PutMode::IfAbsent).unwrap_err().kind(), kind);
        recorder.fail(fault, 1);
        assert_eq!(store.delete_document("kind", "key").unwrap_err().kind(), kind);
        assert_eq!(store.document("kind", "key").unwrap().as_deref(), Some(&b"kept"[..]));
        assert_eq!(store.documents("kind", None, 10).unwrap().len(), 1);
    }
    // Nothing of what failed comes back with a crash after the next change.
    let next = store.put_document("kind", "new", b"stored", PutMode::IfAbsent).unwrap();
    assert_eq!(next, PutOutcome::Stored);
    let state = Documents::from([("key", b"kept".to_vec()), ("new", b"stored".to_vec())].map(|(k, v)| (k.into(), v)));
    let note = std::fs::read(directory.path().join(POSITION_FILE)).unwrap();
    let run = Run { events: recorder.events(), opened, states: vec![state], notes: vec![note] };
    check(&run, run.events.len(), 0, || false).unwrap();
    check(&run, run.events.len(), 0, || true).unwrap();
    assert!(store.append(&[Session::new("s").append(1)])[0].is_ok());
}
