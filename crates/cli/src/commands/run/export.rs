//! `macp run export`: a run as one self-contained file.

use std::path::Path;

use anyhow::Context;
use macp_plan::export::Exporter;

use super::reported::{ReportPlace, SessionArgs};
use super::source::{Place, PlaceArgs, Unreadable, damage, open_store};
use crate::Finding;
use crate::commands::export::{OutArgs, Sink};
use crate::output::{Output, Paint};
use crate::progress;
use crate::text::clean;

/// Write a run to one self-contained file
///
/// The file holds the plan, the outputs and the exact text of every journal entry, so that `macp run verify` and
/// `macp run replay` can prove it anywhere, without a server. A damaged run is not exported. With --from-session the file
/// is made of what the run's execution session tells, so that a run whose store is lost can be imported again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run id
    run: String,
    #[command(flatten)]
    out: OutArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let mut sink = args.out.open(output)?;
    let written = match (args.session.of(&args.run, &args.place), args.place.data()) {
        (Some(reported), _) => from_session(reported, &mut sink).await,
        (None, Some(directory)) => from_directory(directory, &args.run, &mut sink),
        (None, None) => from_server(args, &mut sink).await.map_err(Unreadable::Failed),
    };
    match written {
        Ok(()) => sink.finish().map(|()| Finding::Positive),
        Err(Unreadable::Damaged(damage)) => {
            output.note(format!("{}: {}", output.paint(Paint::Bad, "not exported"), clean(&damage.to_string())));
            Ok(Finding::Negative)
        }
        Err(Unreadable::Failed(error)) => Err(error),
    }
}

fn from_directory(directory: &Path, run_id: &str, sink: &mut Sink<'_>) -> Result<(), Unreadable> {
    let store = open_store(directory)?;
    let exporter = Exporter::open(&store, run_id).map_err(damage)?;
    let mut exporter = exporter.with_context(|| format!("there is no run {run_id:?}"))?;
    let bar = sink.bar(progress::bytes(None, "exporting"));
    while let Some(chunk) = exporter.next_chunk().map_err(damage)? {
        sink.write(&chunk).map_err(anyhow::Error::from)?;
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

async fn from_session(reported: ReportPlace, sink: &mut Sink<'_>) -> Result<(), Unreadable> {
    let bytes = Place::Session(reported).bytes().await?;
    Ok(sink.write(&bytes).map_err(anyhow::Error::from)?)
}

async fn from_server(args: &Args, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    let client = args.place.server.connect().await?;
    let mut chunks = client.export_run(&args.run).await?;
    let bar = sink.bar(progress::bytes(None, "exporting"));
    let ended = loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                sink.write(&chunk)?;
                bar.inc(chunk.len() as u64);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    bar.finish_and_clear();
    ended
}
