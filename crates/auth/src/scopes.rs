//! The rights a credential carries, as an entry of the tokens or the `macp_scopes` claim writes them.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use crate::identity::{Identity, Modes};
use crate::json::Node;
use crate::settings::RoleRights;

/// Every member there is; a list for messages.
pub(crate) const MEMBERS: &str = "allowed_modes, can_start_sessions, max_open_sessions, can_manage_mode_registry, \
                                  is_observer, roles";

/// Rights as written, before roles are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scopes {
    /// `None` when the member is absent. What an empty list means differs between tokens and JWT, so it is kept.
    pub(crate) allowed_modes: Option<BTreeSet<SmolStr>>,
    pub(crate) can_start_sessions: bool,
    pub(crate) max_open_sessions: Option<u64>,
    pub(crate) can_manage_mode_registry: bool,
    pub(crate) is_observer: bool,
    pub(crate) roles: BTreeSet<SmolStr>,
}

/// What is wrong with them. Never repeats a value; an unknown name is told by position, as it may be a misplaced token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{member} must be {expected}")]
    Kind { member: &'static str, expected: &'static str },
    #[error("member {0} of it (counted from 1) is not known")]
    Unknown(usize),
}

impl Default for Scopes {
    fn default() -> Self {
        Scopes {
            allowed_modes: None,
            can_start_sessions: true,
            max_open_sessions: None,
            can_manage_mode_registry: false,
            is_observer: false,
            roles: BTreeSet::new(),
        }
    }
}

impl Scopes {
    /// Reads the members of an object; those named in `others` are the caller's.
    pub(crate) fn read(members: &[(String, Node)], others: &[&str]) -> Result<Scopes, Problem> {
        let mut scopes = Scopes::default();
        for (index, (name, node)) in members.iter().enumerate() {
            match name.as_str() {
                "allowed_modes" => scopes.allowed_modes = Some(names("allowed_modes", node)?),
                "can_start_sessions" => scopes.can_start_sessions = flag("can_start_sessions", node)?,
                "max_open_sessions" => scopes.max_open_sessions = count("max_open_sessions", node)?,
                "can_manage_mode_registry" => {
                    scopes.can_manage_mode_registry = flag("can_manage_mode_registry", node)?;
                }
                "is_observer" => scopes.is_observer = flag("is_observer", node)?,
                "roles" => scopes.roles = names("roles", node)?,
                other if others.contains(&other) => {}
                _ => return Err(Problem::Unknown(index + 1)),
            }
        }
        Ok(scopes)
    }

    /// The identity a proven credential with these rights stands for.
    pub(crate) fn identity(self, sender: &str, modes: Modes, rights: &BTreeMap<String, RoleRights>) -> Identity {
        let granted = || self.roles.iter().filter_map(|role| rights.get(role.as_str()));
        Identity {
            sender: sender.into(),
            allowed_modes: modes,
            can_start_sessions: self.can_start_sessions,
            max_open_sessions: self.max_open_sessions,
            can_manage_mode_registry: self.can_manage_mode_registry,
            is_observer: self.is_observer || granted().any(|rights| rights.observe),
            may_cancel: granted().any(|rights| rights.cancel),
            may_suspend: granted().any(|rights| rights.suspend),
            may_repeat: granted().any(|rights| rights.repeat),
            authenticated: true,
            roles: self.roles,
        }
    }
}

fn flag(member: &'static str, node: &Node) -> Result<bool, Problem> {
    match node {
        Node::Bool(value) => Ok(*value),
        _ => Err(Problem::Kind { member, expected: "true or false" }),
    }
}

/// Null is no limit: writers of such files put it for a limit that is not set.
fn count(member: &'static str, node: &Node) -> Result<Option<u64>, Problem> {
    match node {
        Node::Unsigned(value) => Ok(Some(*value)),
        Node::Null => Ok(None),
        _ => Err(Problem::Kind { member, expected: "a whole number, 0 or more" }),
    }
}

/// Null is refused here: between "all" and "none" there is nothing to guess.
fn names(member: &'static str, node: &Node) -> Result<BTreeSet<SmolStr>, Problem> {
    let texts = node.texts().ok_or(Problem::Kind { member, expected: "a list of strings" })?;
    Ok(texts.map(SmolStr::from).collect())
}
