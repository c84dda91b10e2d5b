//! Who calls: what the metadata of a request presents, resolved to what it allows.

use macp_auth::{Identity, Modes, Presented, Resolution};
use macp_kernel::{Caller, Credential, ProfileSetting, Scope};
use macp_plan::executor::AgentLimits;
use tonic::Extensions;
use tonic::codegen::http::{HeaderMap, HeaderValue};

use crate::PlanSettings;
use crate::access::Access;
use crate::connections::Connection;
use crate::context::Context;

const AUTHORIZATION: &str = "authorization";
const TOKEN: &str = "x-macp-token";
const BEARER: &str = "Bearer ";

/// Returns the caller behind a request's headers. A credential that is presented but malformed is refused, never ignored.
pub(crate) async fn access(ctx: &Context, headers: &HeaderMap, connection: &Connection) -> Access {
    let unidentified = |credential| unidentified(credential, connection);
    let access = match presented(headers) {
        Err(reason) => unidentified(Credential::Refused(reason.to_owned())),
        Ok(presented) => match ctx.authenticator.resolve(presented).await {
            Resolution::Identity(identity) if reserved(ctx) == Some(identity.sender.as_str()) => {
                unidentified(Credential::Refused("this name belongs to the runtime itself".to_owned()))
            }
            Resolution::Identity(identity) => {
                connection.identify(&identity.sender);
                identified(&identity, connection)
            }
            Resolution::Absent => unidentified(Credential::Absent),
            Resolution::Refused(refusal) => {
                tracing::debug!(reason = refusal.label(), "credential refused");
                unidentified(Credential::Refused(refusal.to_string()))
            }
        },
    };
    Access {
        local: !ctx.authenticator.is_configured(),
        standard_only: ctx.engine.limits().profile == ProfileSetting::Standard,
        ..access
    }
}

/// Returns the caller whom the front found behind a request.
pub(crate) fn of_request(extensions: &Extensions) -> Access {
    extensions.get::<Access>().cloned().expect("calls reach a service through the front, which adds their caller")
}

/// The name under which the runtime reports runs: nobody else may speak under it.
fn reserved(ctx: &Context) -> Option<&str> {
    ctx.plans.as_ref().map(|plans| plans.sessions.settings().execution.identity.as_str())
}

/// Tells the operator of a token that nobody can use.
pub(crate) fn warn_of_reserved(ctx: &Context) {
    if let Some(name) = reserved(ctx).filter(|name| ctx.authenticator.has_token_of(name)) {
        tracing::warn!(
            sender = name,
            "a static token has the name under which the runtime itself reports runs, and is never accepted; give it \
             another sender, or set execution_identity"
        );
    }
}

/// Tells the operator of limits that callers can get around.
pub(crate) fn warn_of_open_scopes(ctx: &Context) {
    let limits_agents = |plans: &PlanSettings| plans.executor.agent != AgentLimits::default();
    let unscoped =
        ctx.settings.plans.as_ref().is_some_and(|plans| limits_agents(plans) && plans.sessions.scopes.is_empty());
    if unscoped && ctx.authenticator.is_configured() {
        tracing::warn!(
            "agents have limits and no scopes are configured: the initiator of a session can list any agent as a \
             participant, commit to a plan in its name and use up its limits; list under [scopes] whose plans sessions \
             may commit to"
        );
    }
}

fn identified(identity: &Identity, connection: &Connection) -> Access {
    let scope = Scope {
        modes: match &identity.allowed_modes {
            Modes::All => None,
            Modes::Only(modes) => Some(modes.clone().into()),
        },
        may_start: identity.can_start_sessions,
        may_cancel: identity.may_cancel,
        may_suspend: identity.may_suspend,
    };
    Access {
        caller: Caller { credential: Credential::Identity(identity.sender.clone()), scope, ..Caller::default() },
        authenticated: identity.authenticated,
        local: false,
        standard_only: false,
        observer: identity.is_observer,
        administrator: identity.can_manage_mode_registry,
        may_repeat: identity.may_repeat,
        open_sessions_max: identity.max_open_sessions,
        connection: connection.number,
        memory: connection.replies.of_caller(Some(&identity.sender)),
    }
}

fn unidentified(credential: Credential, connection: &Connection) -> Access {
    Access {
        caller: Caller { credential, ..Caller::default() },
        authenticated: false,
        local: false,
        standard_only: false,
        observer: false,
        administrator: false,
        may_repeat: false,
        open_sessions_max: None,
        connection: connection.number,
        memory: connection.replies.of_caller(None),
    }
}

fn presented(headers: &HeaderMap) -> Result<Presented<'_>, &'static str> {
    if let Some(value) = sole(headers, AUTHORIZATION)? {
        return match value.strip_prefix(BEARER).map(str::trim) {
            None => Err("the authorization header is not of the form `Bearer <token>`"),
            Some("") => Err("the bearer token is empty"),
            Some(token) => Ok(Presented::Bearer(token)),
        };
    }
    match sole(headers, TOKEN)?.map(str::trim) {
        None => Ok(Presented::Absent),
        Some("") => Err("the x-macp-token header is empty"),
        Some(token) => Ok(Presented::Token(token)),
    }
}

/// A header that may be there once.
fn sole<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, &'static str> {
    let mut values = headers.get_all(name).iter();
    let Some(value): Option<&HeaderValue> = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err("more than one credential is presented");
    }
    value.to_str().map(Some).map_err(|_not_ascii| "the credential holds characters other than printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expected: Result<Option<&str>, ()>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a header value"));
        }
        let found = match presented(&map) {
            Ok(Presented::Absent) => Ok(None),
            Ok(Presented::Bearer(token) | Presented::Token(token)) => Ok(Some(token.to_owned())),
            Err(_) => Err(()),
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
