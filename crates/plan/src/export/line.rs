//! One line of an export: a name, a payload, and a check that covers both and every line before.
//!
//! Lines are taken apart by their fixed frame and never written anew: what is hashed is what stands in the file.

use std::io::{self, BufRead, Read};

use macp_ledger::Hash;
use macp_ledger::chain;
use serde::Serialize;

use super::{FORMAT, Footer, Header};
use crate::store::{Run, Sealed, Summary};

/// Longest line: the largest output and room to spare.
const LINE_BYTES_MAX: u64 = 128 * 1_024 * 1_024;

const BEGIN: &str = "{\"check\":\"";
const HASH_DIGITS: usize = 64;
/// Between the text of an entry and its hash.
const HASH_BEGIN: &str = ",\"hash\":\"";

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("it does not have the shape of a line of an export")]
    Shape,
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("it was changed, or a line before it is missing: its check should be {expected}, found is {found}")]
    Check { expected: Hash, found: Hash },
    #[error("a {found} line stands where {expected} belongs")]
    Order { expected: &'static str, found: String },
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("{0}")]
    Content(String),
}

/// The chain over the lines, for writing and for reading.
#[derive(Debug, Default)]
pub(super) struct Lines {
    check: Option<Hash>,
}

/// A line that passed its check.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) payload: &'a str,
}

impl Lines {
    pub(super) fn header(&mut self, chunk: &mut Vec<u8>, summary: Summary) {
        self.write(chunk, "header", &text_of(&Header { format: FORMAT.to_owned(), summary }));
    }

    pub(super) fn plan(&mut self, chunk: &mut Vec<u8>, text: &str) {
        self.write(chunk, "plan", text);
    }

    pub(super) fn body(&mut self, chunk: &mut Vec<u8>, text: &str) {
        self.write(chunk, "body", text);
    }

    pub(super) fn entry(&mut self, chunk: &mut Vec<u8>, sealed: &Sealed) {
        let text = String::from_utf8_lossy(&sealed.text);
        self.write(chunk, "entry", &format!("{text}{HASH_BEGIN}{}\"", sealed.hash));
    }

    pub(super) fn footer(&mut self, chunk: &mut Vec<u8>, run: &Run, bodies: usize) {
        self.write(chunk, "footer", &text_of(&Footer::of(run, bodies)));
    }

    fn write(&mut self, chunk: &mut Vec<u8>, name: &str, payload: &str) {
        let content = format!("\"{name}\":{payload}");
        let check = chain::link(FORMAT, self.check.as_ref(), content.as_bytes());
        self.check = Some(check);
        chunk.extend_from_slice(format!("{BEGIN}{check}\",{content}}}\n").as_bytes());
    }

    /// Takes a line apart; it must continue the lines before it.
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, LineError> {
        let line = std::str::from_utf8(line).map_err(|_| LineError::NotText)?;
        let rest = line.strip_prefix(BEGIN).ok_or(LineError::Shape)?;
        let (found, rest) = rest.split_at_checked(HASH_DIGITS).ok_or(LineError::Shape)?;
        let found = hash_of(found).ok_or(LineError::Shape)?;
        let content = rest.strip_prefix("\",").and_then(|rest| rest.strip_suffix('}')).ok_or(LineError::Shape)?;
        let expected = chain::link(FORMAT, self.check.as_ref(), content.as_bytes());
        if found != expected {
            return Err(LineError::Check { expected, found });
        }
        self.check = Some(found);
        let content = content.strip_prefix('"').ok_or(LineError::Shape)?;
        let (name, payload) = content.split_once("\":").ok_or(LineError::Shape)?;
        Ok(Line { name, payload })
    }
}

/// The text and the hash in the payload of an entry line.
pub(super) fn entry_of(payload: &str) -> Option<(&str, Hash)> {
    let rest = payload.strip_suffix('"')?;
    let (rest, hash) = rest.split_at_checked(rest.len().checked_sub(HASH_DIGITS)?)?;
    Some((rest.strip_suffix(HASH_BEGIN)?, hash_of(hash)?))
}

/// One spelling only, so that no byte can change unnoticed.
fn hash_of(text: &str) -> Option<Hash> {
    text.parse().ok().filter(|hash: &Hash| hash.to_string() == text)
}

pub(super) fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and integers are JSON")
}

/// A line without its end.
#[derive(Debug)]
pub(super) struct RawLine {
    pub(super) bytes: Vec<u8>,
    /// Only the last line of a file that was cut has no end.
    pub(super) ended: bool,
}

/// The next line, none at the end of the file; inside, what is wrong with one that cannot be kept.
pub(super) fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Result<RawLine, LineError>>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let ended = bytes.last() == Some(&b'\n');
    if ended {
        bytes.pop();
    } else if bytes.len() as u64 > LINE_BYTES_MAX {
        return Ok(Some(Err(LineError::TooLong)));
    }
    Ok(Some(Ok(RawLine { bytes, ended })))
}
