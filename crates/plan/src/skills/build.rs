//! Which build of a skill this is: a digest of its source, and of what decides in its name (AOS-14).
//!
//! A plan that pins it tells a skill that was changed under its version from one that was not (AOS-99). The same source
//! has the same digest wherever and however it is compiled.

use macp_plan_core::digest::{self, Digest};
use serde_json::{Value, json};

const LABEL: &str = "aos-skill-build/1";

/// A file of this crate, by name and text.
macro_rules! sources {
    ($($file:literal),+ $(,)?) => { &[$(($file, include_str!($file))),+] };
}

/// What every skill that calls out stands on.
const OUTBOUND: &[(&str, &str)] = sources!["exchange.rs", "fault.rs", "../egress.rs", "../network.rs", "../secrets.rs"];
/// What every skill stands on.
const SHARED: &[(&str, &str)] = sources!["document.rs", "metadata.rs", "../schema.rs"];

const HTTP_CALL: &[(&str, &str)] = sources!["http_call.rs", "headers.rs", "../outbound.rs", "../secrets/hosts.rs"];
const LLM_INVOKE: &[(&str, &str)] = sources!["llm_invoke.rs", "llm_protocol.rs", "../secrets/granted.rs"];
const JSON_TRANSFORM: &[(&str, &str)] = sources!["json_transform.rs", "expression.rs", "evaluation.rs", "written.rs"];

pub(super) fn http_call() -> Digest {
    of(&[HTTP_CALL, OUTBOUND, SHARED])
}

pub(super) fn llm_invoke() -> Digest {
    of(&[LLM_INVOKE, OUTBOUND, SHARED])
}

pub(super) fn json_transform() -> Digest {
    of(&[JSON_TRANSFORM, SHARED])
}

fn of(parts: &[&[(&str, &str)]]) -> Digest {
    let files = parts.iter().copied().flatten().map(|(name, text)| json!([name, text]));
    digest::of_value(LABEL, &files.collect::<Value>()).expect("texts have a canonical form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_follows_from_names_and_texts_alone() {
        assert_eq!(of(&[&[("a", "b")]]), of(&[&[("a", "b")]]));
        let others: [&[(&str, &str)]; 3] = [&[("a", "c")], &[("ab", "")], &[("a", "b"), ("c", "")]];
        for other in others {
            assert_ne!(of(&[&[("a", "b")]]), of(&[other]));
        }
        let built_in = [http_call(), llm_invoke(), json_transform()];
        assert!(built_in[0] != built_in[1] && built_in[1] != built_in[2] && built_in[0] != built_in[2]);
    }
}
