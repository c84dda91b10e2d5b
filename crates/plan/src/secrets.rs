//! Secrets: parameters name them, and a skill looks them up at the last moment before it calls out.
//!
//! No value ever reaches a plan, a journal, a log line or an error: what is printed anywhere is the name.

mod granted;
mod hosts;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub(crate) use granted::{Allowed, Granted};
pub(crate) use hosts::Bindings;
pub use hosts::{NotABinding, check_bindings};

/// What stands before a secret's name in a parameter.
pub const REFERENCE: &str = "secret://";

/// Longer than any file name a directory of secrets could hold.
const NAME_LENGTH_MAX: usize = 128;

/// Secrets by name.
pub trait Secrets: fmt::Debug + Send + Sync {
    fn secret(&self, name: &str) -> Result<Zeroizing<String>, Error>;
}

/// Why a call does not get a secret. Plans read these errors, so they contain names only, and no difference between a
/// secret that does not exist, one that cannot be read and one that is bound to other hosts. The log has the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "`{REFERENCE}` must be followed by a name of letters, digits, `_`, `-` and `.` that begins with a letter or digit"
    )]
    Name,
    #[error("the secret `{name}` is not available to this call; the server's log has the reason")]
    Unavailable { name: String },
    #[error("the step does not name `{REFERENCE}{name}`; only a plan itself may name a secret")]
    NotNamed { name: String },
}

impl Error {
    /// Logs, for the operator alone, why a call does not get a secret.
    pub(crate) fn unavailable(name: &str, reason: impl fmt::Display) -> Self {
        tracing::warn!(secret = name, %reason, "a call does not get a secret");
        Self::Unavailable { name: name.to_owned() }
    }
}

/// Where secrets come from. Both sources may be used; variables of the environment win.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A secret `api-key` is read from this prefix and `API_KEY`; null turns the source off.
    pub environment_prefix: Option<String>,
    /// A directory with one file per secret, named like it.
    pub directory: Option<PathBuf>,
    /// Where secrets may be sent, as `shop-token=api.shop.example`. One that is named here goes to its hosts alone; the
    /// keys of model providers go nowhere else unless they are.
    pub hosts: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { environment_prefix: Some("MACP_SECRET_".to_owned()), directory: None, hosts: Vec::new() }
    }
}

/// Secrets as configured: variables are read once, files each time, so that a rotated file is seen.
pub struct Configured {
    settings: Settings,
    variables: BTreeMap<String, OsString>,
}

impl Configured {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::from_variables(settings, std::env::vars_os())
    }

    /// The same, with another environment than that of this process.
    #[must_use]
    pub fn from_variables(settings: Settings, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let prefix = settings.environment_prefix.as_deref();
        let ours = |name: &str| prefix.is_some_and(|prefix| name.starts_with(prefix));
        let named = variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let variables = named.filter(|(name, _)| ours(name)).collect();
        Self { settings, variables }
    }

    fn missing(&self, name: &str) -> Error {
        Error::unavailable(name, format_args!("it is not configured; {}", self.remedy(name)))
    }

    /// What an operator does to configure a secret.
    fn remedy(&self, name: &str) -> String {
        let variable = self.variable(name).map(|variable| format!("set the variable {variable}"));
        let file = self.settings.directory.as_ref().map(|path| format!("write the file {}", path.join(name).display()));
        match (variable, file) {
            (Some(variable), Some(file)) => format!("{variable} or {file}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => "no source of secrets is configured".to_owned(),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        let prefix = self.settings.environment_prefix.as_deref()?;
        Some(format!("{prefix}{}", same_name(name)))
    }
}

impl Secrets for Configured {
    fn secret(&self, name: &str) -> Result<Zeroizing<String>, Error> {
        if !is_name(name) {
            return Err(Error::Name);
        }
        if let Some(value) = self.variable(name).and_then(|variable| self.variables.get(&variable)) {
            let text = value.to_str().ok_or_else(|| Error::unavailable(name, "its variable is not text in UTF-8"))?;
            return Ok(Zeroizing::new(text.to_owned()));
        }
        match &self.settings.directory {
            Some(directory) => self.read(directory, name),
            None => Err(self.missing(name)),
        }
    }
}

impl Configured {
    fn read(&self, directory: &Path, name: &str) -> Result<Zeroizing<String>, Error> {
        let path = directory.join(name);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.missing(name)),
            Err(error) => {
                return Err(Error::unavailable(name, format_args!("cannot read {}: {error}", path.display())));
            }
        };
        // The decoder's error would say where the text breaks off, which is about the value.
        let no_text = |_| Error::unavailable(name, format_args!("{} is not text in UTF-8", path.display()));
        let text = std::str::from_utf8(&bytes).map_err(no_text)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        Ok(Zeroizing::new(text.strip_suffix('\r').unwrap_or(text).to_owned()))
    }
}

impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configured").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Secrets held in memory: for programs that embed the executor, and for tests.
#[derive(Default)]
pub struct Held(BTreeMap<String, Zeroizing<String>>);

impl Held {
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(name.into(), Zeroizing::new(value.into()));
        self
    }
}

impl Secrets for Held {
    fn secret(&self, name: &str) -> Result<Zeroizing<String>, Error> {
        if !is_name(name) {
            return Err(Error::Name);
        }
        let missing = || Error::unavailable(name, "it is not among the secrets this program holds");
        self.0.get(name).cloned().ok_or_else(missing)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.0.keys()).finish()
    }
}

/// Whether a text names secrets.
#[must_use]
pub fn mentions(text: &str) -> bool {
    text.contains(REFERENCE)
}

/// Checks that every `secret://` in a text is followed by a name, without looking one up.
pub fn check(text: &str) -> Result<(), Error> {
    parts(text).map(|_| ())
}

/// Puts values in the place of references: `Bearer secret://token` becomes a usable header.
pub fn expand(text: &str, secrets: &dyn Secrets) -> Result<Zeroizing<String>, Error> {
    let mut expanded = Zeroizing::new(String::new());
    for part in parts(text)? {
        match part {
            Part::Plain(plain) => expanded.push_str(plain),
            Part::Secret(name) => expanded.push_str(&secrets.secret(name)?),
        }
    }
    Ok(expanded)
}

/// The names of the secrets that a text mentions.
pub(crate) fn names(text: &str) -> Result<Vec<&str>, Error> {
    let names = parts(text)?.into_iter().filter_map(|part| match part {
        Part::Plain(_) => None,
        Part::Secret(name) => Some(name),
    });
    Ok(names.collect())
}

enum Part<'a> {
    Plain(&'a str),
    Secret(&'a str),
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, Error> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(REFERENCE) {
        let end = after.find(|letter: char| !is_name_letter(letter)).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if !is_name(name) {
            return Err(Error::Name);
        }
        parts.extend([Part::Plain(before), Part::Secret(name)]);
        rest = after;
    }
    parts.push(Part::Plain(rest));
    Ok(parts)
}

/// The one form of all spellings of a name that lead to the same variable, so that what holds for one holds for all.
fn same_name(name: &str) -> String {
    name.to_ascii_uppercase().replace(['-', '.'], "_")
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_LENGTH_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(is_name_letter)
}

pub(crate) fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}
