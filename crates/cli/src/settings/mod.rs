//! Everything `macp serve` can be told, from one list.
//!
//! ```text
//!  flag ─┐
//!  environment ─┤ first found wins, per setting ──▶ Serve, validated whole
//!  config file ─┤
//!  default ─┘
//! ```
//!
//! [`list::settings`] declares every setting once; flags, variables, keys of the file, the help and the reference in
//! the documents all come from it. Nothing else reads the environment or the file.

mod draft;
mod file;
mod files;
mod flags;
mod layers;
mod list;
mod plans;
mod policies;
mod reference;
mod roles;
mod value;
mod variables;
mod whole;

use std::path::PathBuf;

use anyhow::Context;
use macp_archive::Keys;
use macp_edge::Reloadable;
use macp_wire::v1::Root;

use files::Files;
pub(crate) use flags::SettingFlags;
pub(crate) use layers::Layers;
use plans::Plans;
pub(crate) use plans::read_rate_card;
pub(crate) use policies::read_policy;
pub(crate) use reference::markdown;

use crate::logging;

/// Where histories are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Directory(PathBuf),
    Memory,
}

/// All settings of a server, typed and checked.
#[derive(Clone, Debug)]
pub(crate) struct Serve {
    pub(crate) server: macp_edge::Settings,
    pub(crate) place: Place,
    pub(crate) files: Files,
    pub(crate) plans: Plans,
    pub(crate) keys_file: Option<PathBuf>,
    pub(crate) roots: Vec<Root>,
    pub(crate) log_format: logging::Format,
    pub(crate) log_filter: String,
    pub(crate) ready_file: Option<PathBuf>,
    /// Things the operator should hear about although they stop nothing.
    pub(crate) warnings: Vec<String>,
}

impl Serve {
    /// The settings of the server with everything that is read from files once.
    pub(crate) fn load(&self) -> anyhow::Result<macp_edge::Settings> {
        let mut settings = self.server.clone();
        self.files.load(&mut settings)?;
        settings.reloadable = self.reloadable().context("cannot read the signing keys of senders")?;
        Ok(settings)
    }

    /// What the transport is secured with.
    pub(crate) fn tls(&self) -> &'static str {
        self.files.tls()
    }

    /// What a running server can take in anew: roots, and the keys in their file.
    pub(crate) fn reloadable(&self) -> Result<Reloadable, macp_archive::KeysError> {
        let keys = match &self.keys_file {
            Some(path) => Keys::read(path)?,
            None => Keys::none(),
        };
        Ok(Reloadable { roots: self.roots.clone(), keys })
    }
}
