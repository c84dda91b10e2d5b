//! Days of the calendar, in UTC: what limits per day and month go by.

use std::fmt;

const DAY_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Day {
    year: u64,
    month: u64,
    day: u64,
}

impl Day {
    /// The day of a moment, given in milliseconds since 1970.
    pub(super) fn of(unix_ms: u64) -> Self {
        // Years are counted from March, so that the day a leap year adds is the last of its year.
        let days = unix_ms / DAY_MS + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self { year: year_of_era + era * 400 + u64::from(month <= 2), month, day }
    }

    /// The first day of its month.
    pub(super) fn month(self) -> Self {
        Self { day: 1, ..self }
    }

    /// The first day of the month before.
    pub(super) fn last_month(self) -> Self {
        match self.month {
            1 => Self { year: self.year - 1, month: 12, day: 1 },
            month => Self { month: month - 1, day: 1, ..self },
        }
    }
}

/// `2026-01-31`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        // Expected values come from `date -u -d @N`.
        let cases = [
            (0, "1970-01-01"),
            (951_782_399_999, "2000-02-28"),
            (951_782_400_000, "2000-02-29"),
            (1_709_251_200_000, "2024-03-01"),
            (1_798_761_599_999, "2026-12-31"),
            (1_798_761_600_000, "2027-01-01"),
            (4_107_542_400_000, "2100-03-01"),
        ];
        for (unix_ms, expected) in cases {
            assert_eq!(Day::of(unix_ms).to_string(), expected);
        }
        assert_eq!(Day::of(1_798_761_600_000).last_month().to_string(), "2026-12-01");
        assert_eq!(Day::of(1_798_761_599_999).last_month().to_string(), "2026-11-01");
        assert_eq!(Day::of(1_798_761_599_999).month().to_string(), "2026-12-01");
    }
}
