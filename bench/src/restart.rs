//! Does a past cost time at start-up?

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use macp_kernel::{Caller, Command, Input, Limits, Registered, SignatureCheck, step};
use macp_ledger::{Append, Hash, IndexUpdate, Record, SqliteStore, Store, record};
use macp_wire::v1::GetManifestRequest;

use crate::child::Process;
use crate::decision;
use crate::messages::Profile;
use crate::report::{Report, median};

const STARTS: usize = 7;
const SESSIONS_PER_BATCH: usize = 500;

pub async fn run(report: &mut Report, sessions: usize) -> anyhow::Result<()> {
    let (empty, full) = (tempfile::tempdir()?, tempfile::tempdir()?);
    eprintln!("writing {sessions} ended sessions");
    fill(full.path(), sessions)?;
    let (mut bare, mut laden) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        bare.push(start_ms(empty.path()).await?);
        laden.push(start_ms(full.path()).await?);
    }
    let (bare, laden) = (median(bare), median(laden));
    let detail = format!("{sessions} ended sessions: ready in {laden:.1} ms, empty in {bare:.1} ms");
    report.at_most("restart, milliseconds over an empty directory", laden - bare, 50.0, detail);
    Ok(())
}

/// From spawning the process to its first answer.
async fn start_ms(data: &Path) -> anyhow::Result<f64> {
    let began = Instant::now();
    let server = Process::real(data, 100_000)?;
    server.client().await?.get_manifest(GetManifestRequest::default()).await?;
    Ok(began.elapsed().as_secs_f64() * 1000.0)
}

/// Writes ended sessions the way the engine does: decided by the kernel, sealed, appended.
fn fill(directory: &Path, sessions: usize) -> anyhow::Result<()> {
    let store = SqliteStore::open(directory)?;
    for first in (0..sessions).step_by(SESSIONS_PER_BATCH) {
        let batch: Vec<Append> =
            (first..sessions.min(first + SESSIONS_PER_BATCH)).map(|at| ended(&format!("ended-{at:08}"))).collect();
        for result in store.append(&batch) {
            result?;
        }
    }
    Ok(())
}

fn ended(id: &str) -> Append {
    let mut slot = None;
    let mut records: Vec<Record> = Vec::new();
    for envelope in decision::session(Profile::Classic, id) {
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered: Registered::default() };
        let command = Command { caller: Caller::anonymous(), input };
        for mut entry in step(&mut slot, &command, 1_700_000_000_000, &Limits::default()).entries {
            let previous: Option<Hash> = records.last().map(|record| record.hash);
            if let (Some(terminal), Some(hash)) = (&mut entry.terminal, &previous) {
                terminal.history_hash = hash.as_bytes().to_vec().into();
            }
            records.push(record::seal(previous.as_ref(), &entry));
        }
    }
    let session = slot.expect("the session was started");
    let index = IndexUpdate {
        open: false,
        deadline_ms: session.position().deadline_ms,
        state: session.state().to_wire().into(),
        summary: Some(prost::Message::encode_to_vec(&session.summary()).into()),
    };
    Append { session_id: Arc::from(id), expected_sequence: 0, expected_hash: None, records, index }
}
