//! Exports that a stranger made: whatever their lines say, they are read or refused, and what is read is the whole file.
//! `fuzz/fuzz_targets/exports.rs` tries the same for longer.

use macp_ledger::chain;
use macp_plan::export::{self, FORMAT};
use proptest::prelude::*;

const RECORDED: [&str; 2] =
    [include_str!("../corpus/references_and_a_large_body.jsonl"), include_str!("../corpus/retries_exhausted.jsonl")];

/// What stands before the content of a line.
const CHECK_BYTES: usize = "{\"check\":\"\",".len() + 64;

/// Lines with the checks that belong to them, as a forger would compute them.
fn forged(contents: &[Vec<u8>]) -> Vec<u8> {
    let (mut file, mut check) = (Vec::new(), None);
    for content in contents {
        let next = chain::link(FORMAT, check.as_ref(), content);
        file.extend_from_slice(format!("{{\"check\":\"{next}\",").as_bytes());
        file.extend_from_slice(content);
        file.extend_from_slice(b"}\n");
        check = Some(next);
    }
    file
}

fn contents(recorded: &str) -> Vec<Vec<u8>> {
    recorded.lines().map(|line| line.as_bytes()[CHECK_BYTES..line.len() - 1].to_vec()).collect()
}

/// One run has one file: whoever reads it and writes it out again has the same bytes.
#[test]
fn what_is_read_is_written_out_again() {
    for recorded in RECORDED {
        assert_eq!(forged(&contents(recorded)), recorded.as_bytes(), "the forger computes what the exporter does");
        let exported = export::read(recorded.as_bytes()).unwrap();
        assert_eq!(exported.to_bytes().unwrap(), recorded.as_bytes());
    }
}

proptest! {
    #[test]
    fn damaged_exports_are_read_or_refused(
        which in 0..RECORDED.len(),
        acts in prop::collection::vec((0..4_u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut lines = contents(RECORDED[which]);
        for (act, place, at, with) in acts {
            let (place, other) = (place.index(lines.len()), at.index(lines.len()));
            match act {
                0 if lines.len() > 1 => drop(lines.remove(place)),
                1 => lines.insert(place, lines[place].clone()),
                2 => lines.swap(place, other),
                _ => {
                    let at = at.index(lines[place].len());
                    lines[place][at] = with;
                }
            }
        }
        let file = forged(&lines);
        if let Ok(exported) = export::read(file.as_slice()) {
            prop_assert_eq!(exported.to_bytes().unwrap(), file);
        }
    }
}
