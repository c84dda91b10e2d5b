//! `macp import`: brings an exported session into a data directory.

use std::path::PathBuf;

use macp_archive::{ExportFile, FileError, ImportError, Imported, check_import, import};
use macp_ledger::SqliteStore;
use serde_json::json;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::text::{clean, count};

/// Bring an exported session into a data directory
///
/// Only sessions that have ended are taken: an open one has its authority on the server it runs on. The file is
/// checked from end to end first, and stored whole or not at all. No server may be running on the directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File written by `macp export`
    file: PathBuf,
    /// Data directory to bring it into; created if it is missing
    #[arg(long, value_name = "DIR", env = "MACP_DATA_DIR")]
    data: PathBuf,
}

pub(crate) fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let file = match ExportFile::open(&args.file) {
        Ok(file) => file,
        Err(error @ FileError::Header { .. }) => return refused(&error, output),
        Err(error) => return Err(error.into()),
    };
    let bar = progress::bar(Some(file.entries()), "importing");
    let checked = check_import(file, &mut |entries| bar.set_position(entries));
    bar.finish_and_clear();
    // A file that is not taken leaves no directory behind.
    let imported = checked.and_then(|session| import(session, &SqliteStore::open(&args.data)?));
    let imported = match imported {
        Ok(imported) => imported,
        Err(error) if is_finding(&error) => return refused(&error, output),
        Err(error) => return Err(error.into()),
    };
    let (session_id, entries, new) = match &imported {
        Imported::New { session_id, entries } => (session_id, Some(*entries), true),
        Imported::AlreadyThere { session_id } => (session_id, None, false),
    };
    if output.is_json() {
        output.value(&json!({ "ok": true, "session_id": session_id, "new": new, "entries": entries }))?;
    } else if let Some(entries) = entries {
        let entries = count(entries, "entry", "entries");
        output.line(format!("{} {} ({entries})", output.paint(Paint::Good, "imported"), clean(session_id)))?;
    } else {
        output.line(format!("{} is there already, with the same history", clean(session_id)))?;
    }
    Ok(Finding::Positive)
}

/// Whether the file and not the work is at fault.
fn is_finding(error: &ImportError) -> bool {
    match error {
        ImportError::Read(error) => error.bad_sequence().is_some(),
        ImportError::Replay(_) | ImportError::Open(_) | ImportError::Differs(_) => true,
        _ => false,
    }
}

fn refused(error: &dyn std::error::Error, output: &Output) -> anyhow::Result<Finding> {
    if output.is_json() {
        output.value(&json!({ "ok": false, "message": error.to_string() }))?;
    } else {
        output.line(format!("{}: {}", output.paint(Paint::Bad, "not imported"), clean(&error.to_string())))?;
    }
    Ok(Finding::Negative)
}
