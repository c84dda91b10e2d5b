//! `macp export`: a session as one self-contained file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use macp_archive::{Exporter, ReadError};
use macp_client::Client;
use serde_json::json;

use super::damage::{Damage, explain};
use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::remote::ServerArgs;
use crate::source::{no_session, open_store};
use crate::text::{self, clean};

/// Write a session to one self-contained file
///
/// The file holds the exact bytes of every record, one JSON line each, so that `macp verify` and `macp replay` can
/// prove it again anywhere, without a server. A damaged history is not exported.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id
    session: String,
    #[command(flatten)]
    out: OutArgs,
    /// Read this data directory instead of asking a server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Where an export goes.
#[derive(Debug, clap::Args)]
pub(super) struct OutArgs {
    /// File to write; stdout if none is given
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "out")]
    force: bool,
}

impl OutArgs {
    pub(super) fn open<'a>(&self, output: &'a Output) -> anyhow::Result<Sink<'a>> {
        if let Some(path) = self.out.as_deref().filter(|path| !self.force && path.exists()) {
            bail!("{} is there already; pass --force to replace it", path.display());
        }
        Sink::create(self.out.as_deref(), output)
    }
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let mut sink = args.out.open(output)?;
    let damage = match &args.data {
        Some(directory) => from_directory(directory, &args.session, &mut sink)?,
        None => from_server(&args.server.connect().await?, &args.session, &mut sink).await?,
    };
    match damage {
        None => sink.finish().map(|()| Finding::Positive),
        Some(damage) => sink.refuse(&damage).map(|()| Finding::Negative),
    }
}

/// None if the reading and not the history is at fault.
fn damage(error: &ReadError) -> Option<Damage> {
    error.bad_sequence().map(|sequence| Damage { sequence, message: error.to_string() })
}

fn from_directory(directory: &Path, session_id: &str, sink: &mut Sink<'_>) -> anyhow::Result<Option<Damage>> {
    let store = open_store(directory)?;
    let exporter = Exporter::open(&store, session_id)?;
    let mut exporter = exporter.with_context(|| no_session(session_id))?;
    let bar = sink.bar(progress::bar(Some(exporter.entries()), "exporting"));
    loop {
        match exporter.next_chunk() {
            Ok(Some(chunk)) => sink.write(&chunk)?,
            Ok(None) => break,
            Err(error) => {
                bar.finish_and_clear();
                let damage = damage(&error);
                return if damage.is_some() { Ok(damage) } else { Err(error.into()) };
            }
        }
        bar.set_position(exporter.exported());
    }
    bar.finish_and_clear();
    Ok(None)
}

async fn from_server(client: &Client, session_id: &str, sink: &mut Sink<'_>) -> anyhow::Result<Option<Damage>> {
    let mut chunks = client.export(session_id).await?;
    let bar = sink.bar(progress::bytes(None, "exporting"));
    let ended = loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                sink.write(&chunk)?;
                bar.inc(chunk.len() as u64);
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    bar.finish_and_clear();
    match ended {
        None => Ok(None),
        Some(error) => explain(client, session_id, error).await.map(Some),
    }
}

/// Where an export goes. A file appears under its name only when it is whole.
#[derive(Debug)]
pub(super) enum Sink<'a> {
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

    pub(super) fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout(output) => output.bytes(chunk),
            Sink::File { file, bytes, .. } => {
                *bytes += chunk.len() as u64;
                file.write_all(chunk)
            }
        }
    }

    /// An export that scrolls by is progress enough.
    pub(super) fn bar(&self, bar: ProgressBar) -> ProgressBar {
        match self {
            Sink::Stdout(output) if output.is_terminal() => ProgressBar::hidden(),
            Sink::Stdout(_) | Sink::File { .. } => bar,
        }
    }

    /// Leaves no file. The finding goes where the data does not.
    fn refuse(self, damage: &Damage) -> anyhow::Result<()> {
        let (output, aside) = match &self {
            Sink::Stdout(output) => (*output, true),
            Sink::File { output, .. } => (*output, false),
        };
        let Damage { sequence, message } = damage;
        if output.is_json() {
            let value = damage.to_json();
            if aside {
                output.note(value)
            } else {
                output.value(&value)?
            }
            return Ok(());
        }
        let word = output.paint(Paint::Bad, "not exported");
        let text = format!("{word}, the history is damaged at entry {sequence}: {}", clean(message));
        if aside {
            output.note(text)
        } else {
            output.line(text)?
        }
        Ok(())
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        let Sink::File { file, path, bytes, output } = self else {
            return Ok(());
        };
        let failed = || format!("cannot write {}", path.display());
        file.as_file().sync_all().with_context(failed)?;
        super::set_readable(file.as_file()).with_context(failed)?;
        file.persist(&path).with_context(failed)?;
        if output.is_json() {
            output.value(&json!({ "ok": true, "file": path, "bytes": bytes }))?;
        } else {
            output.note(format!("wrote {} ({})", path.display(), text::bytes(bytes)));
        }
        Ok(())
    }
}
