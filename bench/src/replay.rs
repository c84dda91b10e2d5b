//! How fast a history is proven: chain checked and every decision taken again, on one core.

use std::sync::Arc;
use std::time::Instant;

use macp_archive::{Replay, Source, replay};
use macp_kernel::replay::Options;
use macp_kernel::{Caller, Command, Input, Limits, Registered, SignatureCheck, step};
use macp_ledger::{Append, Hash, History, IndexUpdate, MemoryStore, Record, Store, record};

use crate::decision;
use crate::messages::Profile;
use crate::report::Report;

pub fn run(report: &mut Report, entries: usize) -> anyhow::Result<()> {
    let store = MemoryStore::new();
    let append = long_session(entries);
    for result in store.append(&[append]) {
        result?;
    }
    let Some(history) = History::open(&store, "long")? else {
        anyhow::bail!("the session was written");
    };
    let began = Instant::now();
    let outcome = replay(&mut Source::Store(history), Options::default(), &mut |_| {});
    let rate = entries as f64 / began.elapsed().as_secs_f64();
    if !matches!(outcome, Replay::Match(_)) {
        anyhow::bail!("the replay does not match: {outcome:?}");
    }
    report.at_least("entries replayed per second, one core", rate, 100_000.0, format!("{entries} entries"));
    Ok(())
}

fn long_session(entries: usize) -> Append {
    let limits = Limits { session_entries_max: u64::MAX, session_bytes_max: u64::MAX, ..Limits::default() };
    let profile = Profile::Classic;
    let evaluation = decision::evaluation(profile, "p1");
    let first = [
        profile.start("long", &["alice", "bob"]),
        profile.message("long", "Proposal", "p1", "alice", decision::proposal(profile, "p1")),
    ];
    let rest =
        (2..entries).map(|at| profile.message("long", "Evaluation", &format!("m{at}"), "bob", evaluation.clone()));
    let mut slot = None;
    let mut records: Vec<Record> = Vec::with_capacity(entries);
    for envelope in first.into_iter().chain(rest) {
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
        let command = Command { caller: Caller::anonymous(), input };
        for entry in step(&mut slot, &command, 1_700_000_000_000, &limits).entries {
            let previous: Option<Hash> = records.last().map(|record| record.hash);
            records.push(record::seal(previous.as_ref(), &entry));
        }
    }
    let index = IndexUpdate { open: true, deadline_ms: i64::MAX, state: 1, summary: None };
    Append { session_id: Arc::from("long"), expected_sequence: 0, expected_hash: None, records, index }
}
