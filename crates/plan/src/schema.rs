//! JSON Schemas, compiled. A schema never fetches another: what is not in it does not exist.

use serde_json::Value;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema(jsonschema::Validator);

/// A schema that is none.
#[derive(Debug, thiserror::Error)]
#[error("not a usable JSON Schema: {0}")]
pub struct NotASchema(String);

impl Schema {
    pub fn compile(schema: &Value) -> Result<Self, NotASchema> {
        let validator = jsonschema::options().with_retriever(Sealed).build(schema);
        validator.map(Self).map_err(|error| NotASchema(error.to_string()))
    }

    /// Checks a value; the error names the first place that does not fit and what was expected there, and never repeats
    /// what was found, which may be confidential.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.0.validate(value).map_err(|error| {
            let place = error.instance_path().as_str();
            let place = if place.is_empty() { "the top" } else { place };
            format!("at {place}: {}", error.masked_with("what is given"))
        })
    }
}

/// Refuses to fetch, whatever other crates switch on.
struct Sealed;

impl jsonschema::Retrieve for Sealed {
    fn retrieve(&self, uri: &jsonschema::Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("schemas must be complete in themselves, and this one refers to {uri}").into())
    }
}
