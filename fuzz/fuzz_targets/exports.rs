//! An exported run, damaged: reading it never panics, and what is read as whole is written out again byte for byte.
//!
//! The first byte chooses: any bytes as a file, any bytes as lines, or a recorded run in which lines are dropped,
//! doubled, exchanged and changed. The last two get the checks that belong to them, as a forger would compute them: then
//! what the lines say is all there is to judge by.

#![no_main]

use libfuzzer_sys::fuzz_target;
use macp_plan::export;
use sha2::{Digest, Sha256};

/// Runs that once happened: one with an output kept apart, one that failed, one that was never admitted.
const RECORDED: [&str; 3] = [
    include_str!("../../crates/plan/tests/corpus/references_and_a_large_body.jsonl"),
    include_str!("../../crates/plan/tests/corpus/retries_exhausted.jsonl"),
    include_str!("../../crates/plan/tests/corpus/rejected.jsonl"),
];

/// What stands before the content of a line: a check of 64 digits and its name.
const CHECK_BYTES: usize = "{\"check\":\"\",".len() + 64;

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    let file = match how % 5 {
        0 => rest.to_vec(),
        1 => forged(rest.split(|byte| *byte == b'\n')),
        which => forged(damaged(RECORDED[usize::from(which) - 2], rest).iter().map(Vec::as_slice)),
    };
    let Ok(exported) = export::read(file.as_slice()) else {
        return;
    };
    assert_eq!(exported.to_bytes().expect("it holds every output"), file, "one run has one file");
});

/// The contents of the lines of an export, damaged as the bytes say, four for each act.
fn damaged(recorded: &str, acts: &[u8]) -> Vec<Vec<u8>> {
    let content = |line: &str| line.as_bytes()[CHECK_BYTES..line.len() - 1].to_vec();
    let mut lines: Vec<Vec<u8>> = recorded.lines().map(content).collect();
    for act in acts.chunks_exact(4) {
        let ([what, place, at, with], false) = (<[u8; 4]>::try_from(act).expect("four bytes"), lines.is_empty()) else {
            break;
        };
        let (place, other) = (usize::from(place) % lines.len(), usize::from(at) % lines.len());
        match what % 5 {
            0 => drop(lines.remove(place)),
            1 => lines.insert(place, lines[place].clone()),
            2 => lines.swap(place, other),
            // Anywhere in a line, however long it is.
            3 => {
                let line = &mut lines[place];
                let at = (usize::from(what) * 256 + usize::from(at)) % line.len().max(1);
                if let Some(byte) = line.get_mut(at) {
                    *byte = with;
                }
            }
            _ => lines[place] = acts.to_vec(),
        }
    }
    lines
}

/// Lines with the checks that belong to them.
fn forged<'c>(contents: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let (mut file, mut check) = (Vec::new(), String::new());
    for content in contents {
        let mut hasher = Sha256::new();
        for part in [export::FORMAT.as_bytes(), b":", check.as_bytes(), b":", content] {
            hasher.update(part);
        }
        check = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        file.extend_from_slice(format!("{{\"check\":\"{check}\",").as_bytes());
        file.extend_from_slice(content);
        file.extend_from_slice(b"}\n");
    }
    file
}
