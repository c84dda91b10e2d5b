//! The headers of a request as it goes out: secrets in their place, and the key of the effect. One way for all that call
//! out, so that what keeps one from telling a secret keeps every one.

use macp_plan_core::cause::Cause;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};

use super::exchange::IDEMPOTENCY_KEY;
use super::fault::Fault;
use crate::secrets::{self, Bindings, Secrets};

/// What a plan may not set: it belongs to the connection, or to the executor. Nor may it ask for answers that are
/// compressed: nobody would find a secret in one.
const RESERVED: [&str; 13] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    IDEMPOTENCY_KEY,
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where a request goes, and which effect it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    /// The key of its effect, which every method but GET and HEAD carries.
    pub(crate) effect_key: Option<&'a str>,
}

/// Headers as they are sent.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) headers: HeaderMap,
    /// Those that hold secrets: they are for the first host only.
    pub(crate) confidential: Vec<HeaderName>,
}

/// Puts headers together. Everything about secrets is found out before anything else, so that no other problem shows
/// whether there is one.
pub(crate) fn prepare<'h>(
    listed: impl Iterator<Item = (&'h str, &'h str)>,
    target: Target<'_>,
    bindings: &Bindings,
    secrets: &dyn Secrets,
) -> Result<Prepared, Fault> {
    let expand = |(name, value): (&'h str, &'h str)| {
        let bound = secrets::names(value)?.into_iter().try_for_each(|name| bindings.check(name, target.url));
        bound.and_then(|()| secrets::expand(value, secrets)).map(|expanded| (name, value, expanded))
    };
    let expanded = listed.map(|header| expand(header).map_err(|error| withheld(header.0, &error)));
    let expanded = expanded.collect::<Result<Vec<_>, Fault>>()?;
    let mut prepared = Prepared::default();
    for (name, value, expanded) in expanded {
        let header = header_name(name).map_err(invalid)?;
        let mut sent = HeaderValue::from_str(&expanded).map_err(|_would_quote_it| invalid(unusable(name)))?;
        if secrets::mentions(value) {
            sent.set_sensitive(true);
            prepared.confidential.push(header.clone());
        }
        prepared.headers.insert(header, sent);
    }
    if !matches!(*target.method, Method::GET | Method::HEAD) {
        let undeclared = || invalid("the skill declares no such effect, so that the request has no key");
        let key = target.effect_key.ok_or_else(undeclared)?;
        let key = HeaderValue::from_str(key).map_err(|_| invalid("the effect key is not fit for a header"))?;
        prepared.headers.insert(HeaderName::from_static(IDEMPOTENCY_KEY), key);
    }
    Ok(prepared)
}

pub(crate) fn header_name(name: &str) -> Result<HeaderName, String> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_not_a_token| "at /headers: a header's name has letters that are not allowed there".to_owned())?;
    match RESERVED.contains(&parsed.as_str()) {
        true => Err(format!("at /headers/{name}: this header is set by the executor and not by a plan")),
        false => Ok(parsed),
    }
}

/// Checks what a plan writes as the value of a header, as far as it does: what a reference brings is checked when it is
/// there. A line break in it would otherwise be found when the call is made, and not when the plan is written.
pub(crate) fn check_value(name: &str, value: &str) -> Result<(), String> {
    let written = outside_references(value);
    match HeaderValue::from_str(&written) {
        Ok(_) => Ok(()),
        Err(_would_quote_it) => Err(unusable(name)),
    }
}

fn unusable(name: &str) -> String {
    format!("at /headers/{name}: the value has characters that a header cannot carry")
}

fn outside_references(value: &str) -> String {
    let mut written = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("{{") {
        written.push_str(before);
        rest = after.split_once("}}").map_or("", |(_, behind)| behind);
    }
    written.push_str(rest);
    written
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(Cause::InputInvalid, message)
}

/// A header whose secret the call does not get.
fn withheld(name: &str, error: &secrets::Error) -> Fault {
    let cause = match error {
        secrets::Error::Unavailable { .. } => Cause::EgressForbidden,
        secrets::Error::Name | secrets::Error::NotNamed { .. } => Cause::InputInvalid,
    };
    Fault::new(cause, format!("at /headers/{name}: {error}"))
}
