//! How an entry is written: one object with its number, its kind and what it says.
//!
//! A derived reader of such an object would buffer it twice, once to find the number and once to find the kind. It is
//! an object already when it comes here, so both are taken out of it instead.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::{Error, Map, Value};

use super::{Body, Entry};

const SEQ: &str = "seq";
pub(super) const KIND: &str = "type";

impl Entry {
    pub(super) fn to_value(&self) -> Result<Value, Error> {
        let tagged = match serde_json::to_value(&self.body)? {
            Value::Object(tagged) => tagged.into_iter().next(),
            _ => None,
        };
        let Some((kind, Value::Object(mut members))) = tagged else {
            return Err(Error::custom("what an entry says is an object"));
        };
        members.insert(SEQ.to_owned(), self.seq.into());
        members.insert(KIND.to_owned(), kind.into());
        Ok(Value::Object(members))
    }

    pub(super) fn from_members(mut members: Map<String, Value>) -> Result<Self, Error> {
        let seq = members.remove(SEQ).ok_or_else(|| Error::missing_field(SEQ))?;
        let kind = members.remove(KIND).ok_or_else(|| Error::missing_field(KIND))?;
        let tagged = Map::from_iter([(String::deserialize(kind)?, Value::Object(members))]);
        Ok(Self { seq: u64::deserialize(seq)?, body: Body::deserialize(Value::Object(tagged))? })
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_members(Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
