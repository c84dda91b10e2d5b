//! Puts flags, environment, config file and defaults on top of each other.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use super::draft::Draft;
use super::file::ConfigFile;
use super::files::Files;
use super::list::{Default, Setting, settings};
use super::value::Value;
use super::{Place, Serve, SettingFlags, variables, whole};

/// Everything that was said, before it is put together. Kept, so that the config file can be read again. Not to be
/// shown: the environment holds secrets, its own and those of others.
#[derive(Clone)]
pub(crate) struct Layers {
    flags: SettingFlags,
    environment: BTreeMap<OsString, OsString>,
    config: Option<PathBuf>,
}

/// Why settings cannot be used: every problem, one a line.
#[derive(Debug)]
pub(crate) struct Invalid(Vec<String>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => write!(f, "invalid settings: {problem}"),
            problems => write!(f, "invalid settings:\n  {}", problems.join("\n  ")),
        }
    }
}

impl std::error::Error for Invalid {}

/// Where a value came from; the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Default,
    File,
    Environment,
    Flag,
}

impl Layers {
    /// Notes what the command line and the environment say. An empty variable counts as absent, unless it is one that
    /// must not be.
    pub(crate) fn new(
        flags: SettingFlags,
        config: Option<PathBuf>,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Layers {
        let environment: BTreeMap<_, _> =
            environment.filter(|(name, value)| !value.is_empty() || variables::protects(name)).collect();
        let config = config.or_else(|| environment.get(OsStr::new(variables::CONFIG)).map(PathBuf::from));
        Layers { flags, environment, config }
    }

    /// Reads the config file and puts everything together.
    pub(crate) fn resolve(&self) -> Result<Serve, Invalid> {
        let mut problems = variables::refused(&self.environment);
        let file = match &self.config {
            None => ConfigFile::default(),
            Some(path) => ConfigFile::read(path).unwrap_or_else(|found| {
                problems.extend(found);
                ConfigFile::default()
            }),
        };
        let mut draft = Draft::new();
        let mut layers = BTreeMap::new();
        for setting in settings() {
            let found = match self.find(setting, &file) {
                Ok(found) => found,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            if let Some((layer, value)) = found {
                layers.insert(setting.key, layer);
                if let Err(problem) = (setting.apply)(&mut draft, &value) {
                    problems.push(format!("{}: {problem}", self.origin(setting, layer)));
                }
            }
        }
        let in_memory = in_memory(&draft, &layers).unwrap_or_else(|problem| {
            problems.push(problem);
            false
        });
        if !file.roles.is_empty() {
            if !draft.auth.roles.is_empty() {
                problems.push("roles are given in the config file and as JSON; keep one of them".to_owned());
            }
            draft.auth.roles.clone_from(&file.roles);
        }
        draft.plans.skills.providers.clone_from(&file.providers);
        draft.plans.sessions.scopes.clone_from(&file.scopes);
        draft.plans.profiles.clone_from(&file.profiles);
        problems.extend(whole::check(&draft));
        let files = Files {
            tls: draft.tls.clone(),
            receipts: draft.receipts.clone(),
            policies_dir: draft.policies_dir.clone(),
        };
        let names_runtime = layers.get("runtime_id").is_some_and(|layer| *layer > Layer::Default);
        problems.extend(files.check(names_runtime).into_iter().map(str::to_owned));
        match std::mem::take(&mut draft.auth).settings() {
            Ok(auth) => draft.server.auth = auth,
            Err(found) => problems.extend(found.iter().map(ToString::to_string)),
        }
        if !problems.is_empty() {
            return Err(Invalid(problems));
        }
        Ok(self.assemble(draft, files, in_memory, file))
    }

    fn assemble(&self, mut draft: Draft, files: Files, in_memory: bool, file: ConfigFile) -> Serve {
        draft.server.audit = draft.audit();
        let place = if in_memory { Place::Memory } else { Place::Directory(draft.data) };
        Serve {
            server: draft.server,
            place,
            files,
            plans: draft.plans,
            keys_file: draft.keys_file,
            roots: file.roots,
            log_format: draft.log_format,
            log_filter: draft.log_filter,
            ready_file: draft.ready_file,
            warnings: variables::warnings(&self.environment),
        }
    }

    /// The value of the highest layer that says something.
    fn find(&self, setting: &Setting, file: &ConfigFile) -> Result<Option<(Layer, Value)>, String> {
        if let Some(text) = self.flags.given.get(setting.key) {
            return self.parse(setting, Layer::Flag, text).map(Some);
        }
        if let Some(text) = self.variable(setting) {
            return self.parse(setting, Layer::Environment, text).map(Some);
        }
        if let Some(value) = file.values.get(setting.key) {
            return Ok(Some((Layer::File, value.clone())));
        }
        match setting.default {
            Default::Is(text) => self.parse(setting, Layer::Default, OsStr::new(text)).map(Some),
            Default::Unset(_) => Ok(None),
        }
    }

    fn parse(&self, setting: &Setting, layer: Layer, text: &OsStr) -> Result<(Layer, Value), String> {
        let origin = || self.origin(setting, layer);
        let text = text.to_str().ok_or_else(|| format!("{}: the value is not valid UTF-8", origin()))?;
        let value = setting.kind.parse(text).map_err(|problem| format!("{}: {problem}", origin()))?;
        Ok((layer, value))
    }

    fn variable(&self, setting: &Setting) -> Option<&OsString> {
        // Rust programs share this variable, so it counts where ours is not set.
        let also = if setting.key == "log" { self.environment.get(OsStr::new("RUST_LOG")) } else { None };
        self.environment.get(OsStr::new(setting.env)).or(also)
    }

    /// How the operator named it.
    fn origin(&self, setting: &Setting, layer: Layer) -> String {
        match layer {
            Layer::Flag => format!("--{}", setting.flag.unwrap_or(setting.key)),
            Layer::Environment => setting.env.to_owned(),
            Layer::File => match &self.config {
                Some(path) => format!("{}: {}", path.display(), setting.key),
                None => setting.key.to_owned(),
            },
            Layer::Default => format!("default of {}", setting.key),
        }
    }
}

/// A data directory and memory exclude each other: whatever was said closer to the command line wins.
fn in_memory(draft: &Draft, layers: &BTreeMap<&'static str, Layer>) -> Result<bool, String> {
    if !draft.memory {
        return Ok(false);
    }
    let layer = |key| layers.get(key).copied().unwrap_or(Layer::Default);
    match layer("memory").cmp(&layer("data")) {
        std::cmp::Ordering::Greater => Ok(true),
        std::cmp::Ordering::Less => Ok(false),
        std::cmp::Ordering::Equal => {
            Err("both memory and a data directory are asked for; choose one of them".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
