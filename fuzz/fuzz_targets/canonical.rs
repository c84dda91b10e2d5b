//! Any bytes as JSON: what is read is written in one form, which is read back to the same and written the same again,
//! unless what was written as an integer is beyond those that every reader reads exactly.

#![no_main]

use libfuzzer_sys::fuzz_target;
use macp_wire::canonical;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = canonical::parse(bytes) else { return };
    let Ok(text) = canonical::to_string(&value) else { return };
    let again = canonical::parse(text.as_bytes()).expect("what was written can be read");
    match canonical::to_string(&again) {
        Ok(written) => assert_eq!(written, text),
        Err(error) => {
            assert!(matches!(error, canonical::Error::Integer(_)) && canonical::check(&again).is_err(), "{error}")
        }
    }
    // Any reader of JSON sees the same.
    let read: serde_json::Value = serde_json::from_str(&text).expect("the canonical form is JSON");
    assert_eq!(read, again);
});
