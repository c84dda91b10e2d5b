//! The engine as it is passes a number of seeds, and a seed is a run.

use macp_sim::{Settings, Summary, run};

const SEEDS_DEFAULT: u64 = 150;

fn seeds() -> u64 {
    match std::env::var("MACP_SIM_SEEDS") {
        Ok(text) => text.parse().expect("MACP_SIM_SEEDS is a number"),
        Err(_) => SEEDS_DEFAULT,
    }
}

#[test]
fn every_property_holds_for_every_seed() {
    let mut total = Summary::default();
    for seed in 0..seeds() {
        match run(seed, Settings::default()) {
            Ok(summary) => total.add(&summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{total}");
    // A simulation in which nothing happens proves nothing.
    for (what, count) in [
        ("pauses", total.pauses),
        ("synthetic messages", total.synthetic),
        ("sessions suspended for too long", total.overslept),
        ("accepted", total.accepted),
        ("duplicates", total.duplicates),
        ("refused", total.refused),
        ("reads", total.reads),
        ("errors", total.errors),
        ("failed appends", total.append_failures),
        ("conflicts", total.append_conflicts),
        ("crashes", total.crashes),
        ("revived", total.revived),
    ] {
        assert!(count > 0, "no {what} in {total}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..10 {
        let first = run(seed, Settings::default()).unwrap_or_else(|failure| panic!("{failure}"));
        let second = run(seed, Settings::default()).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first, second, "seed {seed}");
    }
    let one = run(1, Settings::default()).unwrap_or_else(|failure| panic!("{failure}"));
    let other = run(2, Settings::default()).unwrap_or_else(|failure| panic!("{failure}"));
    assert_ne!(one.transcript, other.transcript, "different seeds are different runs");
}
