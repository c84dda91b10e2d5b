//! Canonical JSON, as RFC 8785 has it: one text for one value, so that texts can be hashed and signed.
//!
//! The scheme rests on two conditions that parsers usually let pass, and both are checked here: no key is given twice,
//! and no integer is beyond what every JSON implementation reads exactly. A text for which one of them does not hold
//! means different things to different readers, so it has no canonical form.

mod measure;
mod write;

use std::cell::Cell;
use std::fmt;
use std::slice;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::memory;

pub use measure::{Measured, measure};
pub use write::{length, write};

/// The largest integer that has an exact neighbour on either side in the numbers of JSON: 2^53 - 1.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Why a value has no canonical form.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the integer {0} is beyond ±(2^53 - 1)")]
    Integer(Number),
    #[error("the value cannot be written as canonical JSON: {0}")]
    Write(#[from] serde_json::Error),
}

/// The canonical text of a value.
pub fn to_string(value: &Value) -> Result<String, Error> {
    check(value)?;
    // Most values are plain, and to write them as they are is much quicker.
    if is_plain(value) {
        return Ok(serde_json::to_string(value)?);
    }
    Ok(serde_json_canonicalizer::to_string(value)?)
}

/// Whether serde_json writes a value as RFC 8785 wants it. Blanks, escapes and integers are the same in both; what may
/// differ are numbers with a fraction or an exponent, and the order of members: bytes sort ASCII as UTF-16 does, and not
/// every map of serde_json is sorted.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(elements) => elements.iter().all(is_plain),
        Value::Object(members) => {
            let names = members.keys();
            names.clone().all(|name| name.is_ascii()) && names.is_sorted() && members.values().all(is_plain)
        }
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Reads a JSON text, canonical or not; a key given twice in one object is an error. No error text quotes the input.
pub fn parse(text: &[u8]) -> Result<Value, serde_json::Error> {
    // The parser itself goes no deeper than 128 levels.
    parse_within(text, usize::MAX)
}

/// As [`parse`], and arrays and objects nested deeper than `depth_max` levels are an error.
pub fn parse_within(text: &[u8], depth_max: usize) -> Result<Value, serde_json::Error> {
    parse_bounded(text, Bounds { depth_max, memory_max: usize::MAX })
}

/// How large a value may be that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Levels of arrays and objects.
    pub depth_max: usize,
    /// What the value takes in memory, by the weights of [`memory`].
    pub memory_max: usize,
}

/// As [`parse`], and what is beyond the bounds is an error as soon as the text is read that far.
pub fn parse_bounded(text: &[u8], bounds: Bounds) -> Result<Value, serde_json::Error> {
    build(text, bounds, &[])
}

/// As [`parse_bounded`] for a text that was measured: arrays are allocated once, at their exact length, so that reading
/// takes what the value weighs and not up to three times as much.
pub fn parse_measured(text: &[u8], bounds: Bounds, measured: &Measured) -> Result<Value, serde_json::Error> {
    build(text, bounds, &measured.lengths)
}

fn build(text: &[u8], bounds: Bounds, lengths: &[u32]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let (memory, lengths) = (Cell::new(bounds.memory_max), Cell::new(lengths.iter()));
    let value = Strict { depth: 0, bounds, memory: &memory, lengths: &lengths }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Whether a value has a canonical form. One that was written may have none when it is read back: `1e17` is written as
/// the integer it is.
pub fn check(value: &Value) -> Result<(), Error> {
    match value {
        Value::Number(number) => check_number(number),
        Value::Array(elements) => elements.iter().try_for_each(check),
        Value::Object(members) => members.values().try_for_each(check),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// Whether a number has a canonical form.
pub fn check_number(number: &Number) -> Result<(), Error> {
    let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    match magnitude {
        Some(magnitude) if magnitude > INTEGER_MAX => Err(Error::Integer(number.clone())),
        _ => Ok(()),
    }
}

/// Builds a [`Value`] that stands inside so many arrays and objects, as serde_json does, but for keys that come twice.
#[derive(Clone, Copy)]
struct Strict<'m> {
    depth: usize,
    bounds: Bounds,
    /// What the whole value may still take.
    memory: &'m Cell<usize>,
    /// The lengths of the long arrays to come, if the text was measured.
    lengths: &'m Cell<slice::Iter<'m, u32>>,
}

/// Elements that a vector of values has room for once it has any. A longer array is a long one.
const SHORT_MAX: usize = 4;

impl Strict<'_> {
    fn inside<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth_max = self.bounds.depth_max;
        if self.depth == depth_max {
            return Err(E::custom(format_args!("nested deeper than {depth_max} levels")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn take<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let memory_max = self.bounds.memory_max;
        let beyond = || E::custom(format_args!("it would take more than {memory_max} bytes of memory"));
        self.memory.set(self.memory.get().checked_sub(bytes).ok_or_else(beyond)?);
        Ok(())
    }

    /// The length of the long array that is being read.
    fn next_length(self) -> Option<usize> {
        let mut lengths = self.lengths.take();
        let next = lengths.next().and_then(|length| usize::try_from(*length).ok());
        self.lengths.set(lengths);
        next
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.take(memory::VALUE_BYTES)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.take(memory::of_text(text))?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.take(memory::of_text(&text))?;
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element_seed(inside)? {
            if elements.len() == SHORT_MAX
                && let Some(length) = self.next_length()
            {
                elements.reserve_exact(length.saturating_sub(SHORT_MAX));
            }
            elements.push(element);
        }
        elements.shrink_to_fit();
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut members = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.take(memory::of_text(&key))?;
            if members.len().is_multiple_of(memory::NODE_MEMBERS) {
                self.take(memory::NODE_BYTES)?;
            }
            let Entry::Vacant(place) = members.entry(key) else {
                return Err(A::Error::custom("a key is given twice"));
            };
            place.insert(entries.next_value_seed(inside)?);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any value, with what sets canonical JSON apart in it: fractions, and names beyond ASCII and beyond U+FFFF.
    fn values() -> impl Strategy<Value = Value> {
        let text = || prop_oneof![".{0,6}", "[\\x00-\\x7f]{0,6}", "[a-c\u{fb33}\u{1f600}]{0,3}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(|number| Value::from(number >> 11)),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(text(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The short way and the long one write the same.
        #[test]
        fn what_is_plain_is_written_as_the_canonical_form(value in values()) {
            let canonical = serde_json_canonicalizer::to_string(&value).unwrap();
            prop_assert_eq!(to_string(&value).unwrap(), canonical);
        }
    }

    #[test]
    fn fractions_and_names_beyond_ascii_are_not_plain() {
        for text in ["[1]", r#"{"":{},"a":"\u001f\u20ac","b":[null,true,-3]}"#] {
            assert!(is_plain(&parse(text.as_bytes()).unwrap()), "{text}");
        }
        for text in ["[0.5]", "[-0]", r#"{"\u20ac":1}"#, r#"{"a":[{"b":1e3}]}"#] {
            assert!(!is_plain(&parse(text.as_bytes()).unwrap()), "{text}");
        }
    }

    fn canonical(text: &str) -> String {
        to_string(&parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn std_hash_3_strings_are_escaped_no_more_than_needed() {
        let mut text = String::from("\"\\\u{8}\u{9}\u{a}\u{c}\u{d}\u{0}\u{1}\u{b}\u{e}\u{1f}");
        text.push_str("/\u{7f}\u{2028}\u{e9}e\u{301}\u{1f702}");
        let expected =
            concat!(r#"["\"\\\b\t\n\f\r\u0000\u0001\u000b\u000e\u001f"#, "/\u{7f}\u{2028}\u{e9}e\u{301}\u{1f702}\"]");
        assert_eq!(to_string(&Value::from(vec![text])).unwrap(), expected);
        // Each of the characters below the blank by itself.
        for code in 0..0x20_u8 {
            let short = match code {
                0x08 => Some('b'),
                0x09 => Some('t'),
                0x0a => Some('n'),
                0x0c => Some('f'),
                0x0d => Some('r'),
                _ => None,
            };
            let expected = short.map_or_else(|| format!("\"\\u{code:04x}\""), |letter| format!("\"\\{letter}\""));
            assert_eq!(to_string(&Value::from(char::from(code).to_string())).unwrap(), expected);
        }
    }

    /// The sample of RFC 8785, section 3.2.3: UTF-16 puts what is beyond U+FFFF before U+FB33, bytes would not.
    #[test]
    fn members_are_sorted_by_utf_16_code_units() {
        let text = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}";
        assert_eq!(canonical(text), expected);
    }

    #[test]
    fn numbers_and_blanks_have_one_form() {
        let text = "{ \"b\" : [ 333333333.33333329, 1E30, 4.50, 2e-3, 1e-27, -0, 12.0, 4 ],\n \"a\": {\"d\":null,\"c\":true} }";
        let expected = r#"{"a":{"c":true,"d":null},"b":[333333333.3333333,1e+30,4.5,0.002,1e-27,0,12,4]}"#;
        assert_eq!(canonical(text), expected);
    }

    #[test]
    fn std_rcpt_1_integers_beyond_the_safe_range_have_no_form() {
        for good in ["9007199254740991", "-9007199254740991", "0"] {
            assert_eq!(canonical(&format!("[{good}]")), format!("[{good}]"));
        }
        for bad in ["9007199254740992", "-9007199254740992", "18446744073709551615", "-9223372036854775808"] {
            let value = parse(format!(r#"{{"a":[{bad}]}}"#).as_bytes()).unwrap();
            let error = to_string(&value).unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
        // RFC 8785 writes every number below 1e21 without an exponent, also those that cannot be read back.
        let written = canonical("[1e17]");
        assert_eq!(written, "[100000000000000000]");
        assert!(matches!(check(&parse(written.as_bytes()).unwrap()), Err(Error::Integer(_))));
    }

    #[test]
    fn a_key_given_twice_is_an_error_at_any_depth_and_is_not_quoted() {
        for text in [r#"{"secret":1,"secret":1}"#, r#"[{"a":{"secret":1,"\u0073ecret":2}}]"#] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("given twice") && !error.contains("secret"), "{error}");
        }
        assert!(parse(br#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    }

    #[test]
    fn nesting_ends_where_the_caller_says() {
        for (text, depth) in [("1", 0), ("[]", 1), (r#"{"a":[1,{}]}"#, 3)] {
            assert!(parse_within(text.as_bytes(), depth).is_ok(), "{text}");
            if let Some(less) = depth.checked_sub(1) {
                let error = parse_within(text.as_bytes(), less).unwrap_err().to_string();
                assert!(error.contains(&format!("deeper than {less} levels")), "{error}");
            }
        }
    }

    #[test]
    fn memory_ends_where_the_caller_says() {
        let nine: Vec<String> = (0..9).map(|at| format!(r#""m{at}":[{at}]"#)).collect();
        let object = format!("{{{}}}", nine.join(","));
        for text in ["1", "[]", r#"[{"":0},{"":0}]"#, r#"["","text",{"name":{}}]"#, &object] {
            let memory_max = memory::of(&parse(text.as_bytes()).unwrap());
            let within = |memory_max| parse_bounded(text.as_bytes(), Bounds { depth_max: usize::MAX, memory_max });
            assert!(within(memory_max).is_ok(), "{text}");
            let error = within(memory_max - 1).unwrap_err().to_string();
            assert!(error.contains(&format!("more than {} bytes of memory", memory_max - 1)), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_json_text_is_an_error() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "{}x", "nul", "\"\\ud800\"", "1e999", "'a'", &deep] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.10}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }
}
