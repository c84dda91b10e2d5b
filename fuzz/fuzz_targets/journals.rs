//! A recorded run, damaged: reading it, recovering from a part of it and replaying it never panic, and whatever is
//! still read as whole replays to a verdict.
//!
//! The first eight bytes choose the run, the rest says which entries are dropped, doubled, exchanged or made of bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use macp_plan_core::journal::{self, Journal};
use macp_plan_core::machine::{Machine, Pinned};
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::testkit::{execute, random};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let Some((seed, damage)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let random::Case { plan, catalog, world } = random::case(u64::from_le_bytes(*seed));
    let recorded = execute(&plan, &catalog, world);
    let mut texts: Vec<Vec<u8>> = recorded
        .journal
        .entries()
        .iter()
        .filter_map(|entry| journal::seal(None, entry).ok())
        .map(|(text, _)| text.into_bytes())
        .collect();
    for act in damage.chunks(2) {
        let (&[what, place], false) = (act.first_chunk::<2>().unwrap_or(&[0, 0]), texts.is_empty()) else {
            break;
        };
        let (place, other) = (usize::from(place) % texts.len(), usize::from(what) % texts.len());
        match what % 4 {
            0 => drop(texts.remove(place)),
            1 => texts.insert(place, texts[place].clone()),
            2 => texts.swap(place, other),
            _ => texts[place] = damage.to_vec(),
        }
    }
    // A forger can compute the chain anew; what the entries say is then all there is to judge by.
    let mut previous: Option<String> = None;
    let chained = texts.iter().map(|text| {
        let hash = journal::link(previous.as_deref(), text);
        previous = Some(hash.clone());
        (text.clone(), hash)
    });
    let Ok(journal) = Journal::read(chained.collect::<Vec<_>>()) else {
        return;
    };
    let nothing_apart = |_: &_| None;
    let _recovered = Machine::recover(
        Arc::clone(&plan),
        Arc::clone(&catalog),
        Arc::new(Pinned),
        journal.start(),
        journal.entries(),
        &nothing_apart,
    );
    let _report = mock_replay(&plan, &journal, &nothing_apart, &catalog, &Options::new("r-again"));
});
