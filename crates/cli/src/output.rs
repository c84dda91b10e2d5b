//! Where words go: data to stdout, everything else to stderr, colour only for people.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde::Serialize;

use crate::remote;

/// How a command talks.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
    colour: bool,
    stdout: RefCell<BufWriter<Stdout>>,
    /// Whoever read the data has gone.
    unread: Cell<bool>,
}

/// A colour for a word that matters. It never carries the meaning alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Good,
    Bad,
    Warn,
    Name,
    Faint,
    Bold,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        let stdout = RefCell::new(BufWriter::new(io::stdout()));
        Output { json, terminal, colour: terminal && !no_colour, stdout, unread: Cell::new(false) }
    }

    /// Whether data is asked for as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether data scrolls by before someone's eyes.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes one line of data for people.
    pub(crate) fn line(&self, text: impl Display) -> io::Result<()> {
        self.noted(writeln!(self.stdout.borrow_mut(), "{text}"))
    }

    /// Writes one JSON value on a line of its own.
    pub(crate) fn value(&self, value: &impl Serialize) -> io::Result<()> {
        let mut stdout = self.stdout.borrow_mut();
        let written = serde_json::to_writer(&mut *stdout, value).map_err(io::Error::from);
        self.noted(written.and_then(|()| stdout.write_all(b"\n")))
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.noted(self.stdout.borrow_mut().write_all(bytes))
    }

    /// Shows what was written so far.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.noted(self.stdout.borrow_mut().flush())
    }

    /// Whether whoever read the data has seen enough, as `head` does.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.get()
    }

    /// Only a pipe of ours that is closed is no failure; a connection may break the same way.
    fn noted(&self, written: io::Result<()>) -> io::Result<()> {
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            self.unread.set(true);
        }
        written
    }

    /// Tells people something that is not data.
    pub(crate) fn note(&self, text: impl Display) {
        eprintln!("{text}");
    }

    /// Reports why a command could not do its work, causes included.
    pub(crate) fn failure(&self, error: &anyhow::Error) {
        let mut text = causes(error);
        let client = error.chain().find_map(|cause| cause.downcast_ref::<macp_client::Error>());
        let code = client.and_then(macp_client::Error::code);
        if let Some(advice) = code.and_then(remote::advice) {
            text = format!("{text}; {advice}");
        }
        if self.json {
            // In the shape of a refusal; what did not come from a server has no code.
            eprintln!("{}", serde_json::json!({ "ok": false, "error": { "code": code, "message": text } }));
        } else {
            eprintln!("error: {text}");
        }
    }

    pub(crate) fn paint(&self, paint: Paint, text: impl Display) -> String {
        if !self.colour {
            return text.to_string();
        }
        let code = match paint {
            Paint::Good => "32",
            Paint::Bad => "31",
            Paint::Warn => "33",
            Paint::Name => "36",
            Paint::Faint => "2",
            Paint::Bold => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// The causes of an error in one sentence, without those that only repeat what stands before them.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn causes_are_joined_and_not_repeated() {
        let source: Result<(), io::Error> = Err(io::Error::other("the disk is gone"));
        let error = source.context("cannot read x: the disk is gone").context("start").unwrap_err();
        assert_eq!(causes(&error), "start: cannot read x: the disk is gone");
    }
}
