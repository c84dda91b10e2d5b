//! A session as one self-contained JSON-lines file: a header, then every record with its exact bytes, so that the
//! chain can be checked again anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use macp_ledger::chain::HISTORY_LABEL;
use macp_ledger::{Failure, Hash, History, Record, Store};
use serde::{Deserialize, Serialize};

use crate::{ReadError, Source};

/// Names the format in the header.
pub(crate) const FORMAT: &str = "macp-export/1";

/// What every version of the format is named after.
pub(crate) const FORMAT_NAME: &str = "macp-export/";

/// Bytes after which a chunk is handed out.
const CHUNK_BYTES: usize = 256 * 1024;

/// First line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) format: String,
    pub(crate) chain: String,
    pub(crate) session_id: String,
    pub(crate) entries: u64,
    /// Chain hash of the last record.
    pub(crate) head: String,
}

/// Every other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) sequence: u64,
    pub(crate) hash: String,
    /// The record's bytes, in base64.
    pub(crate) record: String,
}

impl Header {
    fn new(session_id: &str, entries: u64, head: &Hash) -> Self {
        Header {
            format: FORMAT.to_owned(),
            chain: HISTORY_LABEL.to_owned(),
            session_id: session_id.to_owned(),
            entries,
            head: head.to_string(),
        }
    }
}

/// Writes a session out, chunk by chunk. A damaged history is not exported past the damage.
#[derive(Debug)]
pub struct Exporter<'a> {
    source: Source<'a>,
    header: Option<Header>,
    page: std::vec::IntoIter<Record>,
    exported: u64,
    finished: bool,
}

impl<'a> Exporter<'a> {
    /// None if there is no such session.
    pub fn open(store: &'a dyn Store, session_id: &str) -> Result<Option<Exporter<'a>>, Failure> {
        let Some(history) = History::open(store, session_id)? else {
            return Ok(None);
        };
        let head = history.head();
        let header = Header::new(&head.session_id, head.sequence, &head.hash);
        Ok(Some(Exporter {
            source: Source::Store(history),
            header: Some(header),
            page: Vec::new().into_iter(),
            exported: 0,
            finished: false,
        }))
    }

    pub fn entries(&self) -> u64 {
        self.source.entries()
    }

    /// Entries handed out so far, for showing progress.
    pub fn exported(&self) -> u64 {
        self.exported
    }

    /// The next whole lines, none at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let mut chunk = Vec::new();
        if let Some(header) = self.header.take() {
            write_line(&mut chunk, &header);
        }
        while chunk.len() < CHUNK_BYTES && !self.finished {
            match self.page.next() {
                Some(record) => {
                    self.exported = record.sequence;
                    let (hash, bytes) = (record.hash.to_string(), STANDARD.encode(&record.bytes));
                    write_line(&mut chunk, &Line { sequence: record.sequence, hash, record: bytes });
                }
                None => {
                    let page = self.source.next_page()?;
                    self.finished = page.is_empty();
                    self.page = page.into_iter().map(|(record, _)| record).collect::<Vec<_>>().into_iter();
                }
            }
        }
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}

fn write_line(chunk: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *chunk, line).expect("strings and numbers are valid JSON");
    chunk.push(b'\n');
}
