//! Reads an export back, as distrustful as if a stranger had sent it: nothing is taken from the file that does not
//! follow from its journal, its plan and its outputs, times excepted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};
use std::sync::Arc;

use macp_ledger::Record;
use macp_plan_core::digest::{self, BODY_LABEL, Digest};
use macp_plan_core::journal::Body;
use macp_wire::canonical;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::line::{Line, LineError, Lines, RawLine, entry_of, next_line, text_of};
use super::{FORMAT, FORMAT_NAME, Footer, Header};
use crate::store::sealed::{Checker, Sealed};
use crate::store::summary::PlanFacts;
use crate::store::{Run, Summary, plans};

/// What one output may take once it is read: several times what any skill that comes with the runtime returns. A line
/// may be as long as a file, and small objects take a hundred times their text.
const BODY_MEMORY_MAX: usize = 1024 * 1024 * 1024;

/// Why an export cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the export cannot be read after line {after}")]
    Io {
        after: u64,
        #[source]
        source: io::Error,
    },
    #[error("this is no export of a run: its first line is no {FORMAT} header")]
    NotAnExport,
    #[error("the export has the format {found:?}, this program reads {FORMAT:?}; use the program that wrote it")]
    Version { found: String },
    #[error("line {line} of the export is bad: {error}")]
    Line { line: u64, error: LineError },
    #[error("the export is cut off: it ends after line {after}, without its footer")]
    Truncated { after: u64 },
    #[error("the export goes on in line {line}, after its footer")]
    Surplus { line: u64 },
}

impl ReadError {
    /// The first line that is bad, where one can be named.
    #[must_use]
    pub fn bad_line(&self) -> Option<u64> {
        match self {
            Self::Io { .. } => None,
            Self::NotAnExport | Self::Version { .. } => Some(1),
            Self::Line { line, .. } | Self::Surplus { line } => Some(*line),
            Self::Truncated { after } => Some(after + 1),
        }
    }
}

/// A run from a file, whole and checked.
#[derive(Clone, Debug)]
pub struct ExportedRun {
    pub run: Run,
    pub plan: Value,
    /// The outputs that are kept apart: their canonical texts.
    pub bodies: BTreeMap<Digest, String>,
    pub(super) plan_text: String,
}

impl ExportedRun {
    /// An output that is kept apart.
    #[must_use]
    pub fn body(&self, digest: &Digest) -> Option<Value> {
        canonical::parse(self.bodies.get(digest)?.as_bytes()).ok()
    }
}

/// Reads and checks an export from beginning to end.
pub fn read(reader: impl BufRead) -> Result<ExportedRun, ReadError> {
    let mut file = File { reader, lines: Lines::default(), line: 0 };
    let header = file.next("the header", header)?;
    let (plan_text, plan) = file.next("the plan", |line| plan(&line, &header.summary.plan_hash))?;
    let mut content = Content::new(&header.summary.run_id);
    let footer = loop {
        match file.next("an output, an entry or the footer", |line| content.take(&line))? {
            Taken::More => {}
            Taken::Footer(footer) => break footer,
        }
    };
    let run = content.finish(&header, &footer, &plan_text).map_err(|error| file.bad(error))?;
    file.end()?;
    Ok(ExportedRun { run, plan, bodies: content.bodies, plan_text })
}

/// The file, line by line.
struct File<R> {
    reader: R,
    lines: Lines,
    line: u64,
}

impl<R: BufRead> File<R> {
    fn next<T>(
        &mut self,
        expected: &'static str,
        take: impl FnOnce(Line<'_>) -> Result<Option<T>, LineError>,
    ) -> Result<T, ReadError> {
        let raw = self.raw()?.ok_or(ReadError::Truncated { after: self.line })?;
        self.line += 1;
        let raw = raw.map_err(|error| self.bad(error))?;
        if self.line == 1 {
            check_format(&raw.bytes)?;
        }
        if !raw.ended {
            return Err(ReadError::Truncated { after: self.line - 1 });
        }
        let line = self.lines.read(&raw.bytes).map_err(|error| ReadError::Line { line: self.line, error })?;
        let name = line.name.to_owned();
        match take(line) {
            Ok(Some(taken)) => Ok(taken),
            Ok(None) => Err(self.bad(LineError::Order { expected, found: name })),
            Err(error) => Err(self.bad(error)),
        }
    }

    fn raw(&mut self) -> Result<Option<Result<RawLine, LineError>>, ReadError> {
        next_line(&mut self.reader).map_err(|source| ReadError::Io { after: self.line, source })
    }

    fn end(&mut self) -> Result<(), ReadError> {
        match self.raw()? {
            None => Ok(()),
            Some(_) => Err(ReadError::Surplus { line: self.line + 1 }),
        }
    }

    fn bad(&self, error: LineError) -> ReadError {
        ReadError::Line { line: self.line, error }
    }
}

/// A first line that names another version is told from one that is no export at all.
fn check_format(line: &[u8]) -> Result<(), ReadError> {
    let text = String::from_utf8_lossy(line);
    let Some((_, rest)) = text.split_once(FORMAT_NAME) else {
        return Err(ReadError::NotAnExport);
    };
    let version: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    match format!("{FORMAT_NAME}{version}") {
        found if found == FORMAT => Ok(()),
        found => Err(ReadError::Version { found }),
    }
}

fn header(line: Line<'_>) -> Result<Option<Header>, LineError> {
    if line.name != "header" {
        return Ok(None);
    }
    let header: Header = exact(line.payload)?;
    if header.format != FORMAT {
        return Err(LineError::Content(format!("its format is {:?}, not {FORMAT:?}", header.format)));
    }
    Ok(Some(header))
}

fn plan(line: &Line<'_>, expected: &Digest) -> Result<Option<(String, Value)>, LineError> {
    if line.name != "plan" {
        return Ok(None);
    }
    let plan = canonical::parse(line.payload.as_bytes())?;
    if canonical::to_string(&plan).ok().as_deref() != Some(line.payload) {
        return Err(LineError::Content("the plan is not in its canonical form".to_owned()));
    }
    let found = plans::hash_of(&plan).map_err(|error| LineError::Content(error.to_string()))?;
    if found != *expected {
        return Err(LineError::Content(format!("the plan has the digest {found}, the run is of plan {expected}")));
    }
    Ok(Some((line.payload.to_owned(), plan)))
}

/// A payload that is written in exactly one way.
fn exact<T: Serialize + DeserializeOwned>(payload: &str) -> Result<T, LineError> {
    let value = serde_json::from_str(payload)?;
    if text_of(&value) != payload {
        return Err(LineError::Content("it is not written the way this format writes it".to_owned()));
    }
    Ok(value)
}

/// An output that stands in its entry must have the digest the entry says.
pub(super) fn check_inline(body: &Body) -> Result<(), LineError> {
    if let Some(output) = body.output()
        && let (Some(digest), Some(value)) = (&output.output_ref, &output.output)
    {
        let found = digest::of_value(BODY_LABEL, value).map_err(|error| LineError::Content(error.to_string()))?;
        if found != *digest {
            return Err(LineError::Content(format!("its output has the digest {found}, the entry says {digest}")));
        }
    }
    Ok(())
}

/// What the lines between plan and footer hold.
struct Content {
    checker: Checker,
    entries: Vec<Sealed>,
    bodies: BTreeMap<Digest, String>,
    /// Digests of the outputs that entries refer to.
    referred: BTreeSet<Digest>,
}

enum Taken {
    More,
    Footer(Footer),
}

impl Content {
    fn new(run_id: &str) -> Self {
        let (entries, bodies, referred) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { checker: Checker::new(run_id), entries, bodies, referred }
    }

    fn take(&mut self, line: &Line<'_>) -> Result<Option<Taken>, LineError> {
        match line.name {
            "body" if self.entries.is_empty() => self.take_body(line.payload)?,
            "entry" => self.take_entry(line.payload)?,
            "footer" if !self.entries.is_empty() => return Ok(Some(Taken::Footer(exact(line.payload)?))),
            _ => return Ok(None),
        }
        Ok(Some(Taken::More))
    }

    fn take_body(&mut self, payload: &str) -> Result<(), LineError> {
        let bounds = canonical::Bounds { depth_max: usize::MAX, memory_max: BODY_MEMORY_MAX };
        canonical::parse_bounded(payload.as_bytes(), bounds)?;
        let digest = digest::of_bytes(BODY_LABEL, payload.as_bytes());
        // In order and each once, as the exporter writes them: so one run has one file.
        if self.bodies.last_key_value().is_some_and(|(last, _)| *last >= digest) {
            return Err(LineError::Content(format!("the output {digest} is out of order")));
        }
        self.bodies.insert(digest, payload.to_owned());
        Ok(())
    }

    fn take_entry(&mut self, payload: &str) -> Result<(), LineError> {
        let (text, hash) = entry_of(payload).ok_or(LineError::Shape)?;
        let record = Record { sequence: self.checker.next_seq() + 1, bytes: text.to_owned().into(), hash };
        let sealed = self.checker.check(record).map_err(|error| LineError::Content(error.to_string()))?;
        check_inline(sealed.body())?;
        if let Some(digest) = sealed.body().output_apart() {
            if !self.bodies.contains_key(digest) {
                return Err(LineError::Content(format!("its output {digest} is not in the file")));
            }
            self.referred.insert(digest.clone());
        }
        self.entries.push(sealed);
        Ok(())
    }

    /// Header and footer must say what the journal says.
    fn finish(&mut self, header: &Header, footer: &Footer, plan_text: &str) -> Result<Run, LineError> {
        let unused = self.bodies.keys().find(|digest| !self.referred.contains(*digest));
        if let Some(digest) = unused {
            return Err(LineError::Content(format!("the file holds the output {digest}, no entry refers to it")));
        }
        let run = Run {
            run_id: Arc::from(header.summary.run_id.as_str()),
            entries: std::mem::take(&mut self.entries),
            summary: header.summary.clone(),
        };
        if *footer != Footer::of(&run, self.bodies.len()) {
            return Err(LineError::Content("the footer tells another number of lines or another last hash".to_owned()));
        }
        let plan: PlanFacts = serde_json::from_str(plan_text)?;
        let mut summary = Summary::begin(run.start(), &plan, header.summary.started_at_ms);
        for body in run.bodies() {
            summary.take(body, header.summary.finished_at_ms.unwrap_or_default());
        }
        if summary != header.summary {
            return Err(LineError::Content("the header tells of the run what its journal does not".to_owned()));
        }
        Ok(run)
    }
}
