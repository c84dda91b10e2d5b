//! The tests every store must pass.
//!
//! [`run`] is the suite; [`sample`] makes well-formed appends, also useful to other tests of stores; [`model`] compares
//! a store with a naive model under random operations; [`Around`] makes a store that misbehaves out of one that does not.

mod around;
mod cases;
mod documents;
pub mod model;
pub mod random;
pub mod sample;

pub use around::Around;

use crate::store::Store;

/// Runs every case against a fresh, empty store of its own; panics on the first broken promise.
pub fn run(make: impl Fn() -> Box<dyn Store>) {
    for (name, case) in cases::CASES.iter().chain(documents::CASES) {
        println!("contract: {name}");
        case(&*make());
    }
    let seed = random::seed();
    println!("contract: random operations, MACP_SEED={seed}");
    model::check(&*make(), seed);
}
