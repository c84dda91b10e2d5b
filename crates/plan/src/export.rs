//! A run as one self-contained file that anyone can check: JSON lines with the plan, the outputs kept apart, and every
//! entry with its exact text.
//!
//! ```text
//!  {"check":"…","header":{"format":"aos-run-export/1",…}}
//!  {"check":"…","plan":{…}}
//!  {"check":"…","body":…}                    for every output kept apart, by digest
//!  {"check":"…","entry":{…},"hash":"…"}      the journal
//!  {"check":"…","footer":{"entries":…,"head":"…"}}
//! ```
//!
//! `hash` is the chain of the journal itself. `check` is a chain over the lines, so that a file which was cut or
//! changed anywhere is refused, and the first bad line is named, also where the journal's own chain does not reach.

mod import;
mod line;
mod read;
mod replayed;
mod reported;

use std::collections::BTreeSet;

use macp_ledger::Store;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::Body;
use serde::{Deserialize, Serialize};

pub use self::import::{ImportError, Imported};
pub use self::line::LineError;
pub use self::read::{ExportedRun, ReadError, read};
pub use self::replayed::{NotReplayed, replayed};
pub use self::reported::{OutputMissing, ReportError};

use self::line::Lines;
use crate::store::{Run, StoreError, Summary, bodies, plans};

/// Names the format in the header, and is the label of the chain of lines.
pub const FORMAT: &str = "aos-run-export/1";

/// What every version of the format is named after.
const FORMAT_NAME: &str = "aos-run-export/";

/// Bytes after which a chunk is handed out.
const CHUNK_BYTES: usize = 256 * 1_024;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    summary: Summary,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    bodies: u64,
    entries: u64,
    /// Chain hash of the last entry.
    head: String,
}

impl Footer {
    fn of(run: &Run, bodies: usize) -> Self {
        Self { bodies: bodies as u64, entries: run.entries.len() as u64, head: run.head().to_string() }
    }
}

/// Writes a run out, chunk by chunk. Blocks; a damaged run is not exported.
#[derive(Debug)]
pub struct Exporter<'a> {
    store: &'a dyn Store,
    run: Run,
    bodies: Vec<Digest>,
    lines: Lines,
    next: Part,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Header,
    Plan,
    Body(usize),
    Entry(usize),
    Footer,
    End,
}

impl<'a> Exporter<'a> {
    /// `None` if there is no such run. A run that is under way is exported up to where it stands.
    pub fn open(store: &'a dyn Store, run_id: &str) -> Result<Option<Self>, StoreError> {
        let Some(run) = crate::store::read::load(store, run_id)? else {
            return Ok(None);
        };
        let apart: BTreeSet<Digest> = run.bodies().filter_map(Body::output_apart).cloned().collect();
        let bodies = apart.into_iter().collect();
        Ok(Some(Self { store, run, bodies, lines: Lines::default(), next: Part::Header }))
    }

    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The next whole lines, none at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK_BYTES && !matches!(self.next, Part::End) {
            self.next = self.write(&mut chunk)?;
        }
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    /// Writes one line, if there is one at this place, and says what comes next.
    fn write(&mut self, chunk: &mut Vec<u8>) -> Result<Part, StoreError> {
        Ok(match self.next {
            Part::Header => {
                // A file tells of the run, not of the store it was read from.
                let summary =
                    Summary { imported: false, journal_bytes: 0, output_bytes: 0, ..self.run.summary.clone() };
                self.lines.header(chunk, summary);
                Part::Plan
            }
            Part::Plan => {
                let hash = &self.run.start().plan_hash;
                let (text, _) = plans::text(self.store, hash)?.ok_or_else(|| missing("plan", hash))?;
                self.lines.plan(chunk, &text);
                Part::Body(0)
            }
            Part::Body(position) => match self.bodies.get(position) {
                Some(digest) => {
                    let text = bodies::text(self.store, digest)?.ok_or_else(|| missing("output", digest))?;
                    self.lines.body(chunk, &text);
                    Part::Body(position + 1)
                }
                None => Part::Entry(0),
            },
            Part::Entry(position) => match self.run.entries.get(position) {
                Some(sealed) => {
                    self.lines.entry(chunk, sealed);
                    Part::Entry(position + 1)
                }
                None => Part::Footer,
            },
            Part::Footer => {
                self.lines.footer(chunk, &self.run, self.bodies.len());
                Part::End
            }
            Part::End => Part::End,
        })
    }
}

fn missing(what: &'static str, digest: &Digest) -> StoreError {
    StoreError::Damaged { what, key: digest.to_string(), reason: "it is not there".to_owned() }
}
