//! `macp export`: a session as one self-contained file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_archive::Exporter;

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;
use crate::source::{no_session, open_store};
use crate::text;

/// Write a session to one self-contained file
///
/// The file holds the exact bytes of every record, one JSON line each, so that `macp verify` and `macp replay` can
/// prove it again anywhere, without a server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    /// File to write; stdout if none is given
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Read this data directory instead of asking a server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let mut sink = Sink::create(args.out.as_deref(), output)?;
    match &args.data {
        Some(directory) => {
            let store = open_store(directory)?;
            let exporter = Exporter::open(&store, &args.session)?;
            let mut exporter = exporter.with_context(|| no_session(&args.session))?;
            while let Some(chunk) = exporter.next_chunk()? {
                sink.write(&chunk)?;
            }
        }
        None => {
            let mut chunks = args.server.connect().await?.export(&args.session).await?;
            while let Some(chunk) = chunks.next().await? {
                sink.write(&chunk)?;
            }
        }
    }
    sink.finish()?;
    Ok(Finding::Positive)
}

/// Where an export goes. A file appears under its name only when it is whole.
#[derive(Debug)]
enum Sink<'a> {
    Stdout(&'a Output),
    File { file: tempfile::NamedTempFile, path: PathBuf, bytes: u64, output: &'a Output },
}

impl<'a> Sink<'a> {
    fn create(path: Option<&Path>, output: &'a Output) -> anyhow::Result<Sink<'a>> {
        let Some(path) = path else {
            return Ok(Sink::Stdout(output));
        };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".macp-export-")
            .tempfile_in(directory)
            .with_context(|| format!("cannot write to {}", directory.display()))?;
        Ok(Sink::File { file, path: path.to_owned(), bytes: 0, output })
    }

    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout(output) => output.bytes(chunk),
            Sink::File { file, bytes, .. } => {
                *bytes += chunk.len() as u64;
                file.write_all(chunk)
            }
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        let Sink::File { file, path, bytes, output } = self else {
            return Ok(());
        };
        let failed = || format!("cannot write {}", path.display());
        file.as_file().sync_all().with_context(failed)?;
        set_readable(file.as_file()).with_context(failed)?;
        file.persist(&path).with_context(failed)?;
        if output.is_json() {
            output.value(&serde_json::json!({ "ok": true, "file": path, "bytes": bytes }))?;
        } else {
            output.note(format!("wrote {} ({})", path.display(), text::bytes(bytes)));
        }
        Ok(())
    }
}

/// An export is an ordinary file; temporary ones are for their owner alone.
#[cfg(unix)]
fn set_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_readable(_file: &File) -> io::Result<()> {
    Ok(())
}
