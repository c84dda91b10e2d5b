//! Whatever is changed in a stored history is found, at the right place.

use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::DATABASE_FILE;
use macp_ledger::{Corruption, CorruptionKind, Filter, History, ReadError, SqliteStore, Store};
use rusqlite::{Connection, params};
use tempfile::TempDir;

const LENGTH: u64 = 6;

/// A stored session "s" among others, and a way to tamper with it.
struct Victim {
    directory: TempDir,
    raw: Connection,
}

impl Victim {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = SqliteStore::open(directory.path()).unwrap();
        let (mut before, mut session, mut after) = (Session::new("r"), Session::new("s"), Session::new("t"));
        let batch = [before.append(3), session.append(5), after.append(3), session.end()];
        assert!(store.append(&batch).iter().all(Result::is_ok));
        drop(store);
        let raw = Connection::open(directory.path().join(DATABASE_FILE)).unwrap();
        let victim = Self { directory, raw };
        victim.verify().expect("whole before anything is changed");
        victim
    }

    /// Reads the session to its end.
    fn verify(&self) -> Result<(), Corruption> {
        let store = SqliteStore::open_read_only(self.directory.path()).unwrap();
        let mut history = History::open(&store, "s").unwrap().expect("the session exists");
        loop {
            match history.next_page() {
                Ok(page) if page.is_empty() => return Ok(()),
                Ok(_) => {}
                Err(ReadError::Corruption(corruption)) => return Err(corruption),
                Err(ReadError::Failure(failure)) => panic!("{failure:?}"),
            }
        }
    }

    /// Runs one statement on the record with that sequence, looks what is found, and undoes it.
    #[track_caller]
    fn tampered(&self, sql: &str, sequence: u64) -> Corruption {
        self.raw.execute_batch("CREATE TEMP TABLE kept AS SELECT rowid AS place, * FROM main.entries").unwrap();
        let changed = self.raw.execute(sql, params![sequence.cast_signed()]).unwrap();
        assert_eq!(changed, 1, "{sql}");
        let found = self.verify().expect_err(sql);
        self.raw
            .execute_batch(
                "DELETE FROM main.entries;
                 INSERT INTO main.entries (rowid, session, sequence, bytes, hash)
                     SELECT place, session, sequence, bytes, hash FROM temp.kept;
                 DROP TABLE temp.kept",
            )
            .unwrap();
        self.verify().expect("whole after the change is undone");
        found
    }

    fn blob(&self, column: &str, sequence: u64) -> Vec<u8> {
        let sql = format!("SELECT {column} FROM entries WHERE session = 2 AND sequence = ?1");
        self.raw.query_row(&sql, [sequence.cast_signed()], |row| row.get(0)).unwrap()
    }

    fn set_blob(&self, column: &str, sequence: u64, value: &[u8]) {
        let sql = format!("UPDATE entries SET {column} = ?2 WHERE session = 2 AND sequence = ?1");
        assert_eq!(self.raw.execute(&sql, params![sequence.cast_signed(), value]).unwrap(), 1);
    }
}

#[test]
fn one_flipped_bit_in_bytes_or_hash_is_found_where_it_is() {
    let victim = Victim::new();
    for sequence in 1..=LENGTH {
        for column in ["bytes", "hash"] {
            let whole = victim.blob(column, sequence);
            for position in 0..whole.len() {
                let mut flipped = whole.clone();
                flipped[position] ^= 1 << (position % 8);
                victim.set_blob(column, sequence, &flipped);
                let found = victim.verify().expect_err("a flipped bit");
                assert_eq!(found.sequence, sequence, "{column}, byte {position}");
                assert!(matches!(found.kind, CorruptionKind::Hash { .. }), "{found}");
                assert!(found.to_string().contains(&format!("sequence {sequence}")), "{found}");
            }
            victim.set_blob(column, sequence, &whole);
        }
    }
    victim.verify().unwrap();
}

#[test]
fn a_record_moved_away_is_missed_where_it_was() {
    let victim = Victim::new();
    for sequence in 1..=LENGTH {
        for sql in [
            "UPDATE entries SET sequence = sequence + 4096 WHERE session = 2 AND sequence = ?1",
            "UPDATE entries SET sequence = -sequence WHERE session = 2 AND sequence = ?1",
            "UPDATE entries SET session = session + 64 WHERE session = 2 AND sequence = ?1",
            "DELETE FROM entries WHERE session = 2 AND sequence = ?1",
        ] {
            let found = victim.tampered(sql, sequence);
            assert_eq!(found.sequence, sequence, "{sql}");
            let is_right = match found.kind {
                CorruptionKind::Missing { found } => sequence < LENGTH && found == sequence + 1,
                CorruptionKind::Truncated { indexed } => sequence == LENGTH && indexed == LENGTH,
                _ => false,
            };
            assert!(is_right, "{sql}: {found}");
        }
    }
}

#[test]
fn a_record_of_another_session_does_not_pass() {
    let victim = Victim::new();
    let sql = "UPDATE entries SET (bytes, hash) = (SELECT bytes, hash FROM entries WHERE session = 3 AND sequence = 2)
               WHERE session = 2 AND sequence = ?1";
    assert_eq!(victim.tampered(sql, 2).sequence, 2);
}

#[test]
fn an_index_that_disagrees_is_found() {
    let victim = Victim::new();
    let check = |sql: &str, sequence: u64, is_right: fn(&CorruptionKind) -> bool| {
        victim.raw.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM main.sessions WHERE id = 's'").unwrap();
        assert_eq!(victim.raw.execute(sql, []).unwrap(), 1);
        let found = victim.verify().expect_err(sql);
        victim.raw.execute_batch("REPLACE INTO main.sessions SELECT * FROM temp.kept; DROP TABLE temp.kept").unwrap();
        victim.verify().expect("whole after the change is undone");
        assert_eq!(found.sequence, sequence, "{sql}: {found}");
        assert!(is_right(&found.kind), "{sql}: {found}");
    };
    check("UPDATE sessions SET sequence = 7 WHERE id = 's'", 7, |kind| {
        matches!(kind, CorruptionKind::Truncated { indexed: 7 })
    });
    check("UPDATE sessions SET hash = zeroblob(32) WHERE id = 's'", 6, |kind| {
        matches!(kind, CorruptionKind::Head { .. })
    });
    check(
        "UPDATE sessions SET sequence = 5, hash = (SELECT hash FROM entries WHERE session = 2 AND sequence = 5)
         WHERE id = 's'",
        6,
        |kind| *kind == CorruptionKind::Unindexed,
    );
    check("UPDATE sessions SET sequence = 0 WHERE id = 's'", 1, |kind| *kind == CorruptionKind::Unindexed);
}

#[test]
fn a_hash_of_the_wrong_size_is_found_where_it_is() {
    let victim = Victim::new();
    for sequence in 1..=LENGTH {
        let whole = victim.blob("hash", sequence);
        // One that begins with the right hash is none either.
        for wrong in [b"".to_vec(), b"short".to_vec(), [&whole[..], b"more"].concat()] {
            victim.set_blob("hash", sequence, &wrong);
            let found = victim.verify().expect_err("no hash");
            assert_eq!(found.sequence, sequence);
            assert!(found.to_string().contains("stored is something that is no hash"), "{found}");
        }
        victim.set_blob("hash", sequence, &whole);
    }
    victim.verify().unwrap();
}

#[test]
fn a_damaged_row_of_the_index_is_found_and_hides_no_other() {
    let victim = Victim::new();
    for (column, value, message) in [
        ("hash", "x'00'", "the last hash is something that is no hash"),
        ("sequence", "-1", "does not count"),
        ("state", "4294967296", ""),
    ] {
        victim.raw.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM main.sessions WHERE id = 's'").unwrap();
        victim.raw.execute(&format!("UPDATE sessions SET {column} = {value} WHERE id = 's'"), []).unwrap();
        let store = SqliteStore::open_read_only(victim.directory.path()).unwrap();
        let listed = store.list(None, 10, Filter::All).expect(column);
        assert_eq!(listed.iter().map(|head| &*head.session_id).collect::<Vec<_>>(), ["r", "s", "t"], "{column}");
        match victim.verify() {
            Err(found) => assert!(found.to_string().contains(message), "{found}"),
            // What a state means, only those above the ledger know.
            Ok(()) => assert_eq!((column, listed[1].state), ("state", 0)),
        }
        victim.raw.execute_batch("REPLACE INTO main.sessions SELECT * FROM temp.kept; DROP TABLE temp.kept").unwrap();
    }
}

#[test]
fn a_history_without_its_row_is_found() {
    let victim = Victim::new();
    let store = SqliteStore::open_read_only(victim.directory.path()).unwrap();
    assert_eq!(store.next_stray(None).unwrap(), None);
    victim.raw.execute("DELETE FROM sessions WHERE id IN ('s', 't')", []).unwrap();
    let first = store.next_stray(None).unwrap().expect("s is found");
    assert_eq!((first.entries, first.first.sequence), (LENGTH, 1));
    let second = store.next_stray(Some(first.key)).unwrap().expect("t is found");
    assert_eq!((second.entries, second.first.sequence), (3, 1));
    assert_eq!(store.next_stray(Some(second.key)).unwrap(), None);
}
