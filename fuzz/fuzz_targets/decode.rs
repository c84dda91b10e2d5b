//! Any bytes into every reader of bytes from outside: no panic, and what was read survives being written.

#![no_main]

#[path = "../../crates/kernel/tests/invariants/decode.rs"]
mod decode;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| decode::everything(bytes));
