//! Payloads of fixtures as protobuf, and back.
//!
//! Members go by the names of the protobuf fields. What is absent takes protobuf's default, with one convention: a
//! CommitmentPayload that says nothing of `outcome_positive` means true. Bytes are written as text, whose UTF-8 bytes
//! they are, or as an array of byte values; they are shown as text where they are text.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage,
    Value as Field,
};
use serde_json::{Map, Value, json};

/// The payload of the message that resolves a session.
pub(crate) const COMMITMENT: &str = "macp.v1.CommitmentPayload";

const OUTCOME: &str = "outcome_positive";

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(macp_wire::FILE_DESCRIPTOR_SET).expect("the descriptors were made by our own build")
});

/// Why a payload could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("there is no protobuf message {0:?}")]
    UnknownType(String),
    #[error("{message} has no field {field:?}")]
    UnknownField { message: String, field: String },
    #[error("{field} of {message} cannot be {value}: it is {expected}")]
    Value { message: String, field: String, value: Value, expected: String },
    #[error("it is not a {message}")]
    Decode { message: String, source: prost::DecodeError },
}

/// Full name of the payload of a message in a mode's session.
pub fn type_of(mode: &str, message_type: &str) -> String {
    match message_type {
        "SessionStart" | "Signal" | "Progress" | "SessionCancel" | "SessionSuspend" | "SessionResume"
        | "Commitment" => format!("macp.v1.{message_type}Payload"),
        _ => {
            // `macp.mode.task.v1` and `ext.multi_round.v1`: the word before the version names the package.
            let word = mode.rsplit('.').nth(1).unwrap_or(mode);
            format!("macp.modes.{word}.v1.{message_type}Payload")
        }
    }
}

/// The bytes of a payload written in a fixture.
pub fn encode(type_name: &str, payload: &Map<String, Value>) -> Result<Bytes, PayloadError> {
    let mut message = message(descriptor(type_name)?, payload)?;
    if type_name == COMMITMENT && !payload.contains_key(OUTCOME) {
        message.set_field_by_name(OUTCOME, Field::Bool(true));
    }
    Ok(message.encode_to_vec().into())
}

/// A payload as fixtures write it, with every field that cannot be absent.
pub fn decode(type_name: &str, bytes: &[u8]) -> Result<Value, PayloadError> {
    let message = DynamicMessage::decode(descriptor(type_name)?, bytes)
        .map_err(|source| PayloadError::Decode { message: type_name.to_owned(), source })?;
    Ok(shown(&message))
}

/// An expectation written the way [`decode`] writes values. Only bytes have two spellings.
pub(crate) fn normalise(type_name: &str, expected: &Value) -> Result<Value, PayloadError> {
    normalise_in(&descriptor(type_name)?, expected)
}

fn descriptor(type_name: &str) -> Result<MessageDescriptor, PayloadError> {
    POOL.get_message_by_name(type_name).ok_or_else(|| PayloadError::UnknownType(type_name.to_owned()))
}

fn field(descriptor: &MessageDescriptor, name: &str) -> Result<FieldDescriptor, PayloadError> {
    descriptor.get_field_by_name(name).ok_or_else(|| PayloadError::UnknownField {
        message: descriptor.full_name().to_owned(),
        field: name.to_owned(),
    })
}

fn message(descriptor: MessageDescriptor, members: &Map<String, Value>) -> Result<DynamicMessage, PayloadError> {
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, value) in members {
        let field = field(&descriptor, name)?;
        let value = if field.is_map() {
            map(&field, value)?
        } else if field.is_list() {
            let elements = value.as_array().ok_or_else(|| wrong(&field, value, "a list"))?;
            Field::List(elements.iter().map(|element| single(&field, element)).collect::<Result<_, _>>()?)
        } else {
            single(&field, value)?
        };
        message.set_field(&field, value);
    }
    Ok(message)
}

fn map(field: &FieldDescriptor, value: &Value) -> Result<Field, PayloadError> {
    let members = value.as_object().ok_or_else(|| wrong(field, value, "a map"))?;
    let Kind::Message(entry) = field.kind() else { return Err(wrong(field, value, "a map")) };
    let mut fields = HashMap::new();
    for (name, value) in members {
        // The protocol has no maps with other keys.
        fields.insert(MapKey::String(name.clone()), single(&entry.map_entry_value_field(), value)?);
    }
    Ok(Field::Map(fields))
}

fn single(field: &FieldDescriptor, value: &Value) -> Result<Field, PayloadError> {
    let wrong = |expected: &str| wrong(field, value, expected);
    match field.kind() {
        Kind::String => value.as_str().map(|text| Field::String(text.to_owned())).ok_or_else(|| wrong("text")),
        Kind::Bytes => bytes(value).map(Field::Bytes).ok_or_else(|| wrong("text, or a list of byte values")),
        Kind::Bool => value.as_bool().map(Field::Bool).ok_or_else(|| wrong("true or false")),
        Kind::Double => value.as_f64().map(Field::F64).ok_or_else(|| wrong("a number")),
        Kind::Float => value.as_f64().map(|number| Field::F32(number as f32)).ok_or_else(|| wrong("a number")),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            integer(value).map(Field::I32).ok_or_else(|| wrong("an integer of 32 bits"))
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            integer(value).map(Field::I64).ok_or_else(|| wrong("an integer of 64 bits"))
        }
        Kind::Uint32 | Kind::Fixed32 => {
            integer(value).map(Field::U32).ok_or_else(|| wrong("an integer of 32 bits, not negative"))
        }
        Kind::Uint64 | Kind::Fixed64 => {
            integer(value).map(Field::U64).ok_or_else(|| wrong("an integer of 64 bits, not negative"))
        }
        Kind::Message(descriptor) => match value {
            Value::Object(members) => message(descriptor, members).map(Field::Message),
            _ => Err(wrong("an object")),
        },
        Kind::Enum(names) => {
            let named = value.as_str().and_then(|name| names.get_value_by_name(name));
            named.map(|named| Field::EnumNumber(named.number())).ok_or_else(|| wrong("the name of an enum's value"))
        }
    }
}

fn integer<T: TryFrom<i128>>(value: &Value) -> Option<T> {
    let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))?;
    T::try_from(number).ok()
}

fn bytes(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(text.clone().into()),
        Value::Array(elements) => {
            let values = elements.iter().map(|element| u8::try_from(element.as_u64()?).ok());
            values.collect::<Option<Vec<u8>>>().map(Bytes::from)
        }
        _ => None,
    }
}

fn wrong(field: &FieldDescriptor, value: &Value, expected: &str) -> PayloadError {
    PayloadError::Value {
        message: field.parent_message().full_name().to_owned(),
        field: field.name().to_owned(),
        value: value.clone(),
        expected: expected.to_owned(),
    }
}

fn shown(message: &DynamicMessage) -> Value {
    let descriptor = message.descriptor();
    let fields = descriptor.fields().filter(|field| !field.supports_presence() || message.has_field(field));
    fields.map(|field| (field.name().to_owned(), shown_field(&field, &message.get_field(&field)))).collect()
}

fn shown_field(field: &FieldDescriptor, value: &Field) -> Value {
    match value {
        Field::Bool(flag) => json!(flag),
        Field::I32(number) => json!(number),
        Field::I64(number) => json!(number),
        Field::U32(number) => json!(number),
        Field::U64(number) => json!(number),
        Field::F32(number) => json!(number),
        Field::F64(number) => json!(number),
        Field::String(text) => json!(text),
        Field::Bytes(bytes) => shown_bytes(bytes),
        Field::EnumNumber(number) => match field.kind() {
            Kind::Enum(names) => names.get_value(*number).map_or(json!(number), |named| json!(named.name())),
            _ => json!(number),
        },
        Field::Message(message) => shown(message),
        Field::List(elements) => elements.iter().map(|element| shown_field(field, element)).collect(),
        Field::Map(members) => {
            let name = |key: &MapKey| key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
            members.iter().map(|(key, value)| (name(key), shown_field(field, value))).collect::<Map<_, _>>().into()
        }
    }
}

fn shown_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_not_text) => json!(bytes),
    }
}

fn normalise_in(descriptor: &MessageDescriptor, expected: &Value) -> Result<Value, PayloadError> {
    let Value::Object(members) = expected else { return Ok(expected.clone()) };
    let mut normalised = Map::new();
    for (name, value) in members {
        let field = field(descriptor, name)?;
        let value = match field.kind() {
            Kind::Bytes if field.cardinality() != Cardinality::Repeated => {
                bytes(value).map_or_else(|| value.clone(), |bytes| shown_bytes(&bytes))
            }
            Kind::Message(inner) if field.cardinality() != Cardinality::Repeated => normalise_in(&inner, value)?,
            _ => value.clone(),
        };
        normalised.insert(name.clone(), value);
    }
    Ok(Value::Object(normalised))
}

#[cfg(test)]
mod tests;
