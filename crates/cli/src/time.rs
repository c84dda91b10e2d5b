//! Points in time as people read them: UTC, to the millisecond.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: i64 = 86_400_000;

/// The clock, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// `2026-01-31 09:08:07.123`.
pub(crate) fn stamp(unix_ms: i64) -> String {
    let (year, month, day) = civil(unix_ms.div_euclid(DAY_MS));
    format!("{year:04}-{month:02}-{day:02} {}", clock(unix_ms))
}

/// `09:08:07.123`.
pub(crate) fn clock(unix_ms: i64) -> String {
    let ms = unix_ms.rem_euclid(DAY_MS);
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", ms % 1_000)
}

/// How far away a point in time is: `in 5m`, `3s ago`.
pub(crate) fn distance(unix_ms: i64, now_ms: i64) -> String {
    let ms = unix_ms.saturating_sub(now_ms);
    let amount = match ms.unsigned_abs() {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..120_000 => format!("{}s", ms / 1_000),
        ms @ 120_000..7_200_000 => format!("{}m", ms / 60_000),
        ms @ 7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        ms => format!("{}d", ms / 86_400_000),
    };
    if ms >= 0 { format!("in {amount}") } else { format!("{amount} ago") }
}

/// The Gregorian date of a day counted from 1970-01-01. Years are counted from March, so that the day a leap year adds
/// is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_match_the_calendar() {
        // Expected values come from `date -u -d @N`.
        let cases = [
            (0, "1970-01-01 00:00:00.000"),
            (-1, "1969-12-31 23:59:59.999"),
            (951_782_400_000, "2000-02-29 00:00:00.000"),
            (1_709_210_096_789, "2024-02-29 12:34:56.789"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000"),
        ];
        for (unix_ms, expected) in cases {
            assert_eq!(stamp(unix_ms), expected);
        }
    }

    #[test]
    fn distances_have_a_direction() {
        assert_eq!(distance(5_000, 0), "in 5s");
        assert_eq!(distance(0, 180_000), "3m ago");
        assert_eq!(distance(i64::MIN, i64::MAX), "106751991167d ago");
    }
}
