//! Keeps secrets in: what a call looked up is taken out of whatever comes back, so that a server which echoes a secret
//! does not write it into the journal; and only a plan itself may name one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::secrets::{Error, REFERENCE, Secrets, is_name_letter};
use crate::skill::Observation;

/// Shorter ones would be found in the encodings of other texts.
const ENCODED_BYTES_MIN: usize = 6;

/// Secrets, and which of them were looked up.
pub(super) struct Noted<'s> {
    secrets: &'s dyn Secrets,
    /// Text to take out, and the name to put in its place.
    seen: Mutex<Vec<(Zeroizing<String>, String)>>,
}

impl<'s> Noted<'s> {
    pub(super) fn new(secrets: &'s dyn Secrets) -> Self {
        Self { secrets, seen: Mutex::default() }
    }

    /// Puts names in the place of every secret that was looked up, also where it is encoded in base64.
    pub(super) fn scrub(self, mut observation: Observation) -> Observation {
        let mut seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        if seen.is_empty() {
            return observation;
        }
        // A secret that is part of another one must not hide the rest of it.
        seen.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        clear_text(&mut observation.message, &seen);
        observation.details = cleared(std::mem::take(&mut observation.details), &seen);
        if let Some(output) = &mut observation.output {
            clear(output, &seen);
        }
        observation
    }
}

impl Secrets for Noted<'_> {
    fn secret(&self, name: &str) -> Result<Zeroizing<String>, Error> {
        let value = self.secrets.secret(name)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut note = |text: Zeroizing<String>| {
            if !text.is_empty() && !seen.iter().any(|(known, _)| *known == text) {
                seen.push((text, name.to_owned()));
            }
        };
        note(value.clone());
        if value.len() >= ENCODED_BYTES_MIN {
            (0..3).for_each(|offset| note(encoded(&value, offset)));
        }
        Ok(value)
    }
}

impl fmt::Debug for Noted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noted").finish_non_exhaustive()
    }
}

/// What base64 makes of a secret that begins so many bytes into a group of three, without the digits at either end that
/// depend on what stands beside it.
fn encoded(secret: &str, offset: usize) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(vec![0; offset]);
    bytes.extend_from_slice(secret.as_bytes());
    let whole = Zeroizing::new(STANDARD_NO_PAD.encode(&*bytes));
    let digits = bytes.len() * 4 / 3;
    Zeroizing::new(whole[(offset * 4).div_ceil(3)..digits].to_owned())
}

fn clear(value: &mut Value, seen: &[(Zeroizing<String>, String)]) {
    match value {
        Value::String(text) => clear_text(text, seen),
        Value::Array(elements) => elements.iter_mut().for_each(|element| clear(element, seen)),
        Value::Object(members) => *members = cleared(std::mem::take(members), seen),
        Value::Number(number) => {
            let mut text = Zeroizing::new(number.to_string());
            if let Some((_, name)) = seen.iter().find(|(secret, _)| **secret == *text) {
                text.clear();
                *value = Value::String(format!("{REFERENCE}{name}"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn cleared(members: Map<String, Value>, seen: &[(Zeroizing<String>, String)]) -> Map<String, Value> {
    let clear_member = |(mut name, mut value): (String, Value)| {
        clear_text(&mut name, seen);
        clear(&mut value, seen);
        (name, value)
    };
    members.into_iter().map(clear_member).collect()
}

fn clear_text(text: &mut String, seen: &[(Zeroizing<String>, String)]) {
    for (secret, name) in seen {
        if text.contains(secret.as_str()) {
            *text = text.replace(secret.as_str(), &format!("{REFERENCE}{name}"));
        }
    }
}

/// Names of the secrets that parameters mention.
pub(super) fn named(parameters: &Map<String, Value>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut values: Vec<&Value> = parameters.values().collect();
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => {
                let after = text.split(REFERENCE).skip(1);
                names.extend(after.map(|rest| rest.chars().take_while(|letter| is_name_letter(*letter)).collect()));
            }
            Value::Array(elements) => values.extend(elements),
            Value::Object(members) => values.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use macp_plan_core::cause::Cause;
    use serde_json::json;

    use super::*;
    use crate::secrets::Held;

    #[test]
    fn what_was_looked_up_is_taken_out_wherever_it_stands() {
        let held = Held::default().with("key", "s3cr3t-value").with("pin", "314159").with("unused", "harmless");
        let noted = Noted::new(&held);
        for name in ["key", "pin"] {
            noted.secret(name).unwrap();
        }
        let basic = STANDARD.encode("user:s3cr3t-value");
        let observation = Observation::new(Cause::Success, "said s3cr3t-value")
            .with_output(json!({
                "text": "a s3cr3t-value b", "list": [{"s3cr3t-value": 314159}], "number": 3141592, "basic": basic,
                "other": "harmless",
            }))
            .with_detail("hint", "s3cr3t-value");
        let scrubbed = noted.scrub(observation);
        assert_eq!(scrubbed.message, "said secret://key");
        assert_eq!(scrubbed.details["hint"], "secret://key");
        let output = scrubbed.output.unwrap();
        assert_eq!(output["text"], "a secret://key b");
        assert_eq!(output["list"], json!([{"secret://key": "secret://pin"}]));
        assert_eq!((&output["number"], &output["other"]), (&json!(3141592), &json!("harmless")));
        assert!(output["basic"].as_str().unwrap().contains("secret://key"), "{output}");
    }

    #[test]
    fn every_way_of_encoding_a_secret_is_found() {
        let held = Held::default().with("key", "s3cr3t-value!");
        for before in ["", "a", "ab", "abc", "longer text before: "] {
            for after in ["", "a", "ab", "abc"] {
                let noted = Noted::new(&held);
                noted.secret("key").unwrap();
                let text = STANDARD.encode(format!("{before}s3cr3t-value!{after}"));
                let scrubbed = noted.scrub(Observation::new(Cause::Success, text.clone()));
                assert!(scrubbed.message.contains("secret://key"), "{before:?} {after:?} {text}");
            }
        }
    }

    #[test]
    fn names_are_found_in_every_text() {
        let parameters =
            json!({"a": "Bearer secret://one", "b": [{"c": "secret://two.x!secret://one"}], "d": "secret"});
        let names = named(parameters.as_object().unwrap());
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["one", "two.x"]);
    }
}
