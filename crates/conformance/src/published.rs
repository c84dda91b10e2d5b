//! The public fixtures and vectors, as published with the reference runtime's package.
//!
//! They are fetched by cargo and never kept here: a manifest of three lines names the package, cargo downloads it, and
//! cargo tells where it put it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;

use crate::Counts;

/// The package that carries the fixtures.
pub const PACKAGE: &str = "macp-runtime";

/// The release of it whose fixtures are run.
pub const VERSION: &str = "0.13.0";

/// What that release holds. A set that holds less did not arrive whole.
pub const COUNTS: Counts = Counts { fixtures: 40, hash_vectors: 10, receipt_vectors: 12 };

/// Why there are no published fixtures to run.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Mostly: no network.
    #[error("cargo cannot download {PACKAGE} {VERSION}: {0}")]
    Unreachable(String),
    #[error("cannot run cargo, which downloads the fixtures")]
    NoCargo(#[source] io::Error),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cargo's answer about {PACKAGE} {VERSION} cannot be used: {0}")]
    Metadata(String),
    #[error("{PACKAGE} {VERSION} has no {}", .0.display())]
    NoFixtures(PathBuf),
}

/// The directory of the published fixtures, downloaded unless cargo has them already. Needs a directory to write a
/// small manifest into, which may be kept for the next time.
pub fn fetch(scratch: &Path) -> Result<PathBuf, FetchError> {
    let manifest = write_manifest(scratch)?;
    let known = metadata(&manifest)?;
    let output = if known.status.success() { known } else { download(&manifest)? };
    let package = package_directory(&output.stdout)?;
    let directory = package.join("tests").join("conformance");
    if !directory.is_dir() {
        return Err(FetchError::NoFixtures(directory));
    }
    Ok(directory)
}

/// A package that does nothing but depend on the one we want, and that no workspace around it claims.
fn write_manifest(scratch: &Path) -> Result<PathBuf, FetchError> {
    let text = format!(
        "[package]\nname = \"published-fixtures\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [lib]\npath = \"empty.rs\"\n\n\
         [dependencies]\n{PACKAGE} = {{ version = \"={VERSION}\", default-features = false }}\n\n[workspace]\n"
    );
    let manifest = scratch.join("Cargo.toml");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FetchError::Write { path, source }
    };
    fs::create_dir_all(scratch).map_err(failed(scratch))?;
    for (path, text) in [(&manifest, text.as_str()), (&scratch.join("empty.rs"), "")] {
        fs::write(path, text).map_err(failed(path))?;
    }
    Ok(manifest)
}

fn download(manifest: &Path) -> Result<Output, FetchError> {
    let fetched = cargo(&["fetch"], manifest)?;
    if !fetched.status.success() {
        return Err(FetchError::Unreachable(complaint(&fetched)));
    }
    let output = metadata(manifest)?;
    if !output.status.success() {
        return Err(FetchError::Metadata(complaint(&output)));
    }
    Ok(output)
}

/// What cargo knows without asking anyone.
fn metadata(manifest: &Path) -> Result<Output, FetchError> {
    cargo(&["metadata", "--format-version", "1", "--offline"], manifest)
}

fn cargo(arguments: &[&str], manifest: &Path) -> Result<Output, FetchError> {
    let mut command = Command::new("cargo");
    command.args(arguments).arg("--manifest-path").arg(manifest);
    command.output().map_err(FetchError::NoCargo)
}

fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

fn package_directory(stdout: &[u8]) -> Result<PathBuf, FetchError> {
    let metadata: Metadata = serde_json::from_slice(stdout).map_err(|error| FetchError::Metadata(error.to_string()))?;
    let package = metadata.packages.into_iter().find(|package| package.name == PACKAGE && package.version == VERSION);
    let manifest = package.map(|package| package.manifest_path);
    let directory = manifest.as_deref().and_then(Path::parent);
    directory.map(Path::to_owned).ok_or_else(|| FetchError::Metadata("it does not name the package".to_owned()))
}
