//! Any bytes as a sequence of commands, under the invariants of the kernel's property tests: live state equals
//! replayed state, what is refused leaves no trace, what has ended never changes, traces replay to the same verdicts.

#![no_main]

#[path = "../../crates/kernel/tests/invariants/mod.rs"]
mod invariants;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    invariants::check(&invariants::Script::from_bytes(bytes));
});
