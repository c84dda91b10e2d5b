//! The chain over a journal: every entry is sealed to the one before it, so that a change anywhere shows.

use macp_wire::canonical;
use serde::de::Error as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::written::KIND;
use super::{Body, Entry, RunStart};
use crate::digest::JOURNAL_LABEL;

/// The kinds a reader knows, as written in `type`.
const KINDS: &[&str] = &[
    "run_started",
    "admission",
    "step_started",
    "budget_checked",
    "limiter_verdict",
    "dedupe_verdict",
    "effect_intent",
    "attempt_observed",
    "attempt_judged",
    "retry_scheduled",
    "step_finished",
    "observed",
    "cancel_requested",
    "deadline_reached",
    "budget_alert",
    "run_finished",
];

/// The hash of an entry's canonical text, given the hash of the entry before it.
#[must_use]
pub fn link(previous: Option<&str>, text: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(JOURNAL_LABEL.as_bytes());
    hash.update(b":");
    hash.update(previous.unwrap_or_default().as_bytes());
    hash.update(b":");
    hash.update(text);
    hex::encode(hash.finalize())
}

/// The canonical text of an entry and its hash. Fails only for outputs that have no canonical form, such as integers
/// beyond what every JSON implementation reads exactly.
pub fn seal(previous: Option<&str>, entry: &Entry) -> Result<(String, String), canonical::Error> {
    let text = canonical::to_string(&entry.to_value()?)?;
    let hash = link(previous, text.as_bytes());
    Ok((text, hash))
}

/// A journal that is not what was written: the first entry at which that shows, and how.
#[derive(Debug, thiserror::Error)]
#[error("the journal is broken at entry {seq}: {fault}")]
pub struct Broken {
    pub seq: u64,
    #[source]
    pub fault: Fault,
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("there is no entry")]
    Empty,
    #[error("the entry cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error("`{0}` is no kind of entry this version knows")]
    UnknownKind(String),
    #[error("the entry says that it is number {0}")]
    Gap(u64),
    #[error("its hash does not follow from the entry before it and its own text")]
    Hash,
    #[error("a journal begins with `run_started` and has it nowhere else")]
    Beginning,
    #[error("`run_finished` is the last entry of a journal, and more follows")]
    AfterEnd,
}

/// The end of a chain: where the next entry goes and what it is sealed to.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    next: u64,
    head: Option<String>,
    finished: bool,
}

impl Chain {
    /// A chain without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A chain whose entry `seq` is taken on trust: what follows must continue it. Behind the last number there is no
    /// other, and an entry of that number has no canonical form, so that nothing can be appended there.
    #[must_use]
    pub fn resume(seq: u64, hash: String) -> Self {
        Self { next: seq.saturating_add(1), head: Some(hash), finished: false }
    }

    /// The number the next entry gets.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// The hash of the last entry.
    #[must_use]
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }

    /// Whether `run_finished` has been read or written.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Seals the next entry onto the chain: the entry, its canonical text and its hash.
    pub fn append(&mut self, body: Body) -> Result<(Entry, String, String), canonical::Error> {
        let entry = Entry { seq: self.next, body };
        let (text, hash) = seal(self.head(), &entry)?;
        self.advance(&entry, hash.clone());
        Ok((entry, text, hash))
    }

    /// Reads the next entry of a stored chain, checking everything that can be checked without the plan.
    pub fn read(&mut self, text: &[u8], hash: &str) -> Result<Entry, Broken> {
        let entry = self.read_entry(text, hash).map_err(|fault| Broken { seq: self.next, fault })?;
        self.advance(&entry, hash.to_owned());
        Ok(entry)
    }

    fn read_entry(&self, text: &[u8], hash: &str) -> Result<Entry, Fault> {
        if self.finished {
            return Err(Fault::AfterEnd);
        }
        if link(self.head(), text) != hash {
            return Err(Fault::Hash);
        }
        let Value::Object(members) = canonical::parse(text).map_err(Fault::Unreadable)? else {
            return Err(Fault::Unreadable(serde_json::Error::custom("an entry is an object")));
        };
        if let Some(Value::String(kind)) = members.get(KIND)
            && !KINDS.contains(&kind.as_str())
        {
            return Err(Fault::UnknownKind(kind.clone()));
        }
        let entry = Entry::from_members(members).map_err(Fault::Unreadable)?;
        if entry.seq != self.next {
            return Err(Fault::Gap(entry.seq));
        }
        if matches!(entry.body, Body::RunStarted(_)) != (self.next == 0) {
            return Err(Fault::Beginning);
        }
        Ok(entry)
    }

    fn advance(&mut self, entry: &Entry, hash: String) {
        self.next = self.next.saturating_add(1);
        self.finished |= matches!(entry.body, Body::RunFinished(_));
        self.head = Some(hash);
    }
}

/// A journal whose chain holds: it was either read with every check, or sealed entry by entry.
#[derive(Clone, Debug)]
pub struct Journal {
    entries: Vec<Entry>,
    chain: Chain,
}

impl Journal {
    /// Begins the journal of a run.
    pub fn begin(start: RunStart) -> Result<Self, canonical::Error> {
        let mut chain = Chain::new();
        let (entry, ..) = chain.append(Body::RunStarted(Box::new(start)))?;
        Ok(Self { entries: vec![entry], chain })
    }

    /// Reads stored entries, each its text and its hash.
    pub fn read<Text: AsRef<[u8]>, Hash: AsRef<str>>(
        records: impl IntoIterator<Item = (Text, Hash)>,
    ) -> Result<Self, Broken> {
        let mut chain = Chain::new();
        let mut entries = Vec::new();
        for (text, hash) in records {
            entries.push(chain.read(text.as_ref(), hash.as_ref())?);
        }
        if entries.is_empty() {
            return Err(Broken { seq: 0, fault: Fault::Empty });
        }
        Ok(Self { entries, chain })
    }

    /// Seals one more entry and returns its text and hash.
    pub fn append(&mut self, body: Body) -> Result<(String, String), canonical::Error> {
        let (entry, text, hash) = self.chain.append(body)?;
        self.entries.push(entry);
        Ok((text, hash))
    }

    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the run was bound to.
    #[must_use]
    pub fn start(&self) -> &RunStart {
        match &self.entries[0].body {
            Body::RunStarted(start) => start,
            _ => unreachable!("a journal begins with `run_started`, by both constructors"),
        }
    }

    /// The hash of the last entry.
    #[must_use]
    pub fn head(&self) -> &str {
        self.chain.head().expect("a journal has an entry")
    }

    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Whether the run came to its end.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.chain.finished()
    }
}
