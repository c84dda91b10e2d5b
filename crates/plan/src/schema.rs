//! JSON Schemas, compiled. A schema never fetches another: what is not in it does not exist.

use serde_json::Value;

/// Problems of one value that are told.
const PROBLEMS_MAX: usize = 8;

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

    /// Checks a value; the error names every place that does not fit and what was expected there, and never repeats what
    /// was found, which may be confidential.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let mut errors = self.0.iter_errors(value).map(|error| {
            let place = error.instance_path().as_str();
            let place = if place.is_empty() { "the top" } else { place };
            format!("at {place}: {}", error.masked_with("what is given"))
        });
        let told: Vec<String> = errors.by_ref().take(PROBLEMS_MAX).collect();
        match (told.is_empty(), errors.count()) {
            (true, _) => Ok(()),
            (false, 0) => Err(told.join("; ")),
            (false, more) => Err(format!("{}; and {more} more", told.join("; "))),
        }
    }
}

/// Refuses to fetch, whatever other crates switch on.
struct Sealed;

impl jsonschema::Retrieve for Sealed {
    fn retrieve(&self, uri: &jsonschema::Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("schemas must be complete in themselves, and this one refers to {uri}").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_that_does_not_fit_is_told_and_nothing_of_what_is_there() {
        let number = json!({"type": "integer"});
        let schema = json!({"properties": {"a": number, "b": number}, "required": ["c"], "items": number});
        let schema = Schema::compile(&schema).unwrap();
        assert_eq!(schema.check(&json!({"a": 1, "b": 2, "c": 3})), Ok(()));
        let told = schema.check(&json!({"a": "confidential", "b": "secret"})).unwrap_err();
        for place in ["at /a: ", "at /b: ", "at the top: "] {
            assert!(told.contains(place), "{told}");
        }
        assert!(!told.contains("confidential") && !told.contains("secret"), "{told}");
        let told = schema.check(&json!(vec!["x"; 12])).unwrap_err();
        assert!(told.contains("at /7: ") && told.ends_with("; and 4 more"), "{told}");
    }
}
