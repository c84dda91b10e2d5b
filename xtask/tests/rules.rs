//! Every rule of the protocol has a test that is found by the rule's id.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Ids in the table of docs/PROTOCOL.md.
fn ids() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/PROTOCOL.md")).expect("readable");
    let table = page.split("## Rules by id").nth(1).expect("the page has the table");
    let first_cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let ids: Vec<String> = first_cells.filter(|cell| cell.contains('-')).map(str::to_owned).collect();
    assert!(ids.len() > 40, "only {} rules were found", ids.len());
    ids
}

/// Names of the test functions below a directory.
fn tests(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                if let Some(rest) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn ")) {
                    if is_test {
                        found.extend(rest.split('(').next().map(str::to_owned));
                    }
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn every_rule_has_a_test() {
    let mut names = Vec::new();
    tests(&root().join("crates"), &mut names);
    let missing: Vec<String> = ids()
        .into_iter()
        .filter(|id| {
            let prefix = format!("{}_", id.to_lowercase().replace('-', "_"));
            !names.iter().any(|name| name.starts_with(&prefix) || name.contains(&format!("_{prefix}")))
        })
        .collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
}
