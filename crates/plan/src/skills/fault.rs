//! Faults: what went wrong between sending a request and having its answer, told apart by types and never by texts.

use std::error::Error;
use std::io;

use macp_plan_core::cause::{Cause, ConnectionFault};

use crate::egress::Forbidden;

/// An exchange that gave no answer.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    pub(crate) message: String,
    /// Redirects were answered before it, and it took nothing itself: what was used is known, and is not nothing.
    pub(crate) answered: bool,
}

impl Fault {
    pub(crate) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), answered: false }
    }

    /// What the client reports about talking to `host`. The URL stays out: its query may be confidential.
    pub(crate) fn of_client(host: &str, error: reqwest::Error) -> Self {
        let error = error.without_url();
        let cause = cause_of(&error);
        let message = match find::<Forbidden>(&error) {
            Some(forbidden) => forbidden.to_string(),
            None => format!("{host}: {}", told(&error)),
        };
        Self::new(cause, message)
    }
}

impl From<Forbidden> for Fault {
    fn from(forbidden: Forbidden) -> Self {
        Self::new(Cause::EgressForbidden, forbidden.to_string())
    }
}

fn cause_of(error: &reqwest::Error) -> Cause {
    if find::<Forbidden>(error).is_some() {
        return Cause::EgressForbidden;
    }
    // Before the kinds of I/O errors, since a resolver reports with those too.
    if error.is_dns() {
        return Cause::DnsFailure;
    }
    if find::<rustls::Error>(error).is_some() {
        return if error.is_connect() { Cause::Tls } else { connection(ConnectionFault::ClosedEarly) };
    }
    if let Some(cause) = every::<io::Error>(error).find_map(|error| of_io(error.kind())) {
        // Once there was a connection the request may have been heard, whatever became of the connection then.
        return if error.is_connect() { cause } else { unproven(cause) };
    }
    if let Some(cause) = every::<hyper::Error>(error).find_map(of_hyper) {
        return cause;
    }
    if error.is_timeout() {
        return Cause::ClientTimeout;
    }
    if error.is_connect() {
        return connection(ConnectionFault::Unreachable);
    }
    Cause::Unclassified
}

/// A connection that broke, where nothing is proven by how it did.
fn unproven(cause: Cause) -> Cause {
    if cause.proves_no_effect() { connection(ConnectionFault::Reset) } else { cause }
}

fn of_io(kind: io::ErrorKind) -> Option<Cause> {
    use io::ErrorKind;
    Some(match kind {
        ErrorKind::ConnectionRefused => connection(ConnectionFault::Refused),
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable => connection(ConnectionFault::Unreachable),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::NotConnected => {
            connection(ConnectionFault::Reset)
        }
        ErrorKind::BrokenPipe => connection(ConnectionFault::BrokenPipe),
        ErrorKind::UnexpectedEof => connection(ConnectionFault::ClosedEarly),
        ErrorKind::TimedOut => Cause::ClientTimeout,
        // How a body that breaks the rules of its encoding is reported.
        ErrorKind::InvalidData | ErrorKind::InvalidInput => Cause::HttpMalformed,
        _ => return None,
    })
}

fn of_hyper(error: &hyper::Error) -> Option<Cause> {
    if error.is_parse() {
        Some(Cause::HttpMalformed)
    } else if error.is_timeout() {
        Some(Cause::ClientTimeout)
    } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        Some(connection(ConnectionFault::ClosedEarly))
    } else {
        None
    }
}

fn connection(fault: ConnectionFault) -> Cause {
    Cause::Connection { fault }
}

fn find<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    every(error).next()
}

/// Every error of one type among the causes of an error.
fn every<E: Error + 'static>(error: &reqwest::Error) -> impl Iterator<Item = &E> {
    chain(error).filter_map(|error| error.downcast_ref::<E>())
}

fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |error| below(*error))
}

/// An I/O error made from another error does not name that one as its source but holds it.
fn below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match held {
        Some(held) => Some(held),
        None => error.source(),
    }
}

/// An error with its causes, each once.
fn told(error: &reqwest::Error) -> String {
    let mut text = String::new();
    for cause in chain(error).map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
