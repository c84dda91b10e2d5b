//! The promises of a store about histories, one by one.

use bytes::Bytes;

use super::sample::Session;
use crate::chain::Hash;
use crate::failure::FailureKind;
use crate::history::History;
use crate::record::Record;
use crate::store::{Append, AppendError, Filter, Store};

/// A promise in words, and its test on an empty store.
pub(super) type Case = (&'static str, fn(&dyn Store));

pub(super) const CASES: &[Case] = &[
    ("an empty store answers everything with nothing", empty),
    ("what was appended is read back", append_and_read),
    ("the head follows the appends", head_follows),
    ("a summary stays until it is replaced", summary_stays),
    ("an append at the wrong sequence conflicts", conflict),
    ("an append to another history conflicts", other_history),
    ("one bad append fails alone", bad_append_fails_alone),
    ("appends of one session in a batch build on each other", several_of_one_session),
    ("a misshapen append is invalid", misshapen),
    ("reading stops at its limits", read_limits),
    ("large records come back whole", large_records),
    ("listing pages by the bytes of the id", list_order),
    ("listing open sessions leaves out the ended ones", list_open),
    ("what was created before is found again", creation_order),
    ("due is strictly before, earliest first", due),
    ("deadlines follow the index", deadlines_follow),
    ("readers see whole appends while the writer goes on", concurrent_reads),
];

const UNLIMITED: usize = usize::MAX;

#[track_caller]
fn append_all(store: &dyn Store, batch: &[Append]) {
    let results = store.append(batch);
    assert_eq!(results.len(), batch.len());
    for result in results {
        result.expect("append");
    }
}

#[track_caller]
fn read_all(store: &dyn Store, id: &str) -> Vec<Record> {
    store.read(id, 0, UNLIMITED, UNLIMITED).expect("read")
}

#[track_caller]
fn list_ids(store: &dyn Store, after: Option<&str>, limit: usize, filter: Filter) -> Vec<String> {
    let heads = store.list(after, limit, filter).expect("list");
    heads.iter().map(|head| head.session_id.to_string()).collect()
}

#[track_caller]
fn due_ids(store: &dyn Store, now_ms: i64, limit: usize) -> Vec<String> {
    store.due(now_ms, limit).expect("due").iter().map(ToString::to_string).collect()
}

fn empty(store: &dyn Store) {
    assert!(store.append(&[]).is_empty());
    assert_eq!(store.head("s").unwrap(), None);
    assert!(read_all(store, "s").is_empty());
    assert!(store.list(None, 10, Filter::All).unwrap().is_empty());
    assert!(store.list(Some("a"), 10, Filter::Open).unwrap().is_empty());
    assert!(store.due(i64::MAX, 10).unwrap().is_empty());
    assert_eq!(store.next_deadline().unwrap(), None);
    assert_eq!(store.open_sessions().unwrap(), 0);
    assert!(History::open(store, "s").unwrap().is_none());
    store.probe().unwrap();
    assert!(store.list(None, 10, Filter::All).unwrap().is_empty(), "a probe leaves no trace");
}

fn append_and_read(store: &dyn Store) {
    let mut session = Session::new("s");
    let batch = [session.append(3), session.append(2), session.end()];
    append_all(store, &batch);
    let expected: Vec<_> = batch.iter().flat_map(|append| append.records.clone()).collect();
    assert_eq!(read_all(store, "s"), expected);
    assert!(read_all(store, "t").is_empty());

    let mut history = History::open(store, "s").unwrap().expect("the session exists");
    let mut entries = Vec::new();
    loop {
        let page = history.next_page().unwrap();
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    assert_eq!(entries.iter().map(|(_, entry)| entry.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

fn head_follows(store: &dyn Store) {
    let mut session = Session::new("s");
    for round in 1..4 {
        session.deadline_ms += 10;
        let mut append = session.append(2);
        append.index.state = round;
        append_all(store, &[append]);
        let head = store.head("s").unwrap().expect("the session exists");
        assert_eq!(&*head.session_id, "s");
        assert_eq!(head.sequence, session.sequence);
        assert_eq!(Some(head.hash), session.hash);
        assert!(head.open);
        assert_eq!(head.deadline_ms, session.deadline_ms);
        assert_eq!(head.state, round);
        assert_eq!(head.summary, format!("s at {}", session.sequence));
    }
    append_all(store, &[session.end()]);
    assert!(!store.head("s").unwrap().expect("the session exists").open);
}

fn summary_stays(store: &dyn Store) {
    let mut session = Session::new("s");
    let mut first = session.append(1);
    first.index.summary = None;
    append_all(store, &[first]);
    assert!(store.head("s").unwrap().unwrap().summary.is_empty());

    let mut given = session.append(1);
    given.index.summary = Some(Bytes::from_static(b"kept"));
    let mut silent = session.append(1);
    silent.index.summary = None;
    append_all(store, &[given, silent]);
    assert_eq!(store.head("s").unwrap().unwrap().summary, "kept");

    let mut silent = session.append(1);
    silent.index.summary = None;
    append_all(store, &[silent]);
    assert_eq!(store.head("s").unwrap().unwrap().summary, "kept");

    let mut emptied = session.append(1);
    emptied.index.summary = Some(Bytes::new());
    append_all(store, &[emptied]);
    assert!(store.head("s").unwrap().unwrap().summary.is_empty());
}

fn conflict(store: &dyn Store) {
    let mut session = Session::new("s");
    let first = session.append(2);
    append_all(store, std::slice::from_ref(&first));
    let before = store.head("s").unwrap();

    let again = store.append(&[first]).remove(0);
    assert!(matches!(again, Err(AppendError::Conflict { expected: 0, found: 2 })), "{again:?}");
    let mut ahead = session.clone();
    ahead.append(3);
    let ahead = store.append(&[ahead.append(1)]).remove(0);
    assert!(matches!(ahead, Err(AppendError::Conflict { expected: 5, found: 2 })), "{ahead:?}");
    let mut absent = Session::new("t");
    absent.append(1);
    let absent = store.append(&[absent.append(1)]).remove(0);
    assert!(matches!(absent, Err(AppendError::Conflict { expected: 1, found: 0 })), "{absent:?}");

    assert_eq!(store.head("s").unwrap(), before);
    assert_eq!(store.head("t").unwrap(), None);
    assert_eq!(read_all(store, "s").len(), 2);
    append_all(store, &[session.append(1)]);
}

fn other_history(store: &dyn Store) {
    let mut session = Session::new("s");
    append_all(store, &[session.append(2)]);
    let before = store.head("s").unwrap();

    // Fenced off, and just as far with a history of its own.
    let mut fenced = Session::new("s");
    fenced.append_sized(2, 5);
    let mut conflicting = vec![fenced.append(1)];
    let mut first = Session::new("s").append(1);
    first.expected_hash = Some(Hash::from_bytes([0; 32]));
    conflicting.push(first);
    for (append, (expected, found)) in conflicting.into_iter().zip([(2, 2), (0, 2)]) {
        let result = store.append(&[append]).remove(0);
        let Err(AppendError::Conflict { expected: named, found: end }) = result else { panic!("{result:?}") };
        assert_eq!((named, end), (expected, found));
    }
    let mut absent = Session::new("t").append(1);
    absent.expected_hash = Some(Hash::from_bytes([0; 32]));
    assert!(matches!(store.append(&[absent]).remove(0), Err(AppendError::Conflict { expected: 0, found: 0 })));
    assert_eq!(store.head("s").unwrap(), before);
    assert_eq!(store.head("t").unwrap(), None);

    // Within a batch as well.
    let (next, mut after) = (session.append(1), session.append(1));
    let good = after.clone();
    after.expected_hash = Some(Hash::from_bytes([0; 32]));
    let results = store.append(&[next, after]);
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(AppendError::Conflict { expected: 3, found: 3 })), "{:?}", results[1]);
    append_all(store, &[good]);
    // Who does not know the hash is taken by the number.
    let mut unknowing = session.append(1);
    unknowing.expected_hash = None;
    append_all(store, &[unknowing]);
}

fn bad_append_fails_alone(store: &dyn Store) {
    let mut sessions: Vec<_> = (0..5).map(|n| Session::new(&format!("s{n}"))).collect();
    let mut batch: Vec<_> = sessions.iter_mut().map(|session| session.append(2)).collect();
    batch[1].expected_sequence = 7;
    batch[3].records.clear();
    let results = store.append(&batch);
    let outcome: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(outcome, [true, false, true, false, true]);
    for (n, stored) in outcome.into_iter().enumerate() {
        let id = format!("s{n}");
        assert_eq!(read_all(store, &id).len(), if stored { 2 } else { 0 });
        assert_eq!(store.head(&id).unwrap().is_some(), stored);
    }
}

fn several_of_one_session(store: &dyn Store) {
    let mut session = Session::new("s");
    let first = session.append(1);
    let second = session.append(2);
    let third = session.append(1);
    let mut bad = second.clone();
    bad.records.swap(0, 1);
    let mut other = Session::new("t");

    // The third builds on the bad second, so it has nothing to stand on; other sessions do not notice.
    let results = store.append(&[first, bad, other.append(1), third.clone(), other.append(1)]);
    assert!(results[0].is_ok());
    assert!(matches!(&results[1], Err(AppendError::Failed(failure)) if failure.kind() == FailureKind::Invalid));
    assert!(results[2].is_ok());
    assert!(matches!(results[3], Err(AppendError::Conflict { expected: 3, found: 1 })));
    assert!(results[4].is_ok());
    assert_eq!(read_all(store, "s").len(), 1);
    assert_eq!(store.head("s").unwrap().unwrap().sequence, 1);

    append_all(store, &[second, third]);
    assert_eq!(read_all(store, "s").len(), 4);
    assert_eq!(store.head("s").unwrap().unwrap().hash, session.hash.unwrap());
    assert_eq!(read_all(store, "t").len(), 2);
}

fn misshapen(store: &dyn Store) {
    let shapes: [fn(&mut Append); 4] = [
        |append| append.records.clear(),
        |append| append.records.reverse(),
        |append| append.records[1].sequence = 9,
        |append| append.records[0].sequence = 0,
    ];
    for shape in shapes {
        let mut append = Session::new("s").append(2);
        shape(&mut append);
        let result = store.append(&[append]).remove(0);
        let Err(AppendError::Failed(failure)) = result else { panic!("accepted: {result:?}") };
        assert_eq!(failure.kind(), FailureKind::Invalid);
    }
    assert_eq!(store.head("s").unwrap(), None);
}

fn read_limits(store: &dyn Store) {
    let mut session = Session::new("s");
    append_all(store, &[session.append_sized(10, 100)]);
    let records = read_all(store, "s");
    let size = records[0].bytes.len();
    assert!(records.iter().all(|record| record.bytes.len() == size));
    let read = |after, limit, bytes| -> Vec<u64> {
        let page = store.read("s", after, limit, bytes).unwrap();
        page.iter().map(|record| record.sequence).collect()
    };
    assert_eq!(read(0, 3, UNLIMITED), [1, 2, 3]);
    assert_eq!(read(8, 3, UNLIMITED), [9, 10]);
    assert!(read(10, 3, UNLIMITED).is_empty());
    assert!(read(u64::MAX, 3, UNLIMITED).is_empty());
    assert!(read(0, 0, UNLIMITED).is_empty());
    assert_eq!(read(2, UNLIMITED, size * 2), [3, 4]);
    assert_eq!(read(2, UNLIMITED, size * 3 - 1), [3, 4]);
    assert_eq!(read(2, UNLIMITED, 1), [3], "a reader always gets on");
    assert_eq!(read(2, UNLIMITED, 0), [3], "a reader always gets on");
}

fn large_records(store: &dyn Store) {
    let mut session = Session::new("s");
    let batch = [session.append_sized(1, 0), session.append_sized(2, 3 << 20), session.append_sized(1, 70_000)];
    append_all(store, &batch);
    let expected: Vec<_> = batch.iter().flat_map(|append| append.records.clone()).collect();
    assert_eq!(read_all(store, "s"), expected);
}

fn list_order(store: &dyn Store) {
    // Bytes, not letters: upper case before lower case, and characters beyond ASCII last.
    let ids = ["", "A", "B", "a", "a\0b", "aa", "b", "é", "😀"];
    for id in [4, 0, 8, 2, 6, 1, 7, 3, 5] {
        append_all(store, &[Session::new(ids[id]).append(1)]);
    }
    assert_eq!(list_ids(store, None, 100, Filter::All), ids);
    assert_eq!(list_ids(store, Some(""), 100, Filter::All), ids[1..]);
    assert_eq!(list_ids(store, Some("a"), 2, Filter::All), ["a\0b", "aa"]);
    assert_eq!(list_ids(store, Some("aaa"), 2, Filter::All), ["b", "é"], "the id after which need not exist");
    assert!(list_ids(store, Some("😀"), 2, Filter::All).is_empty());
    assert!(list_ids(store, None, 0, Filter::All).is_empty());

    let mut paged = Vec::new();
    while let Some(page) =
        Some(list_ids(store, paged.last().map(String::as_str), 2, Filter::Open)).filter(|page| !page.is_empty())
    {
        paged.extend(page);
    }
    assert_eq!(paged, ids);
}

fn list_open(store: &dyn Store) {
    for n in 0..10 {
        let mut session = Session::new(&format!("s{n}"));
        append_all(store, &[session.append(1)]);
        if n % 3 != 0 {
            append_all(store, &[session.end()]);
        }
    }
    assert_eq!(list_ids(store, None, 100, Filter::Open), ["s0", "s3", "s6", "s9"]);
    assert_eq!(list_ids(store, Some("s3"), 1, Filter::Open), ["s6"]);
    assert_eq!(list_ids(store, None, 100, Filter::All).len(), 10);
    assert_eq!(store.open_sessions().unwrap(), 4);
}

fn creation_order(store: &dyn Store) {
    assert_eq!(store.ended_up_to().unwrap(), None);
    let mut sessions: Vec<_> = ["c", "a", "d", "b"].into_iter().map(Session::new).collect();
    for session in &mut sessions {
        append_all(store, &[session.append(1)]);
    }
    let created = |after: Option<&str>, limit| -> Vec<String> {
        let heads = store.created(after, limit).expect("created");
        heads.iter().map(|head| head.session_id.to_string()).collect()
    };
    let ended_up_to = || store.ended_up_to().expect("ended").map(|id| id.to_string());
    let mut all = created(None, 100);
    let mut paged = Vec::new();
    while let Some(page) = Some(created(paged.last().map(String::as_str), 3)).filter(|page| !page.is_empty()) {
        paged.extend(page);
    }
    assert_eq!(paged, all);
    assert_eq!(created(Some("nowhere"), 100).len(), 4, "nothing is left out for want of a place to begin at");
    // Whatever the order: all up to the one that is named have ended, and none created later comes before it.
    for place in [1, 0, 3, 2] {
        append_all(store, &[sessions[place].end()]);
        let Some(ended) = ended_up_to() else { continue };
        let mut later = Session::new(&format!("0-later-{place}"));
        append_all(store, &[later.append(1), later.end()]);
        all = created(None, 100);
        let upto = all.iter().position(|id| *id == ended).expect("it is one of them");
        assert!(store.created(None, upto + 1).unwrap().iter().all(|head| !head.open), "{ended}");
        assert_eq!(created(Some(&ended), 100), all[upto + 1..], "{ended}");
        assert!(created(Some(&ended), 100).contains(&later.id.to_string()), "{ended}");
    }
}

fn due(store: &dyn Store) {
    for (id, deadline_ms) in [("c", 30), ("a", 20), ("b", 20), ("d", -5), ("e", i64::MAX)] {
        let mut session = Session::new(id);
        session.deadline_ms = deadline_ms;
        append_all(store, &[session.append(1)]);
    }
    assert!(due_ids(store, -5, 10).is_empty());
    assert_eq!(due_ids(store, -4, 10), ["d"]);
    assert_eq!(due_ids(store, 20, 10), ["d"]);
    assert_eq!(due_ids(store, 21, 10), ["d", "a", "b"]);
    assert_eq!(due_ids(store, 1_000, 3), ["d", "a", "b"]);
    assert_eq!(due_ids(store, i64::MAX, 10), ["d", "a", "b", "c"]);
    assert!(due_ids(store, 1_000, 0).is_empty());
    assert_eq!(store.next_deadline().unwrap(), Some(-5));
}

fn deadlines_follow(store: &dyn Store) {
    let mut early = Session::new("early");
    let mut late = Session::new("late");
    early.deadline_ms = 10;
    late.deadline_ms = 20;
    append_all(store, &[early.append(1), late.append(1)]);
    assert_eq!(store.next_deadline().unwrap(), Some(10));
    early.deadline_ms = 30;
    append_all(store, &[early.append(1)]);
    assert_eq!(store.next_deadline().unwrap(), Some(20));
    assert_eq!(due_ids(store, 100, 10), ["late", "early"]);
    append_all(store, &[late.end()]);
    assert_eq!(store.next_deadline().unwrap(), Some(30));
    assert_eq!(store.open_sessions().unwrap(), 1);
    append_all(store, &[early.end()]);
    assert_eq!(store.next_deadline().unwrap(), None);
    assert_eq!(store.open_sessions().unwrap(), 0);
    // A store does not know that ended sessions stay so; it keeps what the index says.
    append_all(store, &[late.append(1)]);
    assert_eq!(due_ids(store, 100, 10), ["late"]);
}

fn concurrent_reads(store: &dyn Store) {
    let mut session = Session::new("s");
    append_all(store, &[session.append(2)]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 200 {
                    let head = store.head("s").expect("head").expect("the session exists");
                    assert!(head.sequence >= last, "the head went back from {last} to {}", head.sequence);
                    assert_eq!(head.sequence % 2, 0, "half an append is visible");
                    let mut history = History::open(store, "s").expect("open").expect("the session exists");
                    while !history.next_page().expect("a checked page").is_empty() {}
                    last = head.sequence;
                }
            });
        }
        for _ in 0..99 {
            append_all(store, &[session.append(2)]);
        }
    });
}
