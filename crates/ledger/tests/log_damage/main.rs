//! Bits flipped in the log of a killed store are found, and a crash alone is not reported.
//!
//! `MACP_LOG_FLIPS` sets how many bits are flipped in every image, `MACP_SEED` repeats the choices of an earlier run.
#![cfg(unix)]

mod acceptance;
mod image;

use macp_ledger::contract::random::{self, Random};

use image::{FRAME_BYTES, FRAME_HEADER_BYTES, HEADER_BYTES, Image, Log, assert_loss, truncate};

const FLIPS_DEFAULT: u64 = 400;
/// One in so many flips is also shown to a store that is opened for writing, which takes longer.
const OPENED_ONE_IN: u64 = 16;
/// Without its position file, damage in the last commits looks like a crash while they were written: in the last two,
/// and in a third if the damage is in a stored checksum.
const UNNOTICED_MAX: usize = 3;

fn flips() -> u64 {
    std::env::var("MACP_LOG_FLIPS").map_or(FLIPS_DEFAULT, |text| text.parse().expect("MACP_LOG_FLIPS is a number"))
}

/// A log that was never started over, with zeros behind its end, and one with the frames of older logs there.
fn images(random: &mut Random) -> [Image; 2] {
    [Image::make(random, 20, 0), Image::make(random, 12, 2)]
}

/// A place in the log: any field of the header or of any frame is as likely as the rest of the page.
fn place(random: &mut Random, log: &Log) -> u64 {
    let frames = (log.bytes - HEADER_BYTES) / FRAME_BYTES;
    // Frames of this log, mostly.
    let frame = if random.one_in(8) { random.below(frames) } else { random.below(log.frames()) };
    let start = HEADER_BYTES + frame * FRAME_BYTES;
    match random.below(8) {
        0 => random.below(HEADER_BYTES),
        field @ 1..7 => start + (field - 1) * 4 + random.below(4),
        _ => start + FRAME_HEADER_BYTES + random.below(FRAME_BYTES - FRAME_HEADER_BYTES),
    }
}

fn is_used(at: u64, log: &Log) -> bool {
    at < HEADER_BYTES + log.frames() * FRAME_BYTES
}

#[test]
fn every_flip_in_the_log_of_a_killed_store_is_found() {
    let seed = random::seed();
    println!("MACP_SEED={seed} MACP_LOG_FLIPS={}", flips());
    let mut random = Random::new(seed);
    for image in images(&mut random) {
        let log = image.log();
        let header = (0..HEADER_BYTES).map(|at| (at, at as u32 % 8));
        let random_places: Vec<_> = (0..flips()).map(|_| (place(&mut random, &log), random.below(8) as u32)).collect();
        let (mut found, mut harmless) = (0, 0);
        for (at, bit) in header.chain(random_places) {
            image.flip(at, bit);
            let mut results = vec![image.read()];
            if random.one_in(OPENED_ONE_IN) {
                results.push(image.open());
            }
            for result in results {
                match result {
                    Err(failure) => {
                        assert_loss(&failure);
                        assert!(is_used(at, &log), "byte {at}, bit {bit} is behind the log: {failure}");
                        found += 1;
                    }
                    Ok(state) => {
                        assert_eq!(image.missing(&state), 0, "byte {at}, bit {bit}: silently lost");
                        assert!(!is_used(at, &log), "byte {at}, bit {bit} is not reported");
                        harmless += 1;
                    }
                }
            }
            image.flip(at, bit);
        }
        println!("{} commits in {} frames: {found} reported, {harmless} harmless", log.commits(), log.frames());
        assert!(found > 0 && harmless > 0);
        assert_eq!(image.missing(&image.read().unwrap()), 0, "whole again");
    }
}

/// After a power failure the position file may be of any earlier commit, and it may have been deleted.
#[test]
fn without_the_last_position_a_flip_hides_the_last_commits_at_most() {
    let seed = random::seed();
    println!("MACP_SEED={seed} MACP_LOG_FLIPS={}", flips());
    let mut random = Random::new(seed);
    for image in images(&mut random) {
        let log = image.log();
        let (mut found, mut unnoticed) = (0, 0);
        for _ in 0..flips() {
            let (at, bit) = (place(&mut random, &log), random.below(8) as u32);
            let ages = image.notes.len() as u64;
            image.set_note((!random.one_in(4)).then(|| random.below(ages) as usize));
            image.flip(at, bit);
            match image.read() {
                Err(failure) => {
                    assert_loss(&failure);
                    assert!(is_used(at, &log), "byte {at}, bit {bit} is behind the log: {failure}");
                    found += 1;
                }
                Ok(state) => {
                    let missing = image.missing(&state);
                    assert!(missing <= UNNOTICED_MAX, "byte {at}, bit {bit}: {missing} commits silently lost");
                    unnoticed += usize::from(missing > 0);
                }
            }
            image.flip(at, bit);
        }
        println!("{} commits in {} frames: {found} reported, {unnoticed} not", log.commits(), log.frames());
        assert!(found > unnoticed);
    }
}

/// A crash leaves the last commit in part, or its sectors in any order. It was not acknowledged: the position file is
/// the one before it, or an older one.
#[test]
fn a_torn_last_commit_is_no_damage() {
    let seed = random::seed();
    println!("MACP_SEED={seed}");
    let mut random = Random::new(seed);
    for image in images(&mut random) {
        let log = image.log();
        let commits = || log.is_commit.iter().enumerate().filter(|(_, is_commit)| **is_commit).map(|(at, _)| at as u64);
        let end = HEADER_BYTES + log.frames() * FRAME_BYTES;
        let begin = HEADER_BYTES + (commits().nth_back(1).expect("several commits") + 1) * FRAME_BYTES;
        let whole = std::fs::read(image.log_path()).unwrap();
        let ages = image.notes.len() as u64 - 1;
        for round in 0..flips() / 4 {
            let age = 1 + if round % 2 == 0 { 0 } else { random.below(ages) };
            image.set_note(Some(age as usize));
            let mut torn = whole.clone();
            if random.one_in(2) {
                torn.truncate((begin + random.below(end - begin)) as usize);
            } else {
                // Sectors that were not written hold what was there before, such as zeros.
                for sector in torn[begin as usize..end as usize].chunks_mut(512) {
                    if random.one_in(3) {
                        sector.fill(0);
                    }
                }
            }
            std::fs::write(image.log_path(), torn).unwrap();
            let mut results = vec![image.read()];
            if random.one_in(OPENED_ONE_IN) {
                results.push(image.open());
            }
            for result in results {
                let state =
                    result.unwrap_or_else(|failure| panic!("round {round}: a torn commit is refused: {failure}"));
                assert!(image.missing(&state) <= 1, "round {round}");
            }
        }
        std::fs::write(image.log_path(), &whole).unwrap();
    }
}

/// A log that is cut short is damaged if the position file shows that it was longer.
#[test]
fn a_log_that_is_cut_short_is_found() {
    let mut random = Random::new(random::seed());
    let image = Image::make(&mut random, 12, 1);
    let log = image.log();
    for frames in [log.frames() - 1, log.frames() / 2, 1] {
        truncate(&image.log_path(), HEADER_BYTES + frames * FRAME_BYTES + 100);
        let failure = image.read().unwrap_err();
        assert_loss(&failure);
        assert!(failure.to_string().contains("its last readable commit is frame"), "{failure}");
        assert_loss(&image.open().unwrap_err());
    }
    // Without any log the database itself is behind.
    std::fs::remove_file(image.log_path()).unwrap();
    let failure = image.read().unwrap_err();
    assert_loss(&failure);
    assert!(failure.to_string().contains("is older than it was"), "{failure}");
    assert_loss(&image.open().unwrap_err());
}

/// A server that writes while it is read, checkpoints and starts its log over included.
#[test]
fn a_reader_beside_a_writer_sees_no_damage() {
    use macp_ledger::contract::sample::Session;
    use macp_ledger::sqlite::Options;
    use macp_ledger::{SqliteStore, Store};
    use std::sync::atomic::{AtomicBool, Ordering};

    let directory = tempfile::TempDir::new().unwrap();
    let options = Options { checkpoint_pages: 20, ..Options::default() };
    let store = SqliteStore::open_with(directory.path(), options).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = Session::new("s");
            while !done.load(Ordering::Relaxed) {
                store.append(&[session.append_sized(1, 2_000)]).remove(0).unwrap();
            }
        });
        for _ in 0..flips() {
            let reader = SqliteStore::open_read_only(directory.path()).unwrap();
            let loss = reader.loss().map(ToString::to_string);
            if loss.is_some() {
                done.store(true, Ordering::Relaxed);
            }
            assert_eq!(loss, None);
        }
        done.store(true, Ordering::Relaxed);
    });
}
