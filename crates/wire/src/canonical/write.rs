//! Writes canonical JSON into a writer, without a copy of the value or of its text on the way.

use std::io::{self, Write};

use serde_json::{Number, Value};

use super::{Error, check_number};

/// Writes the canonical text of a value.
///
/// Unlike [`super::to_string`] it needs no memory but for the members of one object that are not in order. What was
/// written before an error is not undone.
pub fn write(value: &Value, out: &mut impl Write) -> Result<(), Error> {
    match value {
        Value::Null => plain(out, b"null"),
        Value::Bool(true) => plain(out, b"true"),
        Value::Bool(false) => plain(out, b"false"),
        Value::Number(number) => put_number(number, out),
        Value::String(text) => put_text(text, out),
        Value::Array(elements) => {
            plain(out, b"[")?;
            for (at, element) in elements.iter().enumerate() {
                separate(at, out)?;
                write(element, out)?;
            }
            plain(out, b"]")
        }
        Value::Object(members) => {
            plain(out, b"{")?;
            // Bytes sort ASCII as UTF-16 does, and this map sorts by bytes.
            if members.keys().all(|name| name.is_ascii()) && members.keys().is_sorted() {
                put_members(members.iter(), out)?;
            } else {
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
                put_members(sorted.into_iter(), out)?;
            }
            plain(out, b"}")
        }
    }
}

/// Returns the length of the canonical text of a value, in bytes.
pub fn length(value: &Value) -> Result<usize, Error> {
    let mut counter = Counter(0);
    write(value, &mut counter)?;
    Ok(counter.0)
}

struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put_members<'v>(members: impl Iterator<Item = (&'v String, &'v Value)>, out: &mut impl Write) -> Result<(), Error> {
    for (at, (name, member)) in members.enumerate() {
        separate(at, out)?;
        put_text(name, out)?;
        plain(out, b":")?;
        write(member, out)?;
    }
    Ok(())
}

fn separate(at: usize, out: &mut impl Write) -> Result<(), Error> {
    if at == 0 { Ok(()) } else { plain(out, b",") }
}

fn put_text(text: &str, out: &mut impl Write) -> Result<(), Error> {
    Ok(serde_json::to_writer(out, text)?)
}

fn put_number(number: &Number, out: &mut impl Write) -> Result<(), Error> {
    check_number(number)?;
    match number.is_f64() {
        true => plain(out, serde_json_canonicalizer::to_string(number)?.as_bytes()),
        false => Ok(serde_json::to_writer(out, number)?),
    }
}

fn plain(out: &mut impl Write, text: &[u8]) -> Result<(), Error> {
    out.write_all(text).map_err(|error| Error::Write(serde_json::Error::io(error)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn length_is_that_of_the_text() {
        let value = json!({"a": [1, 0.5, 1e21, "é\"\n"], "\u{fb33}": {}, "\u{1f600}": null});
        assert_eq!(length(&value).unwrap(), super::super::to_string(&value).unwrap().len());
        assert!(length(&json!(u64::MAX)).is_err());
    }
}
