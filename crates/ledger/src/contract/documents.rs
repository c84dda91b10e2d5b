//! The promises of a store about documents.

use bytes::Bytes;

use super::cases::Case;
use super::sample::Session;
use crate::documents::{KEY_BYTES_MAX, KIND_BYTES_MAX, PutMode, PutOutcome};
use crate::failure::FailureKind;
use crate::store::{Filter, Store};

pub(super) const CASES: &[Case] = &[
    ("a store without documents answers with nothing", empty),
    ("a document is read back as it was put", put_and_read),
    ("the first writer wins where the document must be absent", if_absent),
    ("of many writers at once exactly one wins", one_wins),
    ("a deleted document is gone and its key is free", delete),
    ("a moved document is under its new key alone", moved),
    ("kinds keep to themselves", kinds),
    ("documents page by the bytes of the key", paging),
    ("kinds and keys have a longest length", lengths),
    ("documents and histories do not meet", beside_histories),
];

#[track_caller]
fn put(store: &dyn Store, kind: &str, key: &str, bytes: &[u8]) {
    assert_eq!(store.put_document(kind, key, bytes, PutMode::Replace).expect("put"), PutOutcome::Stored);
}

#[track_caller]
fn get(store: &dyn Store, kind: &str, key: &str) -> Option<Bytes> {
    store.document(kind, key).expect("document")
}

#[track_caller]
fn keys(store: &dyn Store, kind: &str, after_key: Option<&str>, limit: usize) -> Vec<String> {
    let documents = store.documents(kind, after_key, limit).expect("documents");
    documents.iter().map(|document| document.key.to_string()).collect()
}

fn empty(store: &dyn Store) {
    assert_eq!(get(store, "kind", "key"), None);
    assert!(store.documents("kind", None, 10).unwrap().is_empty());
    assert!(store.documents("kind", Some("key"), 10).unwrap().is_empty());
    assert!(!store.delete_document("kind", "key").unwrap());
}

fn put_and_read(store: &dyn Store) {
    let large: Vec<u8> = (0_u32..1 << 20).map(|n| (n / 7) as u8).collect();
    for (key, bytes) in [("empty", &b""[..]), ("text", b"text"), ("binary", b"\0\xff\0"), ("large", &large), ("", b"k")]
    {
        put(store, "kind", key, bytes);
        assert_eq!(get(store, "kind", key).as_deref(), Some(bytes), "{key}");
    }
    put(store, "kind", "text", b"another");
    assert_eq!(get(store, "kind", "text").as_deref(), Some(&b"another"[..]));
    let documents = store.documents("kind", None, 10).unwrap();
    let found: Vec<_> = documents.iter().map(|document| (&*document.key, document.bytes.len())).collect();
    assert_eq!(found, [("", 1), ("binary", 3), ("empty", 0), ("large", 1 << 20), ("text", 7)]);
    assert_eq!(documents[3].bytes, large);
}

fn if_absent(store: &dyn Store) {
    let first = store.put_document("kind", "key", b"first", PutMode::IfAbsent).unwrap();
    assert_eq!(first, PutOutcome::Stored);
    for bytes in [&b"second"[..], b"first"] {
        let kept = store.put_document("kind", "key", bytes, PutMode::IfAbsent).unwrap();
        assert_eq!(kept, PutOutcome::Kept(Bytes::from_static(b"first")));
    }
    assert_eq!(get(store, "kind", "key").as_deref(), Some(&b"first"[..]));
    put(store, "kind", "key", b"third");
    let kept = store.put_document("kind", "key", b"fourth", PutMode::IfAbsent).unwrap();
    assert_eq!(kept, PutOutcome::Kept(Bytes::from_static(b"third")));
    // After a document that was kept, writing goes on.
    put(store, "kind", "other", b"bytes");
}

fn one_wins(store: &dyn Store) {
    for round in 0..20 {
        let key = round.to_string();
        let put = |writer: u8| (writer, store.put_document("kind", &key, &[writer], PutMode::IfAbsent).expect("put"));
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || put(writer))).collect();
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        let winners: Vec<_> =
            outcomes.iter().filter(|(_, outcome)| *outcome == PutOutcome::Stored).map(|(writer, _)| *writer).collect();
        let [winner] = winners[..] else { panic!("{winners:?} were all told that theirs is stored") };
        let kept = PutOutcome::Kept(Bytes::copy_from_slice(&[winner]));
        assert!(outcomes.iter().all(|(writer, outcome)| *writer == winner || *outcome == kept), "{outcomes:?}");
        assert_eq!(get(store, "kind", &key).as_deref(), Some(&[winner][..]));
    }
}

fn delete(store: &dyn Store) {
    put(store, "kind", "a", b"a");
    put(store, "kind", "b", b"b");
    assert!(store.delete_document("kind", "a").unwrap());
    assert!(!store.delete_document("kind", "a").unwrap());
    assert_eq!(get(store, "kind", "a"), None);
    assert_eq!(keys(store, "kind", None, 10), ["b"]);
    let again = store.put_document("kind", "a", b"again", PutMode::IfAbsent).unwrap();
    assert_eq!(again, PutOutcome::Stored);
    assert_eq!(get(store, "kind", "a").as_deref(), Some(&b"again"[..]));
}

fn moved(store: &dyn Store) {
    put(store, "kind", "a", b"a");
    put(store, "kind", "taken", b"taken");
    put(store, "other", "a", b"other");
    assert!(store.move_document("kind", "a", "b", b"changed").unwrap());
    assert_eq!((get(store, "kind", "a"), get(store, "kind", "b").as_deref()), (None, Some(&b"changed"[..])));
    assert!(store.move_document("kind", "b", "taken", b"moved").unwrap());
    assert_eq!(keys(store, "kind", None, 10), ["taken"]);
    assert_eq!(get(store, "kind", "taken").as_deref(), Some(&b"moved"[..]));
    // Where there is nothing to move, nothing changes.
    assert!(!store.move_document("kind", "a", "taken", b"lost").unwrap());
    assert_eq!(get(store, "kind", "taken").as_deref(), Some(&b"moved"[..]));
    assert!(store.move_document("kind", "taken", "taken", b"in place").unwrap());
    assert_eq!(get(store, "kind", "taken").as_deref(), Some(&b"in place"[..]));
    let failure = store.move_document("kind", "taken", &"k".repeat(KEY_BYTES_MAX + 1), b"").unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Invalid);
    assert_eq!(get(store, "kind", "taken").as_deref(), Some(&b"in place"[..]));
    assert_eq!(get(store, "other", "a").as_deref(), Some(&b"other"[..]));
}

fn kinds(store: &dyn Store) {
    for kind in ["", "a", "ab", "b"] {
        put(store, kind, "key", kind.as_bytes());
        put(store, kind, &format!("b{kind}"), b"");
    }
    assert!(store.delete_document("a", "key").unwrap());
    assert_eq!(get(store, "a", "key"), None);
    for kind in ["", "ab", "b"] {
        assert_eq!(get(store, kind, "key").as_deref(), Some(kind.as_bytes()), "{kind:?}");
        assert_eq!(keys(store, kind, None, 10), [format!("b{kind}"), String::from("key")]);
    }
    assert!(keys(store, "B", None, 10).is_empty(), "letters of another case are another kind");
}

fn paging(store: &dyn Store) {
    // Bytes, not letters: upper case before lower case, and characters beyond ASCII last.
    let sorted = ["", "A", "B", "a", "a\0b", "aa", "b", "é", "😀"];
    for key in [4, 0, 8, 2, 6, 1, 7, 3, 5] {
        put(store, "kind", sorted[key], b"");
    }
    assert_eq!(keys(store, "kind", None, 100), sorted);
    assert_eq!(keys(store, "kind", Some(""), 100), sorted[1..]);
    assert_eq!(keys(store, "kind", Some("a"), 2), ["a\0b", "aa"]);
    assert_eq!(keys(store, "kind", Some("aaa"), 2), ["b", "é"], "the key after which need not exist");
    assert!(keys(store, "kind", Some("😀"), 2).is_empty());
    assert!(keys(store, "kind", None, 0).is_empty());
    assert_eq!(keys(store, "kind", None, usize::MAX).len(), sorted.len());
}

fn lengths(store: &dyn Store) {
    let kind = "k".repeat(KIND_BYTES_MAX);
    let key = "é".repeat(KEY_BYTES_MAX / 2);
    put(store, &kind, &key, b"bytes");
    assert_eq!(get(store, &kind, &key).as_deref(), Some(&b"bytes"[..]));
    let longer_kind = format!("{kind}k");
    let longer_key = format!("{key}k");
    for (kind, key, what) in [(&longer_kind, &key, "kind of 65 bytes"), (&kind, &longer_key, "key of 513 bytes")] {
        for mode in [PutMode::Replace, PutMode::IfAbsent] {
            let failure = store.put_document(kind, key, b"", mode).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Invalid);
            assert!(failure.to_string().contains(what), "{failure}");
        }
        assert_eq!(get(store, kind, key), None);
        assert!(!store.delete_document(kind, key).unwrap());
        assert!(keys(store, &longer_kind, Some(key), 10).is_empty());
    }
    assert!(store.delete_document(&kind, &key).unwrap());
}

fn beside_histories(store: &dyn Store) {
    put(store, "sessions", "s", b"bytes");
    assert_eq!(store.head("s").unwrap(), None);
    let mut session = Session::new("s");
    assert!(store.append(&[session.append(2)])[0].is_ok());
    assert!(store.delete_document("sessions", "s").unwrap());
    assert_eq!(store.head("s").unwrap().unwrap().sequence, 2);
    assert_eq!(store.list(None, 10, Filter::All).unwrap().len(), 1);
    assert!(store.append(&[session.append(1)])[0].is_ok());
    store.probe().unwrap();
    assert!(store.documents("sessions", None, 10).unwrap().is_empty());
}
