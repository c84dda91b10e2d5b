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

    /// Puts names in the place of every secret that was looked up: as it is, in base64 with either alphabet and wherever
    /// in a longer text it stands, as JSON and HTML escape it, and each of these percent-encoded, in URLs as in forms. What
    /// was encoded twice, or in another way, is not recognised.
    pub(super) fn scrub(self, mut observation: Observation) -> Observation {
        let mut seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        if seen.is_empty() {
            return observation;
        }
        // A secret that is part of another one must not hide the rest of it.
        seen.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut redaction = Redaction { seen: &seen, growth: GROWTH_BYTES_MAX };
        redaction.text(&mut observation.message);
        redaction.members(&mut observation.details);
        if let Some(output) = &mut observation.output {
            redaction.value(output);
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
        escaped(&value).into_iter().for_each(&mut note);
        if value.len() >= ENCODED_BYTES_MIN {
            for offset in 0..3 {
                let encoded = encoded(&value, offset);
                note(Zeroizing::new(encoded.replace('+', "-").replace('/', "_")));
                note(encoded);
            }
        }
        Ok(value)
    }
}

impl fmt::Debug for Noted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noted").finish_non_exhaustive()
    }
}

/// What a secret becomes in the text of a JSON string or of an HTML page, as usual writers have it: with as few letters
/// escaped as need be, with slashes too, with quotes or without.
fn escaped(secret: &str) -> [Zeroizing<String>; 5] {
    let quoted = Zeroizing::new(serde_json::to_string(secret).expect("a text has a form in JSON"));
    let json = Zeroizing::new(quoted[1..quoted.len() - 1].to_owned());
    let slashes = Zeroizing::new(json.replace('/', "\\/"));
    let text = Zeroizing::new(secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
    let quotes = Zeroizing::new(text.replace('"', "&quot;"));
    let apostrophes = Zeroizing::new(quotes.replace('\'', "&#39;"));
    [json, slashes, text, quotes, apostrophes]
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

/// How what stands in the place of a secret begins. Not as a plan names it: then no later step could use what is left.
const MARK: &str = "[secret ";

fn mark(name: &str) -> String {
    format!("{MARK}{name}]")
}

/// What redaction may add to an observation, since what stands for a secret may be longer than the secret. A server that
/// sends a short secret again and again could make an answer many times its size; beyond this, a text that holds a secret
/// is replaced as a whole.
const GROWTH_BYTES_MAX: usize = 1024 * 1024;

/// What stands for a text that is replaced as a whole.
const WHOLE: &str = "[secret *]";

/// Redacts in place: there is never a second copy of more than one text.
struct Redaction<'s> {
    seen: &'s [(Zeroizing<String>, String)],
    /// Bytes that may still be added.
    growth: usize,
}

impl Redaction<'_> {
    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(elements) => elements.iter_mut().for_each(|element| self.value(element)),
            Value::Object(members) => self.members(members),
            Value::Number(number) => {
                let mut text = Zeroizing::new(number.to_string());
                if let Some((_, name)) = self.seen.iter().find(|(secret, _)| **secret == *text) {
                    text.clear();
                    *value = self.number(name);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn members(&mut self, members: &mut Map<String, Value>) {
        members.values_mut().for_each(|member| self.value(member));
        if !members.keys().any(|name| self.is_in(name)) {
            return;
        }
        // One by one, so that the old map shrinks as the new one grows.
        for (mut name, member) in std::mem::take(members) {
            self.text(&mut name);
            members.insert(name, member);
        }
    }

    fn is_in(&self, text: &str) -> bool {
        self.seen.iter().any(|(secret, _)| {
            text.contains(secret.as_str())
                || (text.contains(['%', '+']) && find_percent_encoded(text, secret).is_some())
        })
    }

    fn text(&mut self, text: &mut String) {
        let before = text.len();
        for (secret, name) in self.seen {
            let named = mark(name);
            let added = |times: usize| times.saturating_mul(named.len().saturating_sub(secret.len()));
            if text.contains(secret.as_str()) {
                if added(text.matches(secret.as_str()).count()) > self.growth {
                    return replace_whole(text);
                }
                *text = text.replace(secret.as_str(), &named);
            }
            // Without these letters there is nothing that is encoded, and most texts have none of them.
            if text.contains(['%', '+']) {
                // An encoded secret is as long as the secret at least.
                if added(text.len() / secret.len()) > self.growth && find_percent_encoded(text, secret).is_some() {
                    return replace_whole(text);
                }
                replace_percent_encoded(text, secret, &named);
            }
        }
        self.growth = self.growth.saturating_sub(text.len().saturating_sub(before));
    }

    /// What stands for a number that is a secret.
    fn number(&mut self, name: &str) -> Value {
        let named = mark(name);
        match self.growth.checked_sub(named.len()) {
            Some(left) => {
                self.growth = left;
                Value::String(named)
            }
            None => Value::Null,
        }
    }
}

/// Takes the place of a text for which too much would be added. One that is shorter than what says so is emptied.
fn replace_whole(text: &mut String) {
    let short = text.len() < WHOLE.len();
    *text = String::from(if short { "" } else { WHOLE });
}

/// Replaces a secret in which some bytes are written as `%` and two digits, or spaces as `+`.
fn replace_percent_encoded(text: &mut String, secret: &str, named: &str) {
    let (mut cleared, mut rest) = (String::new(), text.as_str());
    while let Some((start, end)) = find_percent_encoded(rest, secret) {
        cleared.push_str(&rest[..start]);
        cleared.push_str(named);
        rest = &rest[end..];
    }
    if !cleared.is_empty() {
        cleared.push_str(rest);
        *text = cleared;
    }
}

fn find_percent_encoded(text: &str, secret: &str) -> Option<(usize, usize)> {
    let starts = text.char_indices().map(|(start, _)| start);
    starts.filter_map(|start| Some((start, start + percent_encoded_prefix(&text[start..], secret)?))).next()
}

/// How many bytes at the beginning of a text stand for a secret, if they do.
fn percent_encoded_prefix(text: &str, secret: &str) -> Option<usize> {
    let text = text.as_bytes();
    let mut length = 0;
    for wanted in secret.bytes() {
        let (byte, bytes) = match text.get(length)? {
            b'%' => match text.get(length + 1..length + 3).and_then(|digits| std::str::from_utf8(digits).ok()) {
                Some(digits) => (u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')), 3),
                None => (None, 1),
            },
            b'+' if wanted == b' ' => (Some(b' '), 1),
            byte => (Some(*byte), 1),
        };
        // A `%` that begins no number stands for itself.
        let (byte, bytes) = byte.map_or((text[length], 1), |byte| (byte, bytes));
        if byte != wanted {
            return None;
        }
        length += bytes;
    }
    Some(length)
}

/// Names of the secrets that parameters mention.
pub(crate) fn named(parameters: &Map<String, Value>) -> BTreeSet<String> {
    names_after(REFERENCE, parameters)
}

/// Names of the secrets that were taken out of what parameters hold.
pub(super) fn marked(parameters: &Map<String, Value>) -> BTreeSet<String> {
    names_after(MARK, parameters)
}

fn names_after(mark: &str, parameters: &Map<String, Value>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut values: Vec<&Value> = parameters.values().collect();
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => {
                let after = text.split(mark).skip(1);
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
        assert_eq!(scrubbed.message, "said [secret key]");
        assert_eq!(scrubbed.details["hint"], "[secret key]");
        let output = scrubbed.output.unwrap();
        assert_eq!(output["text"], "a [secret key] b");
        assert_eq!(output["list"], json!([{"[secret key]": "[secret pin]"}]));
        assert_eq!((&output["number"], &output["other"]), (&json!(3141592), &json!("harmless")));
        assert!(output["basic"].as_str().unwrap().contains("[secret key]"), "{output}");
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
                assert!(scrubbed.message.contains("[secret key]"), "{before:?} {after:?} {text}");
            }
        }
    }

    /// In a URL, in a form, with digits of either case, more or less of it encoded.
    #[test]
    fn a_secret_is_found_percent_encoded() {
        let held = Held::default().with("key", "pä ss+w/rd%&=").with("plain", "s3cr3t-value");
        let texts = [
            "?a=p%C3%A4%20ss%2Bw%2Frd%25%26%3D&b=1",
            "a=p%c3%a4+ss%2bw%2frd%25%26%3d&b=1",
            "%70%C3%A4%20%73%73%2B%77%2F%72%64%25%26%3D",
            "pä ss%2Bw/rd%&=",
            "twice p%C3%A4%20ss%2Bw%2Frd%25%26%3Dp%C3%A4+ss%2Bw%2Frd%25%26%3D",
            "%73%33cr3t%2Dvalue",
        ];
        for text in texts {
            let noted = Noted::new(&held);
            noted.secret("key").unwrap();
            noted.secret("plain").unwrap();
            let scrubbed = noted.scrub(Observation::new(Cause::Success, text)).message;
            assert!(scrubbed.contains("[secret "), "{text} became {scrubbed}");
            assert!(!scrubbed.contains("rd") && !scrubbed.contains("cr3t%"), "{text} became {scrubbed}");
        }
        for text in ["100%", "%", "%zz%+1", "p%C3%A4", "%é"] {
            let noted = Noted::new(&held);
            noted.secret("key").unwrap();
            assert_eq!(noted.scrub(Observation::new(Cause::Success, text)).message, text);
        }
    }

    #[test]
    fn a_secret_is_found_as_json_and_html_escape_it() {
        let secret = r#"pQ"ss/w'Rd+&x<Zy"#;
        let held = Held::default().with("key", secret);
        let json = serde_json::to_string(secret).unwrap();
        let texts = [
            format!("{{\"a\":{json}}}"),
            json.replace('/', "\\/"),
            "<p>pQ\"ss/w'Rd+&amp;x&lt;Zy</p>".to_owned(),
            "<a b=\"pQ&quot;ss/w'Rd+&amp;x&lt;Zy\">".to_owned(),
            "pQ&quot;ss/w&#39;Rd+&amp;x&lt;Zy".to_owned(),
        ];
        for text in texts {
            let noted = Noted::new(&held);
            noted.secret("key").unwrap();
            let scrubbed = noted.scrub(Observation::new(Cause::Success, text.clone())).message;
            assert!(scrubbed.contains("[secret key]") && !scrubbed.contains("Rd"), "{text} became {scrubbed}");
        }
    }

    /// A server that was sent a short secret returns it a million times.
    #[test]
    fn redaction_adds_little_however_often_a_secret_comes() {
        let name = "n".repeat(128);
        let held = Held::default().with(&name, "s3cr3t");
        let many = "s3cr3t".repeat(200_000);
        let listed = vec![Value::from("s3cr3t"); 100_000];
        let keys: Map<String, Value> = (0..20_000).map(|at| (format!("s3cr3t{at}"), at.into())).collect();
        for output in [json!(many), json!(listed), json!(many.replace('3', "%33")), Value::Object(keys)] {
            let noted = Noted::new(&held);
            noted.secret(&name).unwrap();
            let before = serde_json::to_string(&output).unwrap().len();
            let scrubbed = noted.scrub(Observation::new(Cause::Success, "").with_output(output)).output.unwrap();
            let text = serde_json::to_string(&scrubbed).unwrap();
            assert!(!text.contains("s3cr3t") && !text.contains("s%33cr%33t") && text.contains("[secret "));
            assert!(text.len() <= 2 * before + 2 * GROWTH_BYTES_MAX, "{} bytes of {before}", text.len());
        }
    }

    #[test]
    fn both_alphabets_of_base64_are_known() {
        let held = Held::default().with("key", "\u{3ff}\u{3fe}???>>>~~~");
        for engine in [&STANDARD, &base64::engine::general_purpose::URL_SAFE] {
            let noted = Noted::new(&held);
            noted.secret("key").unwrap();
            let text = engine.encode("ab\u{3ff}\u{3fe}???>>>~~~cd");
            assert!(
                noted.scrub(Observation::new(Cause::Success, text.clone())).message.contains("[secret key]"),
                "{text}"
            );
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
