//! References: `{{name.path[0]}}` inside parameters stands for a part of an earlier step's output.
//!
//! A string that is one reference and nothing else becomes the value itself, whatever its type; a reference inside a
//! longer text becomes text. Whatever cannot be resolved is an error: a template never reaches a skill.

use macp_wire::memory;
use serde_json::{Map, Value};

use crate::limits;

/// A reference as it stands in the parameters: the text between the braces, without blanks at its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub text: String,
}

/// A reference that leads nowhere, or a text that is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reference `{reference}` cannot be resolved: {why}")]
pub struct Unresolved {
    pub reference: String,
    pub why: String,
}

/// One move along a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment<'a> {
    Key(&'a str),
    Index(usize),
}

/// A string, taken apart.
enum Piece<'a> {
    Text(&'a str),
    Reference(&'a str),
}

/// Puts the outputs of earlier steps into the places of their references. `lookup` gives the output of a step by the
/// name references use.
pub fn resolve<'v>(
    parameters: &Map<String, Value>,
    lookup: &dyn Fn(&str) -> Option<&'v Value>,
) -> Result<Map<String, Value>, Unresolved> {
    let mut room = Room { bytes: limits::RESOLVED_BYTES_MAX, memory: limits::RESOLVED_MEMORY_MAX };
    parameters.iter().map(|(key, value)| Ok((key.clone(), resolve_value(value, lookup, &mut room)?))).collect()
}

/// Every reference in the parameters, in the order of the keys. Fails on the first string that opens a reference and
/// does not hold one.
pub fn references(parameters: &Map<String, Value>) -> Result<Vec<Reference>, Unresolved> {
    let mut found = Vec::new();
    parameters.values().try_for_each(|value| collect(value, &mut found))?;
    Ok(found)
}

/// How many references parameters hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Those that become the value itself.
    pub(crate) whole: usize,
    /// Those inside a longer text.
    pub(crate) embedded: usize,
}

/// Counts the references in parameters, of which each may insert a whole output. A string that is none counts as none.
pub(crate) fn counted(parameters: &Map<String, Value>) -> Counted {
    let mut counted = Counted::default();
    parameters.values().for_each(|value| count(value, &mut counted));
    counted
}

fn count(value: &Value, counted: &mut Counted) {
    match value {
        Value::String(text) => match pieces(text).as_deref() {
            Ok([Piece::Reference(_)]) => counted.whole += 1,
            Ok(pieces) => {
                counted.embedded += pieces.iter().filter(|piece| matches!(piece, Piece::Reference(_))).count();
            }
            Err(_not_a_reference) => {}
        },
        Value::Array(elements) => elements.iter().for_each(|element| count(element, counted)),
        Value::Object(members) => members.values().for_each(|member| count(member, counted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Reference {
    /// The names this reference may mean, longest first: names may hold points, and so `a.b.c` can be `c` of `a.b`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        names(&self.text)
    }
}

/// Whether a text holds no reference, so that it means the same at every time.
#[must_use]
pub fn is_literal(parameters: &Map<String, Value>) -> bool {
    references(parameters).is_ok_and(|found| found.is_empty())
}

fn collect(value: &Value, found: &mut Vec<Reference>) -> Result<(), Unresolved> {
    match value {
        Value::String(text) => {
            for piece in pieces(text)? {
                if let Piece::Reference(text) = piece {
                    check_form(text)?;
                    found.push(Reference { text: text.to_owned() });
                }
            }
            Ok(())
        }
        Value::Array(elements) => elements.iter().try_for_each(|element| collect(element, found)),
        Value::Object(members) => members.values().try_for_each(|member| collect(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn resolve_value<'v>(
    value: &Value,
    lookup: &dyn Fn(&str) -> Option<&'v Value>,
    room: &mut Room,
) -> Result<Value, Unresolved> {
    match value {
        Value::String(text) => resolve_text(text, lookup, room),
        Value::Array(elements) => elements
            .iter()
            .map(|element| resolve_value(element, lookup, room))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| Ok((key.clone(), resolve_value(member, lookup, room)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

fn resolve_text<'v>(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<&'v Value>,
    room: &mut Room,
) -> Result<Value, Unresolved> {
    let pieces = pieces(text)?;
    if let [Piece::Reference(reference)] = pieces[..] {
        let value = find(reference, lookup)?;
        room.take(size(value), reference)?;
        room.hold(value, reference)?;
        return Ok(value.clone());
    }
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Reference(reference) => {
                let value = find(reference, lookup)?;
                room.take(size(value), reference)?;
                match value {
                    Value::String(text) => out.push_str(text),
                    other => {
                        let text = macp_wire::canonical::to_string(other)
                            .map_err(|error| unresolved(reference, error.to_string()))?;
                        out.push_str(&text);
                    }
                }
            }
        }
    }
    Ok(Value::String(out))
}

/// Cuts a string at its references.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Unresolved> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((inside, behind)) = after.split_once("}}") else {
            let start: String = after.chars().take(limits::STEP_ID_MAX).collect();
            return Err(unresolved(&start, "`{{` opens a reference that is never closed by `}}`".to_owned()));
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Reference(inside.trim_matches(' ')));
        rest = behind;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// The value a reference means: the longest name that `lookup` knows, then the path.
fn find<'v>(reference: &str, lookup: &dyn Fn(&str) -> Option<&'v Value>) -> Result<&'v Value, Unresolved> {
    check_form(reference)?;
    let Some((name, output)) = names(reference).find_map(|name| lookup(name).map(|output| (name, output))) else {
        return Err(unresolved(reference, "no earlier step of this name has an output".to_owned()));
    };
    let path = reference.get(name.len()..).unwrap_or_default();
    let mut value = output;
    for segment in segments(path).map_err(|why| unresolved(reference, why))? {
        let next = match (&segment, value) {
            (Segment::Key(key), Value::Object(members)) => members.get(*key),
            (Segment::Index(index), Value::Array(elements)) => elements.get(*index),
            _ => None,
        };
        value = next.ok_or_else(|| {
            let place = match segment {
                Segment::Key(key) => format!("there is no member `{key}`"),
                Segment::Index(index) => format!("there is no element {index}"),
            };
            unresolved(reference, format!("{place} in {}", kind(value)))
        })?;
    }
    Ok(value)
}

/// A reference is a name of the characters of step ids, and a path.
fn check_form(reference: &str) -> Result<(), Unresolved> {
    if reference.len() > limits::REFERENCE_BYTES_MAX {
        let start: String = reference.chars().take(limits::STEP_ID_MAX).collect();
        let why = format!("it has {} bytes, and {} are the most", reference.len(), limits::REFERENCE_BYTES_MAX);
        return Err(unresolved(&start, why));
    }
    let first = reference.split(['.', '[']).next().unwrap_or_default();
    if first.is_empty() || !first.chars().all(is_name_character) {
        let why = "it must begin with the name of an earlier step, as in `{{s1.body}}`";
        return Err(unresolved(reference, why.to_owned()));
    }
    // Behind the first point may be more of the name; as far as the form goes that is a path too.
    segments(&reference[first.len()..]).map(drop).map_err(|why| unresolved(reference, why))
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
}

/// Every prefix of a reference that can be a name, longest first. Only as much of the reference is looked at as the
/// longest name has, so that a long one does not stand for a prefix at each of its points.
fn names(reference: &str) -> impl Iterator<Item = &str> {
    let mut characters = reference.char_indices();
    let beyond = characters.find(|(place, character)| *place == limits::STEP_ID_MAX || !is_name_character(*character));
    let end = beyond.map_or(reference.len(), |(place, _)| place);
    let whole = &reference[..end];
    let bounded = end == reference.len() || matches!(reference.as_bytes().get(end), Some(b'.' | b'['));
    let cuts = whole.rmatch_indices('.').map(|(place, _)| &whole[..place]);
    bounded.then_some(whole).into_iter().chain(cuts).filter(|name| !name.is_empty())
}

/// Reads `.key` and `[n]` to the end of a path.
fn segments(path: &str) -> Result<Vec<Segment<'_>>, String> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, behind) = after.split_at(end);
            if key.is_empty() || key.contains(['{', '}', ']']) {
                return Err("a point is followed by the name of a member".to_owned());
            }
            segments.push(Segment::Key(key));
            rest = behind;
        } else if let Some((digits, behind)) = rest.strip_prefix('[').and_then(|after| after.split_once(']')) {
            let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            let index = if plain { digits.parse().ok() } else { None };
            segments.push(Segment::Index(index.ok_or("an element is named by its number, as in `[0]`")?));
            rest = behind;
        } else {
            return Err("a path is made of `.member` and `[number]`".to_owned());
        }
    }
    Ok(segments)
}

/// What one step may still insert.
struct Room {
    /// Of text, about.
    bytes: usize,
    memory: usize,
}

impl Room {
    fn take(&mut self, size: usize, reference: &str) -> Result<(), Unresolved> {
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| {
            unresolved(reference, format!("the parameters would grow beyond {} bytes", limits::RESOLVED_BYTES_MAX))
        })?;
        Ok(())
    }

    fn hold(&mut self, value: &Value, reference: &str) -> Result<(), Unresolved> {
        self.memory = self.memory.checked_sub(memory::of(value)).ok_or_else(|| {
            let most = limits::RESOLVED_MEMORY_MAX;
            unresolved(reference, format!("the parameters would take more than {most} bytes of memory"))
        })?;
        Ok(())
    }
}

/// About as many bytes as the value has when it is written.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(elements) => 2 + elements.iter().map(|element| 1 + size(element)).sum::<usize>(),
        Value::Object(members) => 2 + members.iter().map(|(key, member)| key.len() + 4 + size(member)).sum::<usize>(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn unresolved(reference: &str, why: String) -> Unresolved {
    Unresolved { reference: reference.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The same output may be named many times, and small objects take a hundred times their text.
    #[test]
    fn what_is_put_into_one_step_is_weighed_as_it_is_in_memory() {
        let output = Value::from(vec![json!({"": 0}); 100_000]);
        let lookup = |name: &str| (name == "s1").then_some(&output);
        let named = |times: usize| match json!({"all": vec!["{{s1}}"; times]}) {
            Value::Object(parameters) => resolve(&parameters, &lookup),
            _ => unreachable!("an object was written"),
        };
        assert!(named(1).is_ok());
        assert!(named(2).expect_err("140 MB").why.contains("bytes of memory"));
    }
}
