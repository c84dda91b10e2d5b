//! A set of keys (JWKS), with the tokens that were found good under it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::Error;
use crate::json::{Node, member};
use crate::key::{Algorithm, Key};
use crate::place::{self, Place};
use crate::verified::Verified;

/// Most usable keys in a set: a token without a key id is tried with all that fit.
const KEYS_MAX: usize = 64;

/// What is wrong with a set of keys. Keys are told by position, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("it must be an object whose member `keys` is a list")]
    Shape,
    #[error("none of its keys can be used{}", listed(.0))]
    NoneUsable(Vec<Unusable>),
    #[error("it has more than {KEYS_MAX} usable keys")]
    TooMany,
    #[error("HS256 is allowed, but it has no usable key of type oct{}", listed(.0))]
    NoSecret(Vec<Unusable>),
}

/// A key that was passed over, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    pub position: usize,
    pub reason: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: {}", self.position, self.reason)
    }
}

fn listed(unusable: &[Unusable]) -> String {
    unusable.iter().map(|key| format!("; {key}")).collect()
}

/// Keys, and what was verified with them. Both live and die together, so a token that was good under a key that is gone
/// is checked again.
#[derive(Debug)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
    pub(crate) verified: Verified,
}

/// The keys that may have signed a token.
pub(crate) struct Candidates<'a> {
    pub(crate) keys: Vec<&'a Key>,
    /// Whether the token names a key that the set does not have, as after a rotation.
    pub(crate) kid_unknown: bool,
}

impl KeySet {
    pub(crate) fn read(path: &Path, algorithms: &BTreeSet<Algorithm>) -> Result<KeySet, Error> {
        let place = Place::KeysFile(path.to_owned());
        KeySet::parse(&place::read(path, &place)?, &place, algorithms)
    }

    pub(crate) fn parse(text: &str, place: &Place, algorithms: &BTreeSet<Algorithm>) -> Result<KeySet, Error> {
        let node = Node::parse(text).map_err(|problem| Error::Json { place: place.clone(), problem })?;
        let refuse = |problem| Error::Keys { place: place.clone(), problem };
        let nodes = node.object().and_then(|members| member(members, "keys")).and_then(Node::list);
        let nodes = nodes.ok_or(Problem::Shape).map_err(refuse)?;
        let (keys, unusable) = read_keys(nodes, algorithms);
        for key in &unusable {
            // Issuers publish keys for other purposes beside, so one of those is no reason to refuse the set.
            tracing::warn!(%place, "{key}, so it is not used");
        }
        if keys.is_empty() {
            return Err(refuse(Problem::NoneUsable(unusable)));
        }
        if keys.len() > KEYS_MAX {
            return Err(refuse(Problem::TooMany));
        }
        if algorithms.contains(&Algorithm::HS256) && keys.iter().all(|key| key.algorithm != Algorithm::HS256) {
            return Err(refuse(Problem::NoSecret(unusable)));
        }
        Ok(KeySet { keys, verified: Verified::default() })
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// By id where the token names one, else all that fit. A key without an id may be any.
    pub(crate) fn candidates(&self, algorithm: Algorithm, kid: Option<&str>) -> Candidates<'_> {
        let fits = |key: &&Key| match (kid, &key.kid) {
            (Some(kid), Some(known)) => kid == known,
            (None, _) | (_, None) => true,
        };
        Candidates {
            keys: self.keys.iter().filter(|key| key.algorithm == algorithm).filter(fits).collect(),
            kid_unknown: kid.is_some_and(|kid| self.keys.iter().all(|key| key.kid.as_deref() != Some(kid))),
        }
    }
}

fn read_keys(nodes: &[Node], algorithms: &BTreeSet<Algorithm>) -> (Vec<Key>, Vec<Unusable>) {
    let mut keys = Vec::new();
    let mut unusable = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let reason = match Key::read(node) {
            Ok(key) if algorithms.contains(&key.algorithm) => {
                keys.push(key);
                continue;
            }
            Ok(key) => format!("{} is not among the allowed algorithms", key.algorithm),
            Err(reason) => reason.to_owned(),
        };
        unusable.push(Unusable { position: index + 1, reason });
    }
    (keys, unusable)
}
