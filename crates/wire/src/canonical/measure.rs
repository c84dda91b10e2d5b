//! Measures a JSON text before it is read: what its value takes in memory, and how long its arrays are.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::SHORT_MAX;
use crate::memory;

/// The measures of a JSON text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// What the value takes, by the weights of [`memory`].
    pub memory: usize,
    /// The length of its canonical text, at most.
    pub text_max: usize,
    /// The lengths of all long arrays, in the order in which their fifth elements end.
    pub(super) lengths: Vec<u32>,
}

/// Measures a JSON text without building its value. Names that come twice are counted and not reported.
///
/// A text whose value takes more than `memory_max` is an error as soon as it is read that far.
pub fn measure(text: &[u8], memory_max: usize) -> Result<Measured, serde_json::Error> {
    let mut scale = Scale { memory_max, measured: Measured { text_max: text.len(), ..Measured::default() } };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Weighing(&mut scale).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(scale.measured)
}

/// The longest canonical text of a number.
const NUMBER_TEXT_MAX: usize = 25;

struct Scale {
    memory_max: usize,
    measured: Measured,
}

struct Weighing<'s>(&'s mut Scale);

impl Scale {
    fn add<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        let (sum, memory_max) = (self.measured.memory.saturating_add(bytes), self.memory_max);
        if sum > memory_max {
            return Err(E::custom(format_args!("it would take more than {memory_max} bytes of memory")));
        }
        self.measured.memory = sum;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Weighing<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.add(memory::VALUE_BYTES)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weighing<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        // Nothing else is longer in canonical form than in another: `1e20` is written out.
        self.0.measured.text_max = self.0.measured.text_max.saturating_add(NUMBER_TEXT_MAX);
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.0.add(memory::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let (mut count, mut place) = (0_usize, None);
        while sequence.next_element_seed(Weighing(self.0))?.is_some() {
            if count == SHORT_MAX {
                place = Some(self.0.measured.lengths.len());
                self.0.measured.lengths.push(0);
            }
            count += 1;
        }
        if let Some(place) = place {
            let length = u32::try_from(count).map_err(|_| A::Error::custom("an array has too many elements"))?;
            self.0.measured.lengths[place] = length;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut count = 0_usize;
        while let Some(bytes) = entries.next_key_seed(Name)? {
            self.0.add(bytes)?;
            if count.is_multiple_of(memory::NODE_MEMBERS) {
                self.0.add(memory::NODE_BYTES)?;
            }
            count += 1;
            entries.next_value_seed(Weighing(self.0))?;
        }
        Ok(())
    }
}

/// Reads the weight of a member's name.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, text: &str) -> Result<usize, E> {
        Ok(memory::of_text(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{Bounds, parse, parse_measured};
    use super::*;

    const TEXTS: [&str; 5] = [
        "1",
        r#"["a",[1,2,3,4,[5,6,7,8,9,10],[],11],{"b":[0,0,0,0,0,0],"c":{}}]"#,
        r#"[[[[[0,1,2,3,4]]]],[1,2,3,4],[1,2,3,4,[1,2,3,4,5,6,7,8,9]],0,0,0,0]"#,
        r#"{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"\u0067":"\n"}"#,
        r#"[{"":0},{"":0},{"":0},{"":0},{"":0},{"":0},{"":0},{"":0}]"#,
    ];

    #[test]
    fn a_text_weighs_what_its_value_does() {
        for text in TEXTS {
            let value = parse(text.as_bytes()).unwrap();
            let measured = measure(text.as_bytes(), usize::MAX).unwrap();
            assert_eq!(measured.memory, memory::of(&value), "{text}");
            assert!(measure(text.as_bytes(), measured.memory - 1).is_err(), "{text}");
            let bounds = Bounds { depth_max: usize::MAX, memory_max: usize::MAX };
            let built = parse_measured(text.as_bytes(), bounds, &measured).unwrap();
            assert_eq!(built, value, "{text}");
            assert!(is_tight(&built), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_text_has_no_measure() {
        for text in ["", "[1", "{}x", "{\"a\":}", "nul"] {
            assert!(measure(text.as_bytes(), usize::MAX).is_err(), "{text}");
        }
    }

    fn is_tight(value: &Value) -> bool {
        match value {
            Value::Array(elements) => elements.capacity() == elements.len() && elements.iter().all(is_tight),
            Value::Object(members) => members.values().all(is_tight),
            _ => true,
        }
    }
}
