//! How long a call may take until its answer begins: as long as the server allows, or less if the client says so.

use std::future::Future;
use std::time::Duration;

use tonic::Status;
use tonic::codegen::http::HeaderMap;

use crate::status;

/// Where a client says how long it waits.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// Digits of such a time, as gRPC bounds them.
const DIGITS_MAX: usize = 8;

/// What a call may take. What a client says that cannot be read is as good as not said.
pub(crate) fn allowed(headers: &HeaderMap, server: Duration) -> Duration {
    let asked = headers.get(GRPC_TIMEOUT).and_then(|value| parse(value.to_str().ok()?));
    asked.map_or(server, |asked| asked.min(server))
}

/// A call that takes longer is over for its client; whatever it has set going goes on.
pub(crate) async fn within<T>(allowed: Duration, call: impl Future<Output = T>) -> Result<T, Status> {
    tokio::time::timeout(allowed, call).await.map_err(|_elapsed| status::too_late())
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 60 * 60),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_up_to_eight_digits_and_a_unit() {
        let hours = |number: u64| Some(Duration::from_secs(number * 3_600));
        for (text, expected) in [
            ("1H", hours(1)),
            ("99999999H", hours(99_999_999)),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("1", None),
            ("1x", None),
            ("+1S", None),
            ("1é", None),
            ("100000000n", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_shorter_time_holds() {
        let server = Duration::from_secs(30);
        let allowed_with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, value.parse().expect("a value"));
            allowed(&headers, server)
        };
        assert_eq!(allowed(&HeaderMap::new(), server), server);
        assert_eq!(allowed_with("1S"), Duration::from_secs(1));
        assert_eq!(allowed_with("1M"), server);
        assert_eq!(allowed_with("soon"), server);
    }
}
