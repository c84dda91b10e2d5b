//! Any bytes as the cause of an outcome: every version of the taxonomy has a code for it, the same one each time, which
//! agrees with the cause on whether it is a success; and no skill has a say in what the executor decides.

#![no_main]

use libfuzzer_sys::fuzz_target;
use macp_plan_core::cause::Cause;
use macp_plan_core::skill::Catalog;
use macp_plan_core::taxonomy::{Class, Taxonomy};
use macp_plan_core::testkit::Kit;
use serde_json::json;

fuzz_target!(|bytes: &[u8]| {
    let Some(cause) = cause(bytes) else { return };
    let text = serde_json::to_string(&cause).expect("a cause can be written");
    let again: Cause = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(again, cause);
    let skill = Kit::standard().skill("http_call", "1.2.0").expect("the kit has it").skill;
    for version in ["1.0.0", "1.1.0"] {
        let taxonomy = Taxonomy::version(version).expect("a published version");
        let code = taxonomy.resolve(&cause, skill.as_ref());
        assert_eq!(taxonomy.resolve(&again, skill.as_ref()), code);
        let info = taxonomy.code(code).expect("the version knows the code");
        assert_eq!(code.starts_with("OK"), cause.is_success(), "{cause:?} is {code}");
        assert!(!(info.retryable && cause.is_success()), "{code}");
        if cause.is_executors() {
            assert_eq!(code, taxonomy.code_of(Class::of(&cause)));
        }
    }
});

/// As it is written in a journal; else one of those with a status, of which there are most.
fn cause(bytes: &[u8]) -> Option<Cause> {
    if let Ok(cause) = serde_json::from_slice(bytes) {
        return Some(cause);
    }
    let [kind, high, low, flag, ..] = bytes else { return None };
    let status = u16::from_be_bytes([*high, *low]);
    let cause = match kind % 2 {
        0 => json!({"kind": "http_status", "status": status, "redirected": flag % 2 == 1}),
        _ => json!({"kind": "llm_status", "status": status, "context_length": flag % 2 == 1}),
    };
    serde_json::from_value(cause).ok()
}
