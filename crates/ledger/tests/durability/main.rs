//! What the store acknowledged survives a crash that forgets everything not synced.

mod documents;
mod image;
mod vfs;

use std::collections::BTreeMap;
use std::time::Duration;

use macp_ledger::contract::random::{self, Random};
use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{Options, POSITION_FILE, Synchronous};
use macp_ledger::{AppendError, FailureKind, Filter, Hash, History, SqliteStore, Store};
use tempfile::TempDir;

use crate::vfs::{Event, Fault, File, Recorder};

/// Sequence and hash of every session.
type Heads = BTreeMap<String, (u64, Hash)>;

/// Enough for the log to be started over a few times.
const BATCHES_MIN: usize = 40;
const CHECKPOINTS_MIN: usize = 5;
/// So that a workload whose checkpoints never run ends as well.
const BATCHES_MAX: usize = 5_000;

/// A recorded run: its events, where the store was first open, and the heads after each batch.
struct Run {
    events: Vec<Event>,
    opened: usize,
    states: Vec<Heads>,
    /// The position file after each batch. It is not synced, so a crash may bring back any of them.
    notes: Vec<Vec<u8>>,
}

fn options(recorder: &Recorder, synchronous: Synchronous) -> Options {
    Options { synchronous, vfs: Some(recorder.name.clone()), checkpoint_pages: 8, ..Options::default() }
}

/// Without a checkpoint thread that could meet a fault meant for the writer.
fn quiet(recorder: &Recorder) -> Options {
    Options { checkpoint_pages: u64::MAX, empty_after: Duration::MAX, ..options(recorder, Synchronous::Full) }
}

fn is_sync(of: File) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Sync { file, .. } if *file == of)
}

/// A database write marks a checkpoint even where nothing is synced.
fn checkpoints(recorder: &Recorder) -> usize {
    recorder.count(|event| matches!(event, Event::Write { file: File::Database, offset: 0, .. }))
}

fn run(synchronous: Synchronous, random: &mut Random) -> Run {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), options(recorder, synchronous)).unwrap();
    let opened = recorder.events().len();
    let mut sessions: Vec<_> = (0..6).map(|n| Session::new(&format!("s{n}"))).collect();
    let mut states = vec![Heads::new()];
    let note = || std::fs::read(directory.path().join(POSITION_FILE)).unwrap();
    let mut notes = vec![note()];
    while states.len() <= BATCHES_MIN || (checkpoints(recorder) < CHECKPOINTS_MIN && states.len() < BATCHES_MAX) {
        let mut heads = states.last().unwrap().clone();
        let batch: Vec<_> = (0..=random.below(5))
            .map(|_| {
                let session = &mut sessions[random.below(6) as usize];
                let append = session.append_sized(1 + random.below(2) as usize, random.below(3_000) as usize);
                heads.insert(session.id.to_string(), (session.sequence, session.hash.unwrap()));
                append
            })
            .collect();
        assert!(store.append(&batch).iter().all(Result::is_ok));
        recorder.record(Event::Acknowledged(states.len()));
        states.push(heads);
        notes.push(note());
    }
    let events = recorder.events();
    assert!(states.len() < BATCHES_MAX, "no checkpoint ran");
    Run { events, opened, states, notes }
}

/// The moments worth crashing at: around every sync and acknowledgement, and some in between.
fn points(events: &[Event], opened: usize, random: &mut Random) -> Vec<usize> {
    let mut points: Vec<usize> = Vec::new();
    for (position, event) in events.iter().enumerate() {
        if matches!(event, Event::Sync { .. } | Event::Acknowledged(_)) {
            points.extend([position, position + 1]);
        }
    }
    points.extend((0..60).map(|_| random.below(events.len() as u64 + 1) as usize));
    points.retain(|point| *point >= opened);
    points.sort_unstable();
    points.dedup();
    points
}

/// How much had been acknowledged by the end of these events.
fn acknowledged(events: &[Event]) -> usize {
    let count = |event: &Event| if let Event::Acknowledged(count) = event { Some(*count) } else { None };
    events.iter().rev().find_map(count).unwrap_or(0)
}

/// Opens the image, with one of the position files that may be there, and returns what of the promise does not hold.
fn check(run: &Run, point: usize, age: u64, keep: impl FnMut() -> bool) -> Result<(), String> {
    let directory = TempDir::new().unwrap();
    image::write(directory.path(), &run.events, point, keep);
    let acknowledged = acknowledged(&run.events[..point]);
    if let Some(note) = run.notes.get(acknowledged.saturating_sub(age as usize)) {
        std::fs::write(directory.path().join(POSITION_FILE), note).unwrap();
    }
    // Recovery does not need to be durable here, only quick.
    let options = Options { synchronous: Synchronous::Off, ..Options::default() };
    let store = SqliteStore::open_with(directory.path(), options).map_err(|failure| format!("{failure:?}"))?;
    let mut found = Heads::new();
    for head in store.list(None, usize::MAX, Filter::All).map_err(|failure| format!("{failure:?}"))? {
        let mut history = History::open(&store, &head.session_id).unwrap().expect("a listed session exists");
        loop {
            match history.next_page() {
                Ok(page) if page.is_empty() => break,
                Ok(_) => {}
                Err(error) => return Err(format!("session {}: {error}", head.session_id)),
            }
        }
        found.insert(head.session_id.to_string(), (head.sequence, head.hash));
    }
    // A batch that was under way may be there, whole, or not at all.
    let allowed = acknowledged..=(acknowledged + 1).min(run.states.len() - 1);
    if !allowed.clone().any(|batches| run.states[batches] == found) {
        return Err(format!("{acknowledged} batches acknowledged, found {found:?}"));
    }
    let results = store.append(&[Session::new("after the crash").append(1)]);
    results[0].as_ref().map_err(|error| format!("the store does not go on: {error}")).copied()
}

#[test]
fn acknowledged_batches_survive_every_crash() {
    let seed = random::seed();
    println!("MACP_SEED={seed}");
    let mut random = Random::new(seed);
    let run = run(Synchronous::Full, &mut random);
    let points = points(&run.events, run.opened, &mut random);
    println!("{} batches, {} events, {} crash points", run.states.len() - 1, run.events.len(), points.len());
    for point in points {
        let age = random.below(4) * random.below(4);
        check(&run, point, age, || false).unwrap_or_else(|lost| panic!("crash after event {point}: {lost}"));
        let odds = 1 + random.below(4);
        check(&run, point, age, || random.one_in(odds))
            .unwrap_or_else(|lost| panic!("crash after event {point}, some writes kept: {lost}"));
    }
}

#[test]
fn the_same_test_finds_the_loss_when_nothing_is_synced() {
    let seed = random::seed();
    println!("MACP_SEED={seed}");
    let mut random = Random::new(seed);
    let run = run(Synchronous::Off, &mut random);
    assert!(!run.events.iter().any(|event| matches!(event, Event::Sync { .. })));
    let lost = points(&run.events, run.opened, &mut random)
        .into_iter()
        .filter(|point| check(&run, *point, 0, || false).is_err())
        .count();
    assert!(lost > BATCHES_MIN / 2, "only {lost} crashes were noticed");
}

#[test]
fn a_commit_is_one_sync() {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), quiet(recorder)).unwrap();
    let mut sessions: Vec<_> = (0..20).map(|n| Session::new(&format!("s{n}"))).collect();
    for _ in 0..10 {
        let syncs = recorder.count(|event| matches!(event, Event::Sync { .. }));
        let batch: Vec<_> = sessions.iter_mut().map(|session| session.append_sized(2, 1_000)).collect();
        assert!(store.append(&batch).iter().all(Result::is_ok));
        assert_eq!(recorder.count(|event| matches!(event, Event::Sync { .. })), syncs + 1);
    }
    assert_eq!(recorder.count(is_sync(File::Database)), 1, "only the switch to a log syncs the database");
}

#[test]
fn a_failed_sync_fails_the_batch_for_good_and_the_next_append_works() {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), quiet(recorder)).unwrap();
    let mut session = Session::new("s");
    let mut other = Session::new("t");
    assert!(store.append(&[session.append(2)])[0].is_ok());
    let before = store.head("s").unwrap();
    let opened = recorder.events().len();

    recorder.fail(Fault::LogSync, 1);
    let mut lost = session.clone();
    let results = store.append(&[lost.append(1), other.clone().append(1)]);
    for result in results {
        let Err(AppendError::Failed(failure)) = result else { panic!("acknowledged without a sync: {result:?}") };
        assert_eq!(failure.kind(), FailureKind::Io);
    }
    assert_eq!(store.head("s").unwrap(), before);
    assert_eq!(store.head("t").unwrap(), None);

    // Other records take the place of the lost ones; if these came back in a crash, the chain would show it.
    assert!(store.append(&[session.append_sized(1, 99), other.append(1)]).iter().all(Result::is_ok));
    let events = recorder.events();
    let state: Heads = [&session, &other].map(|s| (s.id.to_string(), (s.sequence, s.hash.unwrap()))).into();
    let note = std::fs::read(directory.path().join(POSITION_FILE)).unwrap();
    let run = Run { events, opened, states: vec![state], notes: vec![note] };
    check(&run, run.events.len(), 0, || false).unwrap();
    check(&run, run.events.len(), 0, || true).unwrap();
}

#[test]
fn a_disk_that_fails_for_a_while_stops_writes_only_and_only_for_that_long() {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), quiet(recorder)).unwrap();
    let mut session = Session::new("s");
    assert!(store.append(&[session.append(3)])[0].is_ok());

    for (fault, kind) in [(Fault::LogWrite, FailureKind::DiskFull), (Fault::LogSync, FailureKind::Io)] {
        recorder.fail(fault, usize::MAX);
        for _ in 0..3 {
            let batch: Vec<_> = (0..4).map(|n| Session::new(&format!("new {n}")).append(1)).collect();
            for result in store.append(&batch) {
                let Err(AppendError::Failed(failure)) = result else { panic!("stored: {result:?}") };
                assert_eq!(failure.kind(), kind);
            }
            assert_eq!(store.probe().unwrap_err().kind(), kind);
            assert_eq!(store.read("s", 0, 10, usize::MAX).unwrap().len() as u64, session.sequence);
            assert_eq!(store.list(None, 10, Filter::All).unwrap().len(), 1);
        }
        recorder.fail(fault, 0);
        assert!(store.append(&[session.append(1)])[0].is_ok());
        store.probe().unwrap();
    }
    let mut history = History::open(&store, "s").unwrap().unwrap();
    assert_eq!(history.next_page().unwrap().len(), 5);
    assert!(history.next_page().unwrap().is_empty());
}

#[test]
fn a_log_that_cannot_be_emptied_shows_in_the_probe_until_it_can() {
    let recorder = Recorder::register();
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open_with(directory.path(), options(recorder, Synchronous::Full)).unwrap();
    let mut session = Session::new("s");
    recorder.fail(Fault::DatabaseWrite, usize::MAX);
    let seen = (0..BATCHES_MAX).find_map(|_| {
        assert!(store.append(&[session.append(1)])[0].is_ok(), "appends need the log only");
        store.probe().err()
    });
    assert_eq!(seen.expect("no checkpoint ran").kind(), FailureKind::DiskFull);
    recorder.fail(Fault::DatabaseWrite, 0);
    store.probe().unwrap();
    assert!(store.append(&[session.append(1)])[0].is_ok());
}
