//! The secrets of one call. A skill gets those that its step names, and those it was set up with, and no others: whoever
//! wrote it must not be able to read whatever the server holds.
//!
//! ```text
//!  the step names it ──▶ bound to hosts? ──no──▶ the skill has the text
//!                              └──yes──▶ only the client of the call puts it in, on the way to one of its hosts
//!  the skill was set up with it ──▶ the skill has the text
//! ```

use std::collections::BTreeSet;

use zeroize::Zeroizing;

use super::{Bindings, Error, REFERENCE, Secrets, is_name};

/// Names of the secrets that a call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed<'a> {
    /// Those that the step itself names. What a skill read from elsewhere gets it none.
    pub(crate) named: &'a BTreeSet<String>,
    /// Those that the skill was set up with, such as the key of a provider, whatever a step says.
    pub(crate) entrusted: &'a BTreeSet<String>,
}

impl Allowed<'_> {
    /// A call that may use none.
    pub(crate) fn none() -> Self {
        static NONE: BTreeSet<String> = BTreeSet::new();
        Self { named: &NONE, entrusted: &NONE }
    }

    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        match self.named.contains(name) || self.entrusted.contains(name) {
            true => Ok(()),
            false => Err(Error::NotNamed { name: name.to_owned() }),
        }
    }
}

/// What a skill itself may read. A text that it holds it can send anywhere, so that one which is bound to hosts is not
/// among it.
#[derive(Debug)]
pub(crate) struct Granted<'a> {
    pub(crate) secrets: &'a dyn Secrets,
    pub(crate) allowed: Allowed<'a>,
    pub(crate) bindings: &'a Bindings,
}

impl Secrets for Granted<'_> {
    fn secret(&self, name: &str) -> Result<Zeroizing<String>, Error> {
        if !is_name(name) {
            return Err(Error::Name);
        }
        self.allowed.check(name)?;
        if self.bindings.binds(name) && !self.allowed.entrusted.contains(name) {
            let reason = format!("it is bound to hosts; only a header that names {REFERENCE}{name} gets it");
            return Err(Error::unavailable(name, reason));
        }
        self.secrets.secret(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Held;

    fn told(name: &str) -> String {
        let secrets = Held::default().with("named", "1").with("bound", "2").with("own", "3").with("other", "4");
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let (named, entrusted) = (set(&["named", "bound", "missing", "OWN"]), set(&["own"]));
        let bindings = Bindings::new(&["bound=shop.example".to_owned()], [&"own".to_owned()]).unwrap();
        let allowed = Allowed { named: &named, entrusted: &entrusted };
        let granted = Granted { secrets: &secrets, allowed, bindings: &bindings };
        granted.secret(name).map_or_else(|error| error.to_string(), |value| value.to_string())
    }

    #[test]
    fn a_skill_reads_what_its_step_names_and_what_it_was_set_up_with() {
        assert_eq!(told("named"), "1");
        assert_eq!(told("own"), "3", "what it was set up with is bound to nothing else");
        assert!(told("other").contains("does not name `secret://other`"), "{}", told("other"));
        // One that is bound, another spelling of one that is, and one that does not exist: no plan sees a difference.
        for name in ["bound", "OWN", "missing"] {
            assert_eq!(told(name), Error::Unavailable { name: name.to_owned() }.to_string());
        }
        assert!(told("../named").contains("must be followed by a name"), "{}", told("../named"));
    }
}
