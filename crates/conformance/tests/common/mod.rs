//! The public set, for the tests that run it.
//!
//! It comes from `MACP_CONFORMANCE_DIR`, or from the package it is published with. Without a network there is nothing
//! to run; then this says so on the terminal, unless `MACP_CONFORMANCE_REQUIRED` makes it an error, as `cargo xtask
//! verify` does once it has fetched the set.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use macp_conformance::published::{self, FetchError};
use macp_conformance::{Outcome, Report, Set};

/// The whole public set, read once; none when it cannot be had.
pub(crate) fn set() -> Option<&'static Set> {
    static SET: OnceLock<Option<Set>> = OnceLock::new();
    SET.get_or_init(load).as_ref()
}

fn load() -> Option<Set> {
    let directory = match std::env::var_os("MACP_CONFORMANCE_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => match published::fetch(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("published-fixtures")) {
            Ok(directory) => directory,
            Err(error @ (FetchError::Unreachable(_) | FetchError::NoCargo(_))) => {
                let text = format!("the public conformance fixtures were NOT run: {error}");
                assert!(std::env::var_os("MACP_CONFORMANCE_REQUIRED").is_none(), "{text}");
                // Written past the test harness, which would keep it to itself.
                writeln!(std::io::stderr(), "{text}").expect("stderr takes text");
                return None;
            }
            Err(error) => panic!("{error}"),
        },
    };
    let set = Set::load(&directory).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(set.counts(), published::COUNTS, "{} is not the whole set", directory.display());
    Some(set)
}

/// Our own fixtures.
pub(crate) fn own() -> Set {
    let set = Set::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")).expect("a set");
    assert_eq!(set.fixtures.len(), 7, "a fixture was added or lost");
    set
}

/// None may have failed.
pub(crate) fn judge(reports: &[Report]) {
    let failed = reports.iter().filter(|report| matches!(report.outcome, Outcome::Failed { .. }));
    let failed: Vec<String> =
        failed.map(|report| format!("{}\n  {}", report.name, report.failures().join("\n  "))).collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), reports.len(), failed.join("\n"));
}
