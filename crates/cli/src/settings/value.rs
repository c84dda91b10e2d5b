//! What a setting may hold, read from text or from a config file.

use macp_auth::Secret;

/// The kind of value a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text; the setting itself may ask for more.
    Text,
    /// Any text that must not be shown.
    Secret,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// Words separated by commas; in a config file also an array of them.
    List,
    /// A whole number within bounds, both inclusive.
    Number { min: u64, max: u64 },
    /// On or off.
    Switch,
}

/// A value of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Secret(Secret),
    List(Vec<String>),
    Number(u64),
    Switch(bool),
}

impl Kind {
    /// Reads what a flag or variable says.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Secret => Ok(Value::Secret(text.into())),
            Kind::Word(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Kind::Word(words) => Err(format!("{text:?} is not one of {}", words.join(", "))),
            Kind::List => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Ok(Value::List(words.map(str::to_owned).collect()))
            }
            Kind::Number { .. } => {
                let number = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
                self.bounded(number)
            }
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => Ok(Value::Switch(true)),
                "0" | "false" | "no" | "off" => Ok(Value::Switch(false)),
                _ => Err(format!("{text:?} is neither on (1, true, yes, on) nor off (0, false, no, off)")),
            },
        }
    }

    /// Reads what a config file says, whose values have types of their own.
    pub(crate) fn read(self, value: &toml::Value) -> Result<Value, String> {
        match (self, value) {
            (Kind::Text | Kind::Secret | Kind::Word(_) | Kind::List, toml::Value::String(text)) => self.parse(text),
            (Kind::List, toml::Value::Array(items)) => {
                let word = |item: &toml::Value| match item {
                    toml::Value::String(word) => Ok(word.clone()),
                    other => Err(format!("needs an array of strings, found {} in it", other.type_str())),
                };
                items.iter().map(word).collect::<Result<_, _>>().map(Value::List)
            }
            (Kind::Number { .. }, toml::Value::Integer(number)) => {
                let number = u64::try_from(*number).map_err(|_| format!("{number} is negative"))?;
                self.bounded(number)
            }
            (Kind::Switch, toml::Value::Boolean(on)) => Ok(Value::Switch(*on)),
            (_, other) => Err(format!("needs {}, found {}", self.name(), other.type_str())),
        }
    }

    fn bounded(self, number: u64) -> Result<Value, String> {
        match self {
            Kind::Number { min, max } if !(min..=max).contains(&number) => {
                Err(format!("{number} is outside {min} to {max}"))
            }
            _ => Ok(Value::Number(number)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Text | Kind::Secret | Kind::Word(_) => "a string",
            Kind::List => "an array of strings",
            Kind::Number { .. } => "a whole number",
            Kind::Switch => "true or false",
        }
    }
}

impl Value {
    /// The text of a setting declared as one.
    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            other => unreachable!("a setting declared as text holds {other:?}"),
        }
    }

    /// The text of a setting declared as a secret.
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Value::Secret(secret) => secret,
            other => unreachable!("a setting declared as a secret holds {other:?}"),
        }
    }

    /// The words of a setting declared as a list.
    pub(crate) fn list(&self) -> Vec<String> {
        match self {
            Value::List(words) => words.clone(),
            other => unreachable!("a setting declared as a list holds {other:?}"),
        }
    }

    /// The number of a setting declared as one.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            other => unreachable!("a setting declared as a number holds {other:?}"),
        }
    }

    /// The number, for places that hold a smaller type; the bounds of the setting keep it in range.
    pub(crate) fn narrow<T: TryFrom<u64>>(&self) -> T {
        match T::try_from(self.number()) {
            Ok(number) => number,
            Err(_) => unreachable!("the bounds of the setting fit its type"),
        }
    }

    /// The position of a setting declared as a switch.
    pub(crate) fn is_on(&self) -> bool {
        match self {
            Value::Switch(on) => *on,
            other => unreachable!("a setting declared as a switch holds {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_take_the_words_operators_use() {
        for text in ["1", "true", "YES", "on"] {
            assert_eq!(Kind::Switch.parse(text), Ok(Value::Switch(true)), "{text}");
        }
        for text in ["0", "false", "No", "off"] {
            assert_eq!(Kind::Switch.parse(text), Ok(Value::Switch(false)), "{text}");
        }
        assert!(Kind::Switch.parse("maybe").is_err());
    }

    #[test]
    fn lists_are_words_or_arrays_of_words() {
        let words = Value::List(vec!["a.example".to_owned(), "b.example".to_owned()]);
        assert_eq!(Kind::List.parse("a.example, b.example,"), Ok(words.clone()));
        let array = |text: &str| toml::from_str::<toml::Table>(text).unwrap()["x"].clone();
        assert_eq!(Kind::List.read(&array(r#"x = ["a.example", "b.example"]"#)), Ok(words));
        assert_eq!(Kind::List.read(&array("x = \"\"")), Ok(Value::List(Vec::new())));
        for bad in ["x = 1", "x = [1]"] {
            assert!(Kind::List.read(&array(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_keep_to_their_bounds() {
        let kind = Kind::Number { min: 1, max: 10 };
        assert_eq!(kind.parse("10"), Ok(Value::Number(10)));
        for text in ["0", "11", "-1", "ten", "", "1.5"] {
            assert!(kind.parse(text).is_err(), "{text}");
        }
        assert!(kind.read(&toml::Value::Integer(-1)).is_err());
        assert!(kind.read(&toml::Value::String("5".into())).is_err());
    }
}
