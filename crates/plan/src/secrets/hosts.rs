//! Which hosts secrets may be sent to. A secret that is bound goes to its hosts and to no other; one that nobody bound
//! goes wherever a plan may call.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use super::{Error, is_name, same_name};
use crate::egress::{self, HostRule};

/// A binding that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bound_secrets: `{0}` is not the name of a secret, `=`, and a host name, an address or `*.` and a name, as in \
     shop-token=api.shop.example"
)]
pub struct NotABinding(String);

/// The hosts of every secret that has some, by the form of its name that all its spellings share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings(Arc<BTreeMap<String, Vec<HostRule>>>);

impl Bindings {
    /// Bindings written `name=host`; a secret may have several. What is `kept` is bound to nothing unless it is bound
    /// here.
    pub(crate) fn new<'k>(
        bindings: &[String],
        kept: impl IntoIterator<Item = &'k String>,
    ) -> Result<Self, NotABinding> {
        let mut hosts: BTreeMap<String, Vec<HostRule>> = BTreeMap::new();
        hosts.extend(kept.into_iter().map(|name| (same_name(name), Vec::new())));
        for text in bindings {
            let unreadable = || NotABinding(text.clone());
            let (name, host) = text.split_once('=').ok_or_else(unreadable)?;
            let (name, host) = (name.trim(), host.trim());
            let rule = HostRule::parse(host).filter(|_| is_name(name)).ok_or_else(unreadable)?;
            hosts.entry(same_name(name)).or_default().push(rule);
        }
        Ok(Self(Arc::new(hosts)))
    }

    /// Whether a secret has hosts of its own, or none at all.
    pub(crate) fn binds(&self, name: &str) -> bool {
        self.0.contains_key(&same_name(name))
    }

    /// Whether a secret may go where a URL leads.
    pub(crate) fn check(&self, name: &str, url: &Url) -> Result<(), Error> {
        let Some(rules) = self.0.get(&same_name(name)) else { return Ok(()) };
        let host = url.host();
        if host.as_ref().is_some_and(|host| rules.iter().any(|rule| rule.permits(host))) {
            return Ok(());
        }
        let host = host.map_or_else(|| "a URL without a host".to_owned(), |host| egress::normal(&host));
        let reason = format!("it is not bound to {host}; allow that with bound_secrets, as {name}={host}");
        Err(Error::unavailable(name, reason))
    }
}

/// Checks bindings without keeping them.
pub fn check_bindings(bindings: &[String]) -> Result<(), NotABinding> {
    Bindings::new(bindings, []).map(|_| ())
}
