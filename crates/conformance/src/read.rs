//! Reading JSON strictly, with the place of whatever is wrong.
//!
//! Keys that start with `_` are notes for people and dropped at every level. Any other key the reader does not ask for
//! is an error, so that a misspelt expectation cannot pass for one that holds.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why a file could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("it is not valid JSON: {0}")]
    Json(#[source] serde_json::Error),
    #[error("{} must be an object", if place.is_empty() { "the whole" } else { place })]
    NotAnObject { place: String },
    #[error("{place} is missing")]
    Missing { place: String },
    #[error("{place} is not a member known here")]
    Unknown { place: String },
    #[error("{place}: {source}")]
    Value { place: String, source: serde_json::Error },
    #[error("{place}: {problem}")]
    Invalid { place: String, problem: String },
}

/// An object being read: each member is taken once, and in the end none may be left.
#[derive(Debug)]
pub(crate) struct Object {
    place: String,
    members: Map<String, Value>,
}

impl Object {
    /// The whole of a file.
    pub(crate) fn parse(text: &str) -> Result<Object, ReadError> {
        Object::new(serde_json::from_str(text).map_err(ReadError::Json)?, String::new())
    }

    fn new(value: Value, place: String) -> Result<Object, ReadError> {
        match value {
            Value::Object(mut members) => {
                members.retain(|name, _| !is_note(name));
                Ok(Object { place, members })
            }
            _ => Err(ReadError::NotAnObject { place }),
        }
    }

    pub(crate) fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ReadError> {
        self.optional(name)?.ok_or_else(|| ReadError::Missing { place: self.place_of(name) })
    }

    /// None when the member is absent; `null` is a value like any other and mostly a wrong one.
    pub(crate) fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ReadError> {
        let Some(value) = self.members.remove(name) else { return Ok(None) };
        match serde_json::from_value(value) {
            Ok(value) => Ok(Some(value)),
            Err(source) => Err(ReadError::Value { place: self.place_of(name), source }),
        }
    }

    /// An object to be read member by member.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Object>, ReadError> {
        let Some(value) = self.members.remove(name) else { return Ok(None) };
        Object::new(value, self.place_of(name)).map(Some)
    }

    /// A list of such objects.
    pub(crate) fn objects(&mut self, name: &str) -> Result<Option<Vec<Object>>, ReadError> {
        let Some(values) = self.optional::<Vec<Value>>(name)? else { return Ok(None) };
        let place = self.place_of(name);
        let objects = values.into_iter().enumerate().map(|(at, value)| Object::new(value, format!("{place}[{at}]")));
        objects.collect::<Result<_, _>>().map(Some)
    }

    /// An object of free form, notes dropped at every level.
    pub(crate) fn free(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ReadError> {
        Ok(self.object(name)?.map(|object| {
            let mut members = object.members;
            members.values_mut().for_each(drop_notes);
            members
        }))
    }

    /// As [`Object::free`], of a member that must be there.
    pub(crate) fn free_required(&mut self, name: &str) -> Result<Map<String, Value>, ReadError> {
        self.free(name)?.ok_or_else(|| ReadError::Missing { place: self.place_of(name) })
    }

    /// Refuses what nobody asked for.
    pub(crate) fn end(self) -> Result<(), ReadError> {
        match self.members.keys().next() {
            Some(name) => Err(ReadError::Unknown { place: self.place_of(name) }),
            None => Ok(()),
        }
    }

    /// An error about a member that is well-formed and still wrong.
    pub(crate) fn invalid(&self, name: &str, problem: impl Into<String>) -> ReadError {
        ReadError::Invalid { place: self.place_of(name), problem: problem.into() }
    }

    fn place_of(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }
}

fn is_note(name: &str) -> bool {
    name.starts_with('_')
}

fn drop_notes(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !is_note(name));
            members.values_mut().for_each(drop_notes);
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_notes),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused<T: std::fmt::Debug>(found: Result<T, ReadError>, text: &str) {
        assert_eq!(found.expect_err("must be refused").to_string(), text);
    }

    #[test]
    fn notes_are_dropped_at_every_level() {
        let text = r#"{"_comment": 1, "a": {"_x": 2, "b": [{"_y": 3, "c": {"_": 4, "d_": 5}}]}}"#;
        let mut object = Object::parse(text).expect("an object");
        let free = object.free("a").expect("an object").expect("present");
        assert_eq!(Value::Object(free), serde_json::json!({"b": [{"c": {"d_": 5}}]}));
        object.end().expect("nothing is left");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let text = r#"{"n": "one", "list": [{}, {"known": true, "unknwon": 1}], "flat": 3, "null": null}"#;
        let mut object = Object::parse(text).expect("an object");
        refused(object.required::<u64>("n"), "n: invalid type: string \"one\", expected u64");
        refused(object.required::<u64>("m"), "m is missing");
        refused(object.optional::<u64>("null"), "null: invalid type: null, expected u64");
        refused(object.object("flat"), "flat must be an object");
        let mut second = object.objects("list").expect("a list").expect("present").pop().expect("two elements");
        assert!(second.required::<bool>("known").expect("a flag"));
        refused(second.end(), "list[1].unknwon is not a member known here");
        object.end().expect("nothing is left");
        refused(Object::parse("[]"), "the whole must be an object");
        assert!(matches!(Object::parse("{"), Err(ReadError::Json(_))));
    }
}
