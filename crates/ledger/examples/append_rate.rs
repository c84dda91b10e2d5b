//! How many entries a second the SQLite store makes durable here, beside what the disk can sync.
//!
//! `cargo run --release -p macp-ledger --example append_rate -- [--directory DIR] [--entries N] [--sessions N]
//! [--length N] [--batch N] [--bytes N]`
//!
//! `--sessions` are live at any time; each ends after `--length` entries and another takes its place.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use macp_ledger::chain;
use macp_ledger::contract::sample::Session;
use macp_ledger::{Append, SqliteStore, Store};

const SYNC_SECONDS: Duration = Duration::from_secs(2);
const SUMMARY_BYTES: usize = 120;

fn main() {
    let flags: HashMap<String, String> = std::env::args().skip(1).zip(std::env::args().skip(2)).step_by(2).collect();
    let number = |name: &str, default: usize| flags.get(name).map_or(default, |text| text.parse().expect("a number"));
    let scratch;
    let directory = match flags.get("--directory") {
        Some(directory) => Path::new(directory),
        None => {
            scratch = tempfile::tempdir_in(".").expect("a temporary directory");
            scratch.path()
        }
    };
    let entries = number("--entries", 1_000_000);
    let sessions = number("--sessions", 1_000);
    let length = number("--length", 10) as u64;
    let batch = number("--batch", 256);
    let bytes = number("--bytes", 250);

    println!("syncs/s, overwriting a 4 KiB page, fsync:     {:>9.0}", syncs(directory, File::sync_all));
    println!("syncs/s, overwriting a 4 KiB page, fdatasync: {:>9.0}", syncs(directory, File::sync_data));

    let store = SqliteStore::open(directory).expect("a store");
    let mut created = 0;
    let mut live: Vec<_> = (0..sessions).map(|_| fresh(&mut created)).collect();
    let mut times = Vec::with_capacity(entries / batch + 1);
    let mut next = 0;
    while times.len() * batch < entries {
        let appends: Vec<_> = (0..batch)
            .map(|offset| {
                let session = &mut live[(next + offset) % sessions];
                let append = one(session, bytes, length);
                if !append.index.open {
                    *session = fresh(&mut created);
                }
                append
            })
            .collect();
        next += batch;
        let start = Instant::now();
        let results = store.append(&appends);
        times.push(start.elapsed());
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    let total: Duration = times.iter().sum();
    let stored = times.len() * batch;
    times.sort();
    println!(
        "{stored} entries of {bytes} bytes, {batch} a batch, {sessions} live sessions of {length} entries, {created} in all"
    );
    println!("durable entries/s: {:>9.0}", stored as f64 / total.as_secs_f64());
    println!("commits/s:         {:>9.0}", times.len() as f64 / total.as_secs_f64());
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
        let position = ((times.len() as f64 * share) as usize).min(times.len() - 1);
        println!("append {name:<6}      {:>9.2} ms", times[position].as_secs_f64() * 1e3);
    }
    let log = store.path().with_extension("db-wal");
    println!("write-ahead log:   {:>9} KiB", std::fs::metadata(log).map_or(0, |log| log.len()) / 1_024);
}

/// Ids come in no order, like the random ones of real sessions.
fn fresh(created: &mut u64) -> Session {
    *created += 1;
    let mut session = Session::new(&chain::link("id", None, &created.to_le_bytes()).to_string()[..32]);
    session.deadline_ms = i64::try_from(*created).expect("a small number");
    session
}

/// One entry, as the engine appends them: the first brings the summary, the last ends the session.
fn one(session: &mut Session, bytes: usize, length: u64) -> Append {
    let is_first = session.sequence == 0;
    let mut append = if session.sequence + 1 == length { session.end() } else { session.append_sized(1, bytes) };
    append.index.summary = is_first.then(|| vec![b's'; SUMMARY_BYTES].into());
    append
}

fn syncs(directory: &Path, sync: impl Fn(&File) -> std::io::Result<()>) -> f64 {
    let mut file = tempfile::tempfile_in(directory).expect("a file");
    file.write_all(&vec![1; 4 << 20]).and_then(|()| file.sync_all()).expect("room for the file");
    let start = Instant::now();
    let mut count = 0_u64;
    while start.elapsed() < SYNC_SECONDS {
        file.write_all_at(&[2; 4_096], count % 1_000 * 4_096).and_then(|()| sync(&file)).expect("a sync");
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}
