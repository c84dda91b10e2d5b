//! A JSON object read into the few kinds of value payloads use.
//!
//! A reader of our own, rather than derived ones, for two reasons: keys given twice are refused also where the field
//! is unknown, and no error text quotes a value (derived readers quote the value they did not expect).

use std::{collections::BTreeMap, fmt};

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD},
};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

use super::Error;

/// The fields of an object. Each is taken out once, by the name and type its message gives it.
#[derive(Debug, Default)]
pub(super) struct Object(BTreeMap<String, Value>);

#[derive(Debug)]
enum Value {
    Text(String),
    Number(f64),
    Flag(bool),
    Object(Object),
    /// Null and arrays, which no field is made of. Their content is checked and dropped.
    Other,
}

impl Object {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(Error::Json)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<String, Error> {
        Ok(self.text_if_present(field)?.unwrap_or_default())
    }

    pub(super) fn text_required(&mut self, field: &'static str) -> Result<String, Error> {
        self.text_if_present(field)?.ok_or(Error::Missing { field })
    }

    pub(super) fn number(&mut self, field: &'static str) -> Result<f64, Error> {
        match self.0.remove(field) {
            None => Ok(0.0),
            Some(Value::Number(number)) => Ok(number),
            Some(_) => Err(Error::WrongType { field, expected: "a number" }),
        }
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, Error> {
        match self.0.remove(field) {
            None => Ok(false),
            Some(Value::Flag(flag)) => Ok(flag),
            Some(_) => Err(Error::WrongType { field, expected: "true or false" }),
        }
    }

    pub(super) fn bytes(&mut self, field: &'static str) -> Result<Bytes, Error> {
        let text = self.text(field)?;
        // Padding may be left out, but not half of it.
        let engine = if text.ends_with('=') { &BASE64_STANDARD } else { &BASE64_STANDARD_NO_PAD };
        match engine.decode(text) {
            Ok(bytes) => Ok(bytes.into()),
            Err(source) => Err(Error::Base64 { field, source }),
        }
    }

    pub(super) fn object(&mut self, field: &'static str) -> Result<Option<Object>, Error> {
        match self.0.remove(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(Error::WrongType { field, expected: "an object" }),
        }
    }

    fn text_if_present(&mut self, field: &'static str) -> Result<Option<String>, Error> {
        match self.0.remove(field) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Error::WrongType { field, expected: "a string" }),
        }
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object, A::Error> {
                collect(map)
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Value, E> {
                Ok(Value::Text(text))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(Value::Number(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Number(number as f64))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(Value::Number(number as f64))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
                Ok(Value::Flag(flag))
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
                while elements.next_element::<Value>()?.is_some() {}
                Ok(Value::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
                collect(map).map(Value::Object)
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}

fn collect<'de, A: MapAccess<'de>>(mut map: A) -> Result<Object, A::Error> {
    let mut fields = BTreeMap::new();
    while let Some((key, value)) = map.next_entry()? {
        if fields.insert(key, value).is_some() {
            return Err(A::Error::custom("a key is given twice"));
        }
    }
    Ok(Object(fields))
}
