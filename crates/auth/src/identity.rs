//! Who a credential belongs to, and what it lets them do.

use std::collections::BTreeSet;

use smol_str::SmolStr;

/// The one behind a credential (STD-SEC-4), with every right already resolved. Shared as `Arc<Identity>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name envelopes are sent under, compared byte for byte (STD-SEC-16). Never empty.
    pub sender: SmolStr,
    pub allowed_modes: Modes,
    pub can_start_sessions: bool,
    /// Most sessions it may have open at once; `None` is no limit.
    pub max_open_sessions: Option<u64>,
    pub can_manage_mode_registry: bool,
    /// May read and subscribe to any session, by its own flag or by a role. Gives no right to act (STD-SEC-13).
    pub is_observer: bool,
    /// May cancel sessions it did not start, by a role.
    pub may_cancel: bool,
    /// May suspend and resume sessions it did not start, by a role.
    pub may_suspend: bool,
    /// May run a plan as a new epoch, which repeats its effects, by a role.
    pub may_repeat: bool,
    /// Every role the credential carries, those without a configured right too.
    pub roles: BTreeSet<SmolStr>,
    /// Whether a credential proved it. In local development the sender is believed, not proven.
    pub authenticated: bool,
}

impl Identity {
    /// Local development: whoever names itself may do everything but look into what is not its own (STD-SEC-7).
    pub(crate) fn development(sender: &str) -> Identity {
        Identity {
            sender: sender.into(),
            allowed_modes: Modes::All,
            can_start_sessions: true,
            max_open_sessions: None,
            can_manage_mode_registry: true,
            is_observer: false,
            may_cancel: false,
            may_suspend: false,
            may_repeat: false,
            roles: BTreeSet::new(),
            authenticated: false,
        }
    }
}

/// Modes an identity may send envelopes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modes {
    All,
    /// These and no others; an empty set is none at all.
    Only(BTreeSet<SmolStr>),
}

impl Modes {
    /// Whether a mode is among them. Names are compared byte for byte, so ask with the canonical one.
    pub fn allow(&self, mode: &str) -> bool {
        match self {
            Modes::All => true,
            Modes::Only(modes) => modes.contains(mode),
        }
    }
}
