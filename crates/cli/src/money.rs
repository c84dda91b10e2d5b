//! Amounts of money and time, as people read them in plans and runs.

/// Micro-cents in a cent.
const MICROCENTS: u64 = 1_000_000;

/// An amount in cents with as many decimals as it has: `0 ¢`, `1.5 ¢`, `0.000003 ¢`.
pub(crate) fn cents(microcents: u64) -> String {
    let (whole, part) = (microcents / MICROCENTS, microcents % MICROCENTS);
    if part == 0 {
        return format!("{whole} ¢");
    }
    let decimals = format!("{part:06}");
    format!("{whole}.{} ¢", decimals.trim_end_matches('0'))
}

/// A span of time in the largest units that tell it: `250 ms`, `1.5 s`, `2 m 5 s`, `1 h 0 m`.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, format!("{:03}", ms % 1_000).trim_end_matches('0')),
        60_000..3_600_000 => format!("{} m {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let cases =
            [(0, "0 ¢"), (1, "0.000001 ¢"), (1_500_000, "1.5 ¢"), (42_000_000, "42 ¢"), (10_000_010, "10.00001 ¢")];
        for (microcents, text) in cases {
            assert_eq!(cents(microcents), text);
        }
    }

    #[test]
    fn spans_are_short() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_050, "1.05 s"),
            (125_000, "2 m 5 s"),
            (3_600_000, "1 h 0 m"),
        ];
        for (ms, text) in cases {
            assert_eq!(span(ms), text);
        }
    }
}
