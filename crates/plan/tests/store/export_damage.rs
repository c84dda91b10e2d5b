//! Exports that were cut, changed or forged: refused, with the first bad line named.

use macp_ledger::chain;
use macp_plan::export::{self, FORMAT, ReadError};
use macp_plan_core::journal;
use proptest::prelude::*;

use crate::export::recorded;
use crate::sample;

async fn file(body_bytes: usize) -> Vec<u8> {
    recorded(&sample::memory(), "r-2031", body_bytes).await
}

fn refused(file: &[u8]) -> ReadError {
    match export::read(file) {
        Err(error) => error,
        Ok(_) => panic!("taken: {}", String::from_utf8_lossy(file)),
    }
}

/// The number of the line that holds a byte, from 1.
fn line_of(file: &[u8], position: usize) -> u64 {
    1 + file[..position].iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[tokio::test]
async fn a_flipped_bit_at_every_place_is_found_in_its_line() {
    let file = file(10).await;
    for position in 0..file.len() {
        for flip in [0x01, 0x20] {
            let mut changed = file.clone();
            changed[position] ^= flip;
            let error = refused(&changed);
            if file[position] != b'\n' {
                let (found, expected) = (error.bad_line(), line_of(&file, position));
                // A byte that became an end of line moves what follows it by one.
                assert!(found == Some(expected) || changed[position] == b'\n', "byte {position}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_file_cut_anywhere_is_refused() {
    let file = file(10).await;
    for length in 0..file.len() {
        let error = refused(&file[..length]);
        assert!(error.bad_line().is_some(), "cut to {length} bytes: {error}");
    }
    let mut lines = file.split_inclusive(|&byte| byte == b'\n').collect::<Vec<_>>();
    let footer = lines.pop().unwrap();
    assert!(matches!(refused(&lines.concat()), ReadError::Truncated { after } if after == lines.len() as u64));
    let longer = [&file[..], footer].concat();
    let last = lines.len() as u64 + 2;
    assert!(matches!(refused(&longer), ReadError::Surplus { line } if line == last));
}

#[tokio::test]
async fn another_version_and_another_kind_of_file_are_told_apart() {
    let file = String::from_utf8(file(10).await).unwrap();
    let newer = file.replacen("aos-run-export/1", "aos-run-export/2", 1);
    let error = refused(newer.as_bytes());
    assert!(matches!(&error, ReadError::Version { found } if found == "aos-run-export/2"), "{error}");
    for other in ["", "\n", "{}\n", "{\"format\":\"macp-export/1\"}\n", "\u{0}\u{1}"] {
        let error = refused(other.as_bytes());
        assert!(matches!(error, ReadError::NotAnExport | ReadError::Truncated { after: 0 }), "{other:?}: {error}");
    }
}

/// Lines with checks that fit, whatever they say: what a forger would write.
fn forged(contents: &[String]) -> Vec<u8> {
    let (mut file, mut previous) = (String::new(), None);
    for content in contents {
        let check = chain::link(FORMAT, previous.as_ref(), content.as_bytes());
        file.push_str(&format!("{{\"check\":\"{check}\",{content}}}\n"));
        previous = Some(check);
    }
    file.into_bytes()
}

/// The lines of a file without their checks.
fn contents(file: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(file).unwrap();
    let prefix = "{\"check\":\"".len() + 64 + "\",".len();
    text.lines().map(|line| line[prefix..line.len() - 1].to_owned()).collect()
}

#[tokio::test]
async fn a_forger_who_mends_the_checks_is_found_by_what_the_lines_say() {
    let file = file(20_000).await;
    let genuine = contents(&file);
    assert_eq!(forged(&genuine), file, "the forger knows the format");
    let first_entry = genuine.iter().position(|line| line.starts_with("\"entry\"")).unwrap();
    let last = genuine.len() - 1;
    let null = genuine.iter().position(|line| line == "\"body\":null").unwrap();
    let change = |line: usize, from: &str, to: &str| {
        let mut lines = genuine.clone();
        assert!(lines[line].contains(from), "line {line} has no {from:?}");
        lines[line] = lines[line].replacen(from, to, 1);
        lines
    };
    let without = |line: usize| {
        let mut lines = genuine.clone();
        lines.remove(line);
        lines
    };
    let swapped = |one: usize, other: usize| {
        let mut lines = genuine.clone();
        lines.swap(one, other);
        lines
    };
    let cases = [
        ("a run that tells another end", change(0, "succeeded", "failed")),
        ("a run that tells another price", change(0, "\"cost_microcents\":500", "\"cost_microcents\":0")),
        ("a header written another way", change(0, "\"format\":", "\"format\": ")),
        ("another plan", change(1, "agent-1", "agent-2")),
        ("no plan", without(1)),
        ("another short output", change(null, "null", "true")),
        ("another long output", change(5 - null, "xxx", "xxy")),
        ("an output that is missing", without(2)),
        ("outputs in another order", swapped(2, 3)),
        ("an entry that says something else", change(first_entry + 1, "s1", "s2")),
        ("an entry with another hash", {
            let mut lines = genuine.clone();
            let hash = lines[first_entry][lines[first_entry].len() - 65..].to_owned();
            let other = lines[first_entry + 1][lines[first_entry + 1].len() - 65..].to_owned();
            lines[first_entry] = lines[first_entry].replace(&hash, &other);
            lines
        }),
        ("an entry that is missing", without(first_entry + 1)),
        ("a last entry that is missing", without(last - 1)),
        ("entries in another order", swapped(first_entry + 1, first_entry + 2)),
        ("an output after the entries", swapped(2, last - 1)),
        ("a footer with another count", change(last, "\"bodies\":2", "\"bodies\":1")),
        ("two footers", [&genuine[..], &genuine[last..]].concat()),
        ("two plans", [&genuine[..2], &genuine[1..]].concat()),
    ];
    for (what, lines) in cases {
        assert_ne!(lines, genuine, "{what}");
        let error = refused(&forged(&lines));
        assert!(error.bad_line().is_some(), "{what}: {error}");
    }
}

/// Entries sealed anew to each other, and a footer that fits: what a forger would write who knows the journal's chain.
fn resealed(contents: &[String]) -> Vec<String> {
    let mut head: Option<String> = None;
    let reseal = |line: &String| {
        if let Some(entry) = line.strip_prefix("\"entry\":") {
            let text = &entry[..entry.len() - ",\"hash\":\"\"".len() - 64];
            let hash = journal::link(head.as_deref(), text.as_bytes());
            head = Some(hash.clone());
            return format!("\"entry\":{text},\"hash\":\"{hash}\"");
        }
        match (line.starts_with("\"footer\""), &head) {
            (true, Some(head)) => format!("{}{head}\"}}", &line[..line.len() - 66]),
            _ => line.clone(),
        }
    };
    contents.iter().map(reseal).collect()
}

#[tokio::test]
async fn a_forger_who_mends_the_journal_too_is_found_where_the_journal_names_digests() {
    let file = file(10).await;
    let genuine = contents(&file);
    assert_eq!(forged(&resealed(&genuine)), file, "the forger knows the chain");
    let cases = [
        ("an inline output", "small, with", "large, with"),
        ("the plan of the run", "\"plan_hash\":\"sha256:", "\"plan_hash\":\"sha256:0"),
        ("the id of the run", "\"run_id\":\"r-2031\"", "\"run_id\":\"r-2032\""),
        ("the end of the run", "\"total_cost_microcents\":500", "\"total_cost_microcents\":400"),
        ("a key given twice", "{\"attempt\":0", "{\"attempt\":1,\"attempt\":0"),
    ];
    for (what, from, to) in cases {
        let mut lines = genuine.clone();
        let line = lines.iter().position(|line| line.starts_with("\"entry\"") && line.contains(from)).expect(what);
        lines[line] = lines[line].replacen(from, to, 1);
        let error = refused(&forged(&resealed(&lines)));
        assert!(error.bad_line().is_some(), "{what}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(256), ..ProptestConfig::default() })]

    #[test]
    fn any_changed_byte_is_found(position in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let file = runtime.block_on(file(20_000));
        let mut changed = file.clone();
        let position = position.index(changed.len());
        changed[position] = byte;
        if changed != file {
            refused(&changed);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        keep in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let file = runtime.block_on(file(10));
        let mixed = [&file[..keep.index(file.len())], &bytes].concat();
        refused(&mixed);
        refused(&bytes);
    }
}
