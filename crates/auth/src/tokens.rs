//! Static tokens: a list the operator keeps (STD-SEC-5).
//!
//! Only digests are kept. A presented token is compared with every one of them in constant time, so that neither how
//! far a guess was right nor where in the list a token stands can be measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use crate::identity::{Identity, Modes};
use crate::json::{Node, member};
use crate::place::{self, Place};
use crate::scopes::{self, Scopes};
use crate::settings::{RoleRights, TokenSource};
use crate::{CREDENTIAL_BYTES_MAX, Error, SENDER_BYTES_MAX};

/// Most tokens in a list: every request is compared with all of them. Who has more agents wants an issuer of JWT.
const TOKENS_MAX: usize = 10_000;

/// Below this many bytes a token can be guessed by trying; it is taken, with a warning.
const TOKEN_BYTES_SAFE: usize = 16;

/// What is wrong with a list of tokens. Entries are told by position and sender, never by token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("it must be a list of entries, or an object whose only member is `tokens`, holding that list")]
    Shape,
    #[error("it holds more than {TOKENS_MAX} tokens; let an issuer of JSON Web Tokens vouch for so many senders")]
    TooMany,
    #[error("entry {entry}: {what}")]
    Entry { entry: Entry, what: String },
    #[error("entry {entry} has the same token as entry {other}; every token belongs to one entry")]
    Twice { entry: Entry, other: Entry },
}

/// An entry as messages name it: its position, counted from 1, and its sender where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub position: usize,
    pub sender: Option<String>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sender {
            Some(sender) => write!(f, "{} (sender {sender:?})", self.position),
            None => write!(f, "{}", self.position),
        }
    }
}

/// The digest of a token, in words so that comparing ten thousand of them takes microseconds.
type Digest = [u64; 4];

/// A list of tokens, ready to be asked.
#[derive(Default)]
pub(crate) struct Tokens {
    digests: Vec<Digest>,
    identities: Vec<Arc<Identity>>,
}

impl Tokens {
    pub(crate) fn load(source: &TokenSource, roles: &BTreeMap<String, RoleRights>) -> Result<Tokens, Error> {
        let read;
        let (text, place) = match source {
            TokenSource::Inline(text) => (text.expose(), Place::InlineTokens),
            TokenSource::File(path) => {
                let place = Place::TokensFile(path.clone());
                read = place::read(path, &place)?;
                (read.as_str(), place)
            }
        };
        let node = Node::parse(text).map_err(|problem| Error::Json { place: place.clone(), problem })?;
        Tokens::from_node(&node, roles).map_err(|problem| Error::Tokens { place, problem })
    }

    fn from_node(node: &Node, roles: &BTreeMap<String, RoleRights>) -> Result<Tokens, Problem> {
        let entries = match node {
            Node::List(entries) => entries,
            Node::Object(members) => match members.as_slice() {
                [(name, Node::List(entries))] if name == "tokens" => entries,
                _ => return Err(Problem::Shape),
            },
            _ => return Err(Problem::Shape),
        };
        if entries.is_empty() {
            // Taken, so that the last token can be revoked by a reload.
            tracing::warn!("the list of static tokens is empty: none will be accepted");
        }
        if entries.len() > TOKENS_MAX {
            return Err(Problem::TooMany);
        }
        let mut tokens = Tokens::default();
        let mut seen: BTreeMap<Digest, Entry> = BTreeMap::new();
        for (index, node) in entries.iter().enumerate() {
            let (entry, token, identity) = read_entry(index + 1, node, roles)?;
            let digest = digest(token);
            if let Some(other) = seen.get(&digest) {
                return Err(Problem::Twice { entry, other: other.clone() });
            }
            warn(&entry, token, &identity, roles);
            seen.insert(digest, entry);
            tokens.digests.push(digest);
            tokens.identities.push(Arc::new(identity));
        }
        Ok(tokens)
    }

    pub(crate) fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether any token is for this sender.
    pub(crate) fn has_sender(&self, sender: &str) -> bool {
        self.identities.iter().any(|identity| identity.sender == sender)
    }

    /// Who a token belongs to. Takes the same time whatever is presented.
    pub(crate) fn find(&self, token: &str) -> Option<&Arc<Identity>> {
        let presented = digest(token);
        let mut found = 0_u64;
        for (position, known) in (1_u64..).zip(&self.digests) {
            let same = known[0].ct_eq(&presented[0])
                & known[1].ct_eq(&presented[1])
                & known[2].ct_eq(&presented[2])
                & known[3].ct_eq(&presented[3]);
            found.conditional_assign(&position, same);
        }
        let index = usize::try_from(found).ok()?.checked_sub(1)?;
        self.identities.get(index)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("len", &self.len()).finish_non_exhaustive()
    }
}

fn digest(token: &str) -> Digest {
    let bytes: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*chunk);
    }
    words
}

fn read_entry<'a>(
    position: usize,
    node: &'a Node,
    roles: &BTreeMap<String, RoleRights>,
) -> Result<(Entry, &'a str, Identity), Problem> {
    let members = node.object().unwrap_or_default();
    let sender = member(members, "sender").and_then(Node::text).filter(|sender| !sender.is_empty());
    let entry = Entry { position, sender: sender.map(str::to_owned) };
    let refuse = |what: String| Problem::Entry { entry: entry.clone(), what };
    if node.object().is_none() {
        return Err(refuse("it must be an object with the members token and sender".to_owned()));
    }
    let sender = sender
        .filter(|sender| sender.len() <= SENDER_BYTES_MAX)
        .ok_or_else(|| refuse(format!("sender must be a string of 1 to {SENDER_BYTES_MAX} bytes")))?;
    let token = member(members, "token").and_then(Node::text).unwrap_or_default();
    check_token(token).map_err(|what| refuse(what.to_owned()))?;
    let scopes = Scopes::read(members, &["token", "sender"]).map_err(|problem| {
        refuse(match problem {
            scopes::Problem::Unknown(_) => format!("{problem}; known are token, sender, {}", scopes::MEMBERS),
            scopes::Problem::Kind { .. } => problem.to_string(),
        })
    })?;
    // Absent or empty is every mode here, unlike in a JWT (STD-SEC-5, STD-SEC-6).
    let modes = scopes.allowed_modes.clone().filter(|modes| !modes.is_empty()).map_or(Modes::All, Modes::Only);
    let identity = scopes.identity(sender, modes, roles);
    Ok((entry, token, identity))
}

fn check_token(token: &str) -> Result<(), &'static str> {
    if token.is_empty() || token.len() > CREDENTIAL_BYTES_MAX {
        return Err("token must be a string that is not empty, at most 16384 bytes");
    }
    if token.contains('.') {
        return Err("its token holds a dot; tokens with dots are taken for JSON Web Tokens, so choose one without");
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its token holds spaces or characters other than printable ASCII, which no client could present");
    }
    Ok(())
}

/// What can be used but is hardly meant.
fn warn(entry: &Entry, token: &str, identity: &Identity, roles: &BTreeMap<String, RoleRights>) {
    if token.len() < TOKEN_BYTES_SAFE {
        tracing::warn!(%entry, "a static token is shorter than {TOKEN_BYTES_SAFE} bytes and may be guessed");
    }
    let powerless: BTreeSet<_> = identity.roles.iter().filter(|role| !roles.contains_key(role.as_str())).collect();
    if !powerless.is_empty() {
        tracing::warn!(%entry, roles = ?powerless, "a static token carries roles without any configured right");
    }
}
