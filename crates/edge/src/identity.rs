//! Who calls. Without configured authentication this is local development: whoever names itself is believed.

use macp_kernel::{Caller, Credential};
use macp_wire::codes::Code;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

const AUTHORIZATION: &str = "authorization";
const TOKEN: &str = "x-macp-token";
const BEARER: &str = "Bearer ";

/// Whether senders are resolved by configured authentication. In local development they are believed, not resolved.
pub(crate) const SENDERS_AUTHENTICATED: bool = false;

/// The caller behind a request's metadata. A credential that is presented but malformed is refused, never ignored.
pub(crate) fn caller(metadata: &MetadataMap) -> Caller {
    let credential = match presented(metadata) {
        None => Credential::Absent,
        Some(Ok(identity)) => Credential::Identity(identity.into()),
        Some(Err(reason)) => Credential::Refused(reason.to_owned()),
    };
    Caller { credential, over_rate: false }
}

/// As [`caller`], where a refused credential ends the call.
pub(crate) fn caller_or_status(metadata: &MetadataMap) -> Result<Caller, Status> {
    let caller = caller(metadata);
    match &caller.credential {
        Credential::Refused(reason) => Err(super::status::coded(Code::Unauthenticated, reason.as_str())),
        Credential::Absent | Credential::Identity(_) => Ok(caller),
    }
}

fn presented(metadata: &MetadataMap) -> Option<Result<&str, &'static str>> {
    if let Some(value) = sole(metadata, AUTHORIZATION) {
        return Some(value.and_then(|value| match value.strip_prefix(BEARER).map(str::trim) {
            None => Err("the authorization header is not of the form `Bearer <token>`"),
            Some("") => Err("the bearer token is empty"),
            Some(token) => Ok(token),
        }));
    }
    sole(metadata, TOKEN).map(|value| match value?.trim() {
        "" => Err("the x-macp-token header is empty"),
        token => Ok(token),
    })
}

/// A header that may be there once.
fn sole<'a>(metadata: &'a MetadataMap, name: &'static str) -> Option<Result<&'a str, &'static str>> {
    let mut values = metadata.get_all(name).iter();
    let value: &MetadataValue<Ascii> = values.next()?;
    if values.next().is_some() {
        return Some(Err("more than one credential is presented"));
    }
    Some(value.to_str().map_err(|_not_ascii| "the credential holds characters other than printable ASCII"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expected: Result<Option<&str>, ()>) {
        let mut metadata = MetadataMap::new();
        for (name, value) in headers {
            metadata.append(*name, MetadataValue::try_from(value.as_bytes()).expect("a header value"));
        }
        let found = match caller(&metadata).credential {
            Credential::Absent => Ok(None),
            Credential::Identity(identity) => Ok(Some(identity.to_string())),
            Credential::Refused(_) => Err(()),
        };
        assert_eq!(found, expected.map(|identity| identity.map(str::to_owned)), "{headers:?}");
    }

    #[test]
    fn a_bearer_value_is_the_identity() {
        check(&[], Ok(None));
        check(&[("authorization", "Bearer alice")], Ok(Some("alice")));
        check(&[("x-macp-token", "bob")], Ok(Some("bob")));
        check(&[("authorization", "Bearer alice"), ("x-macp-token", "bob")], Ok(Some("alice")));
    }

    #[test]
    fn what_is_malformed_is_refused_and_not_ignored() {
        check(&[("authorization", "Basic YWxpY2U6eA==")], Err(()));
        check(&[("authorization", "bearer alice")], Err(()));
        check(&[("authorization", "Bearer")], Err(()));
        check(&[("authorization", "Bearer ")], Err(()));
        check(&[("authorization", "Bearer \u{e9}")], Err(()));
        check(&[("authorization", "")], Err(()));
        check(&[("authorization", "Bearer alice"), ("authorization", "Bearer bob")], Err(()));
        check(&[("x-macp-token", "")], Err(()));
    }
}
