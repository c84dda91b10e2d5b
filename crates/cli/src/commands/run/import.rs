//! `macp run import`: takes over a run that was exported elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use macp_client::Error;
use macp_plan::export::{self, ExportedRun, ImportError, Imported};
use macp_plan::store::RunStore;
use macp_wire::codes::Code;
use serde_json::json;

use crate::Finding;
use crate::commands::plan::CatalogArgs;
use crate::databases;
use crate::output::{Output, Paint, causes};
use crate::progress;
use crate::remote::ServerArgs;
use crate::text::clean;

/// Bytes of a file sent at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Take over a finished run from a file
///
/// The file is checked from end to end and replayed first: a run that decides otherwise than it is recorded is refused.
/// It is stored whole or not at all. Its effects are known to retries of it alone: the same plan, started from its file,
/// makes them once more. With --data it goes into that data directory, on which no server may be running.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File written by `macp run export`
    file: PathBuf,
    /// Data directory to bring it into, instead of a server; created if it is missing
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    catalog: CatalogArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    // A bad file is told in the words of this program, before anyone else hears of it.
    let exported = match export::read(bytes.as_slice()) {
        Ok(exported) => exported,
        Err(error) if error.bad_line().is_some() => {
            return refused(Code::InvalidRequest, &causes(&error.into()), output);
        }
        Err(error) => return Err(error.into()),
    };
    let (run_id, existing, not_compared) = match &args.data {
        Some(directory) => {
            let not_compared = match export::replayed(&exported, &args.catalog.catalog()?) {
                Ok(not_compared) => not_compared,
                Err(error) => {
                    let code = if error.is_unreadable() { Code::InvalidRequest } else { Code::RunConflict };
                    return refused(code, &causes(&error.into()), output);
                }
            };
            match into_directory(directory, exported).await? {
                Ok(Imported::New { run_id, .. }) => (run_id.to_string(), false, not_compared),
                Ok(Imported::AlreadyThere { run_id }) => (run_id.to_string(), true, not_compared),
                Err(refusal) => return refused(Code::RunConflict, &refusal, output),
            }
        }
        None => {
            let client = args.server.connect().await?;
            let bar = progress::waiting("importing");
            let bytes = bytes::Bytes::from(bytes);
            let starts = (0..bytes.len()).step_by(CHUNK_BYTES);
            let chunks: Vec<_> = starts.map(|start| bytes.slice(start..bytes.len().min(start + CHUNK_BYTES))).collect();
            let answer = client.import_run(tokio_stream::iter(chunks)).await;
            bar.finish_and_clear();
            let answer = match answer {
                Ok(answer) => answer,
                Err(Error::Status(status)) => match status.macp_code.as_deref().and_then(about_the_file) {
                    Some(code) => return refused(code, &status.message, output),
                    None => return Err(Error::Status(status).into()),
                },
                Err(error) => return Err(error.into()),
            };
            (answer.run_id, answer.existing, answer.not_compared)
        }
    };
    for open in not_compared.iter().filter(|_| !output.is_json()) {
        output.note(format!("warning: not decided again: {}", clean(open)));
    }
    if output.is_json() {
        output.value(&json!({ "ok": true, "run_id": run_id, "new": !existing, "not_compared": not_compared }))?;
    } else if existing {
        output.line(format!("{} is there already, with the same journal", clean(&run_id)))?;
    } else {
        output.line(format!("{} {}", output.paint(Paint::Good, "imported"), clean(&run_id)))?;
        output.note("its effects are known here to retries of it alone: to start its plan would make them once more");
    }
    Ok(Finding::Positive)
}

/// The inner error is about the run, the outer one about the work.
async fn into_directory(directory: &Path, exported: ExportedRun) -> anyhow::Result<Result<Imported, String>> {
    let store = databases::open_runs(directory)?;
    let runs = RunStore::open(Arc::new(store))?;
    let imported = runs.import(exported).await;
    runs.shutdown().await;
    match imported {
        Ok(imported) => Ok(Ok(imported)),
        Err(error @ (ImportError::Open(_) | ImportError::Differs(_))) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// The code of an answer that is about the file, and not about the server or the caller.
fn about_the_file(code: &str) -> Option<Code> {
    [Code::RunConflict, Code::InvalidRequest].into_iter().find(|known| known.as_str() == code)
}

/// With the code a server would give.
fn refused(code: Code, problem: &str, output: &Output) -> anyhow::Result<Finding> {
    if output.is_json() {
        output.value(&json!({ "ok": false, "error": { "code": code.as_str(), "message": problem } }))?;
    } else {
        output.line(format!("{}: {}", output.paint(Paint::Bad, "not imported"), clean(problem)))?;
    }
    Ok(Finding::Negative)
}
