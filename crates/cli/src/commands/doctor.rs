//! `macp doctor`: a look inside a data directory.

use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_ledger::sqlite::{DATABASE_FILE, holder};
use macp_ledger::{FailureKind, Filter, SqliteStore, Store};
use serde_json::json;

use super::run::RUNS_DIRECTORY;
use crate::Finding;
use crate::databases::missing;
use crate::output::{Output, Paint};
use crate::progress;
use crate::text;
use crate::time::{distance, now_ms, stamp};

/// Sessions read at once.
const PAGE_SESSIONS: usize = 10_000;

/// Look inside a data directory without touching it
///
/// Shows how many sessions and runs there are, how large the files are, whether a server is using them, and whether
/// acknowledged data is missing. To check the histories themselves, use `macp verify --data DIR --all`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Data directory to look into
    #[arg(long, value_name = "DIR", env = "MACP_DATA_DIR", default_value = "macp-data")]
    data: PathBuf,
}

pub(crate) fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let directory = &args.data;
    let missing = missing(directory)?;
    let line = |name: &str, value: String| {
        output.line(format!("{} {value}", output.paint(Paint::Faint, format!("{name:<13}"))))
    };
    let finding = Finding::from_ok(missing.is_empty());
    let store = match SqliteStore::open_read_only(directory) {
        Ok(store) => store,
        Err(failure) if failure.kind() == FailureKind::Loss => {
            if output.is_json() {
                output.value(&json!({ "data": directory, "missing": missing }))?;
            } else {
                missing.iter().try_for_each(|text| line("missing", output.paint(Paint::Bad, text)))?;
            }
            return Ok(finding);
        }
        Err(failure) => return Err(failure.into()),
    };
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
            "missing": missing,
        }))?;
        return Ok(finding);
    }
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
    missing.iter().try_for_each(|text| line("missing", output.paint(Paint::Bad, text)))?;
    Ok(finding)
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
    let store = match SqliteStore::open_read_only(&directory) {
        // What is missing is reported as that.
        Err(failure) if failure.kind() == FailureKind::Loss => return Ok(None),
        store => store?,
    };
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
