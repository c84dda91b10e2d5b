//! Every rule of the protocol has a test that is found by the rule's id.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("readable")
}

/// The cells of every row of the first table below a heading.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split(heading).nth(1).unwrap_or_else(|| panic!("the page has {heading:?}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// Ids in the table of docs/PROTOCOL.md.
fn classic_ids() -> Vec<String> {
    let rows = rows(&page("PROTOCOL.md"), "## Rules by id");
    let ids: Vec<String> = rows.into_iter().map(|mut row| row.remove(0)).filter(|cell| cell.contains('-')).collect();
    assert!(ids.len() > 40, "only {} rules were found", ids.len());
    ids
}

/// Ids in the first table of docs/RULES.md, which names them by ranges.
fn standard_ids() -> Vec<String> {
    let mut ids = Vec::new();
    for row in rows(&page("RULES.md"), "## What there is") {
        for range in row[1].split(',').map(str::trim) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("{text:?} in {row:?}"));
            ids.extend((number(first)..=number(last)).map(|number| format!("{}-{number}", row[0])));
        }
    }
    assert!(ids.len() > 190, "only {} rules were found", ids.len());
    ids
}

/// Names of the test functions in the workspace.
fn tests() -> Vec<String> {
    let mut found = Vec::new();
    for room in ["crates", "xtask"] {
        tests_below(&root().join(room), &mut found);
    }
    found
}

fn tests_below(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            tests_below(&path, found);
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

/// Whether a test is named after a rule: `std_core_4_…`, `std_core_31_32_…`, `std_core_31_to_33_…`, `…_std_sec_5`.
fn names(test: &str, id: &str) -> bool {
    let words: Vec<&str> = test.split('_').collect();
    let id = id.to_lowercase();
    let (family, number) = id.rsplit_once('-').expect("an id ends in its number");
    let number: u32 = number.parse().expect("an id ends in its number");
    let family: Vec<&str> = family.split('-').collect();
    let mut places = (0..words.len()).filter(|at| words[*at..].starts_with(&family));
    // `std_rpc_9` is about STD-RPC-9 and not about RPC-9.
    places.any(|at| {
        let is_longer = at > 0 && words[at - 1] == "std";
        !is_longer && numbers(&words[at + family.len()..]).contains(&number)
    })
}

/// The numbers a list of words begins with.
fn numbers(words: &[&str]) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        match (word.parse(), found.last().copied()) {
            (Ok(number), _) => found.push(number),
            (Err(_), Some(first)) if *word == "to" => match words.peek().and_then(|next| next.parse::<u32>().ok()) {
                Some(last) => found.extend(first + 1..last),
                None => break,
            },
            (Err(_), _) => break,
        }
    }
    found
}

fn is_named(id: &str, tests: &[String]) -> bool {
    tests.iter().any(|test| names(test, id))
}

#[test]
fn every_rule_has_a_test() {
    let tests = tests();
    let missing: Vec<String> = classic_ids().into_iter().filter(|id| !is_named(id, &tests)).collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
}

#[test]
fn every_rule_of_the_standard_has_a_test() {
    let tests = tests();
    let shown = rows(&page("RULES.md"), "## Shown by tests of another name");
    let ids = standard_ids();
    for row in &shown {
        assert!(ids.contains(&row[0]), "{} is no rule", row[0]);
        for test in row[2].split(',').map(|test| test.trim().trim_matches('`')).filter(|test| !test.is_empty()) {
            assert!(tests.iter().any(|known| known == test), "{}: there is no test {test}", row[0]);
        }
    }
    let is_shown = |id: &String| shown.iter().any(|row| row[0] == *id);
    let missing: Vec<String> = ids.into_iter().filter(|id| !is_shown(id) && !is_named(id, &tests)).collect();
    assert!(missing.is_empty(), "no test shows {missing:?}");
}

#[test]
fn a_test_names_its_rules() {
    for (test, id, is_one) in [
        ("std_core_4_message_ids", "STD-CORE-4", true),
        ("std_core_41_other", "STD-CORE-4", false),
        ("std_core_35_36_unknown_types", "STD-CORE-36", true),
        ("std_core_31_to_33_signals", "STD-CORE-32", true),
        ("std_core_31_to_33_signals", "STD-CORE-34", false),
        ("a_token_gives_what_its_entry_says_std_sec_5", "STD-SEC-5", true),
        ("rpc_4_rpc_9_cancel", "RPC-9", true),
        ("std_rpc_9_get_session", "RPC-9", false),
        ("std_core_28_the_1025th_resume", "STD-CORE-1025", false),
    ] {
        assert_eq!(names(test, id), is_one, "{test} {id}");
    }
}
