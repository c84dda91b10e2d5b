//! Points in time as receipts write them.

const DAY_SECONDS: i64 = 86_400;
/// The last millisecond that a year of four digits has room for.
const UNIX_MS_MAX: i64 = 253_402_300_799_999;

/// RFC 3339 in UTC, cut to whole seconds; none before 1970 and after 9999.
pub(super) fn rfc3339(unix_ms: i64) -> Option<String> {
    if !(0..=UNIX_MS_MAX).contains(&unix_ms) {
        return None;
    }
    let seconds = unix_ms / 1_000;
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let time = seconds % DAY_SECONDS;
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

/// The Gregorian date of a day counted from 1970-01-01.
///
/// Counts from 1 March of the year 0, so that the day a leap year adds is the last of its year, and takes off the
/// longest cycles first: 400 years, then the shorter ones, each of which may be one day short of four of the next.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468;
    let days = days + DAYS_TO_1970;
    let (cycles, days) = (days / 146_097, days % 146_097);
    let centuries = (days / 36_524).min(3);
    let days = days - centuries * 36_524;
    let (olympiads, days) = (days / 1_461, days % 1_461);
    let years = (days / 365).min(3);
    let day_of_year = days - years * 365;
    // From March on, months have 31, 30, 31, 30, 31 days, and then again: 153 days to five months.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let year = cycles * 400 + centuries * 100 + olympiads * 4 + years;
    match month_from_march {
        0..10 => (year, month_from_march + 3, day),
        _ => (year + 1, month_from_march - 9, day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_match_the_calendar() {
        // Expected values come from `date -u -d @N`.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_792_843_200, "2026-10-24T12:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (13_574_563_200, "2400-02-29T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000).as_deref(), Some(expected));
            assert_eq!(rfc3339(seconds * 1_000 + 999).as_deref(), Some(expected), "cut, not rounded");
        }
        for beyond in [-1, i64::MIN, UNIX_MS_MAX + 1, i64::MAX] {
            assert_eq!(rfc3339(beyond), None);
        }
    }

    /// Every day follows the one before it, by the rules of the calendar and not by the arithmetic above.
    #[test]
    fn every_day_is_the_next_one() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..=UNIX_MS_MAX / 1_000 / DAY_SECONDS {
            assert_eq!(date(days), (year, month, day));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length =
                [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert_eq!((year, month, day), (10_000, 1, 1));
    }
}
