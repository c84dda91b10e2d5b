//! A directory of fixtures and vectors, read whole before anything runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Fixture, HashVector, Level, ReadError, ReceiptVector};

/// Everything to run, by name.
#[derive(Clone, Debug, Default)]
pub struct Set {
    pub fixtures: BTreeMap<String, Fixture>,
    pub hash_vectors: BTreeMap<String, HashVector>,
    pub receipt_vectors: BTreeMap<String, ReceiptVector>,
}

/// How much a set holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub fixtures: usize,
    pub hash_vectors: usize,
    pub receipt_vectors: usize,
}

/// Why a directory is not a set.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: ReadError },
    #[error("{}: the name tells no level; fixtures are called after what they test, such as decision_…", path.display())]
    NoLevel { path: PathBuf },
    #[error("{}: the vector calls itself {name:?}", path.display())]
    Misnamed { path: PathBuf, name: String },
    #[error("{} holds no fixtures", path.display())]
    Empty { path: PathBuf },
}

impl Set {
    /// Reads `*.json` in the directory as fixtures, `cmt-hash/` as hash vectors, and `receipt/` as receipt vectors
    /// (the published package keeps those beside the directory, in `vectors/receipt/`). Schemas are left alone.
    pub fn load(directory: &Path) -> Result<Set, LoadError> {
        let mut set = Set::default();
        for (path, text) in files(directory)? {
            let fixture = Fixture::parse(&text).map_err(|source| LoadError::Read { path: path.clone(), source })?;
            set.fixtures.insert(named(&path)?, fixture);
        }
        if set.fixtures.is_empty() {
            return Err(LoadError::Empty { path: directory.to_owned() });
        }
        let hashes = directory.join("cmt-hash");
        if hashes.is_dir() {
            set.hash_vectors = vectors(&hashes, HashVector::parse, |vector| &vector.name)?;
        }
        let beside = directory.parent().unwrap_or(directory).join("vectors").join("receipt");
        if let Some(receipts) = [directory.join("receipt"), beside].into_iter().find(|path| path.is_dir()) {
            set.receipt_vectors = vectors(&receipts, ReceiptVector::parse, |vector| &vector.name)?;
        }
        Ok(set)
    }

    pub fn counts(&self) -> Counts {
        Counts {
            fixtures: self.fixtures.len(),
            hash_vectors: self.hash_vectors.len(),
            receipt_vectors: self.receipt_vectors.len(),
        }
    }
}

fn vectors<V>(
    directory: &Path,
    parse: fn(&str) -> Result<V, ReadError>,
    name_of: fn(&V) -> &String,
) -> Result<BTreeMap<String, V>, LoadError> {
    let mut vectors = BTreeMap::new();
    for (path, text) in files(directory)? {
        let vector = parse(&text).map_err(|source| LoadError::Read { path: path.clone(), source })?;
        let name = named(&path)?;
        if *name_of(&vector) != name {
            return Err(LoadError::Misnamed { path, name: name_of(&vector).clone() });
        }
        vectors.insert(name, vector);
    }
    Ok(vectors)
}

/// Name of the fixture or vector in a file; it must tell its level.
fn named(path: &Path) -> Result<String, LoadError> {
    let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    match Level::of(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(LoadError::NoLevel { path: path.to_owned() }),
    }
}

/// The JSON files of a directory that are not schemas, with their texts.
fn files(directory: &Path) -> Result<Vec<(PathBuf, String)>, LoadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LoadError::Io { path, source }
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path = entry.map_err(failed(directory))?.path();
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let is_schema = path.file_stem().and_then(OsStr::to_str).is_some_and(|name| name.ends_with("schema"));
        if is_json && !is_schema {
            let text = fs::read_to_string(&path).map_err(failed(&path))?;
            files.push((path, text));
        }
    }
    Ok(files)
}
