//! `macp doctor`: a look inside a data directory.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_ledger::sqlite::{DATABASE_FILE, LOCK_FILE};
use macp_ledger::{Filter, Store};
use serde_json::json;

use super::run::RUNS_DIRECTORY;
use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::source::open_store;
use crate::text;
use crate::time::{distance, now_ms, stamp};

/// Sessions read at once.
const PAGE_SESSIONS: usize = 10_000;

/// Look inside a data directory without touching it
///
/// Tells how many sessions and runs there are, how large the files are, and whether a server is using them. To check the
/// histories themselves, use `macp verify --data DIR --all`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Data directory to look into
    #[arg(long, value_name = "DIR", env = "MACP_DATA_DIR", default_value = "macp-data")]
    data: PathBuf,
}

pub(crate) fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let directory = &args.data;
    let store = open_store(directory)?;
    let holder = holder(directory)?;
    let (database_bytes, log_bytes) = sizes(directory)?;
    let (sessions, entries) = count(&store)?;
    let open = store.open_sessions()?;
    let deadline = store.next_deadline()?;
    let runs = runs(directory)?;
    if output.is_json() {
        output.value(&json!({
            "data": directory,
            "sessions": sessions,
            "open": open,
            "ended": sessions.saturating_sub(open),
            "entries": entries,
            "database_bytes": database_bytes,
            "log_bytes": log_bytes,
            "next_deadline_unix_ms": deadline,
            "runs": runs.as_ref().map(|runs| runs.number),
            "unfinished_runs": runs.as_ref().map(|runs| runs.unfinished),
            "in_use": holder.is_some(),
            "in_use_by": holder,
        }))?;
        return Ok(Finding::Positive);
    }
    let line = |name: &str, value: String| {
        output.line(format!("{} {value}", output.paint(Paint::Faint, format!("{name:<13}"))))
    };
    line("data", directory.display().to_string())?;
    line("sessions", format!("{sessions}: {open} open, {} ended", sessions.saturating_sub(open)))?;
    line("entries", entries.to_string())?;
    line("size", format!("{} and {} of write-ahead log", text::bytes(database_bytes), text::bytes(log_bytes)))?;
    if let Some(deadline) = deadline {
        line("next deadline", format!("{} UTC ({})", stamp(deadline), distance(deadline, now_ms())))?;
    }
    if let Some(Runs { number, unfinished }) = runs {
        line(
            "runs",
            format!("{number} of plans: {unfinished} unfinished, {} ended", number.saturating_sub(unfinished)),
        )?;
    }
    line("in use", holder.map_or("no".to_owned(), |holder| format!("by {holder}")))?;
    Ok(Finding::Positive)
}

/// How many runs of plans there are.
struct Runs {
    number: u64,
    unfinished: u64,
}

/// None if no plan was ever executed on the directory.
fn runs(directory: &Path) -> anyhow::Result<Option<Runs>> {
    let directory = directory.join(RUNS_DIRECTORY);
    if !directory.join(DATABASE_FILE).is_file() {
        return Ok(None);
    }
    let store = open_store(&directory)?;
    let (number, _) = count(&store)?;
    Ok(Some(Runs { number, unfinished: store.open_sessions()? }))
}

fn count(store: &dyn Store) -> anyhow::Result<(u64, u64)> {
    let bar = progress::bar(None, "counting");
    let (mut sessions, mut entries) = (0, 0);
    let mut after: Option<String> = None;
    loop {
        let heads = store.list(after.as_deref(), PAGE_SESSIONS, Filter::All)?;
        let Some(last) = heads.last() else {
            bar.finish_and_clear();
            return Ok((sessions, entries));
        };
        after = Some(last.session_id.to_string());
        sessions += heads.len() as u64;
        entries += heads.iter().map(|head| head.sequence).sum::<u64>();
        bar.set_position(sessions);
    }
}

fn sizes(directory: &Path) -> anyhow::Result<(u64, u64)> {
    let database = directory.join(DATABASE_FILE);
    let log = directory.join(format!("{DATABASE_FILE}-wal"));
    let bytes = database.metadata().with_context(|| format!("cannot look at {}", database.display()))?.len();
    // There is a log only while someone has the database open, or after a crash.
    Ok((bytes, log.metadata().map_or(0, |metadata| metadata.len())))
}

/// Who has the directory locked for writing, if anyone.
fn holder(directory: &Path) -> anyhow::Result<Option<String>> {
    let path = directory.join(LOCK_FILE);
    let failed = || format!("cannot look at {}", path.display());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(failed),
    };
    // A shared lock is granted only if no writer holds the file; it goes with the handle, at once.
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            drop(file);
            let pid = std::fs::read_to_string(&path).with_context(failed)?;
            Ok(Some(format!("process {}", pid.trim())))
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(failed),
    }
}
