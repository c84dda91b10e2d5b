//! Tidiness as a test, over the files git knows.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Past this a file surely has a seam.
const LINES_MAX: usize = 1_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Text files of the project: those git tracks, or all outside build directories where there is no git.
fn files() -> Vec<(PathBuf, String)> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let names: Vec<PathBuf> = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8(output.stdout).expect("names are text").split('\0').map(PathBuf::from).collect()
        }
        _ => walk(Path::new("")),
    };
    let texts: Vec<_> = names
        .into_iter()
        .filter(|name| name.extension().is_none_or(|extension| extension != "lock"))
        .filter_map(|name| std::fs::read_to_string(root().join(&name)).ok().map(|text| (name, text)))
        .collect();
    assert!(texts.len() > 100, "only {} files were found", texts.len());
    texts
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(directory)).expect("readable") {
        let entry = entry.expect("readable");
        let name = directory.join(entry.file_name());
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.path().is_dir() && !hidden && entry.file_name() != "target" {
            found.extend(walk(&name));
        } else if entry.path().is_file() {
            found.push(name);
        }
    }
    found
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

#[test]
fn no_line_ends_in_blanks_and_every_file_ends_in_a_newline() {
    for (path, text) in files() {
        for (at, line) in text.lines().enumerate() {
            assert!(line == line.trim_end(), "{}:{}: trailing blanks", path.display(), at + 1);
        }
        assert!(text.is_empty() || text.ends_with('\n'), "{}: no newline at the end", path.display());
    }
}

#[test]
fn no_file_is_too_long() {
    for (path, text) in files().into_iter().filter(|(path, _)| is_rust(path)) {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines", path.display());
    }
}

#[test]
fn nothing_is_left_undone_or_ignored() {
    // Split so that this file does not find itself.
    let words = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME"), concat!("#[ign", "ore")];
    for (path, text) in files().into_iter().filter(|(path, _)| is_rust(path)) {
        for word in words {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn every_source_file_says_what_lives_in_it() {
    for (path, text) in
        files().into_iter().filter(|(path, _)| is_rust(path) && path.components().any(|part| part.as_os_str() == "src"))
    {
        assert!(text.starts_with("//!"), "{}: no module comment", path.display());
    }
}
