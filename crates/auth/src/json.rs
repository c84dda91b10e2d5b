//! JSON read so that nothing in a security file or claim passes unseen: a member given twice is an error, and no error
//! text repeats what the document says, because the document holds secrets.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A JSON value. Objects keep the order of their members, so that a problem can be told by position.
#[derive(Clone, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Any other number: negative, fractional or too large.
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Object(Members),
}

pub(crate) type Members = Vec<(String, Node)>;

impl Node {
    pub(crate) fn parse(text: &str) -> Result<Node, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Node]> {
        match self {
            Node::List(nodes) => Some(nodes),
            _ => None,
        }
    }

    pub(crate) fn object(&self) -> Option<&[(String, Node)]> {
        match self {
            Node::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The texts of a list that holds nothing else.
    pub(crate) fn texts(&self) -> Option<impl Iterator<Item = &str>> {
        let nodes = self.list()?;
        nodes.iter().all(|node| node.text().is_some()).then(|| nodes.iter().filter_map(Node::text))
    }
}

/// A member of an object by name.
pub(crate) fn member<'a>(members: &'a [(String, Node)], name: &str) -> Option<&'a Node> {
    members.iter().find(|(known, _)| known == name).map(|(_, node)| node)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

/// Takes every kind of value, so that serde never reports an unexpected one with its content.
impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(u64::try_from(value).map_or(Node::Number(value as f64), Node::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = access.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut members: Members = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if member(&members, &name).is_some() {
                return Err(A::Error::custom("a member of an object is given twice"));
            }
            members.push((name, access.next_value()?));
        }
        Ok(Node::Object(members))
    }
}
