//! Text from strangers, made safe to show, and the few units people write.

use std::time::Duration;

use macp_plan_core::plan::Aliases;

/// A name or reason as it may be shown on a terminal: nothing in it can move the cursor or change colours.
pub(crate) fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Marks that reorder or hide the text around them.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A long text cut to a number of characters.
pub(crate) fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let mut shown: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

/// The code of a step as the taxonomy has it, and beside it as the author of the plan wrote it.
pub(crate) fn spelt(code: &str, step_id: Option<&str>, aliases: &Aliases) -> String {
    let of_step = step_id.and_then(|step_id| aliases.get(step_id)).into_iter().flatten();
    let written: Vec<&str> = of_step.filter(|(_, known)| *known == code).map(|(alias, _)| alias.as_str()).collect();
    if written.is_empty() { code.to_owned() } else { format!("{code} (written {})", written.join(", ")) }
}

/// Reads a duration such as `500ms`, `60s`, `5m` or `2h`; a bare number counts seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor_ms: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} is not a duration; write it like 500ms, 60s, 5m or 2h")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a duration; write it like 60s"))?;
    let ms = number.checked_mul(factor_ms).ok_or_else(|| format!("{text:?} is too long"))?;
    Ok(Duration::from_millis(ms))
}

/// A number of bytes for people.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1_024.0;
    let mut unit = 0;
    while amount >= 1_024.0 && unit + 1 < UNITS.len() {
        amount /= 1_024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// `1 entry`, `2 entries`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let cases = [("500ms", 500), ("60s", 60_000), ("60", 60_000), ("5m", 300_000), ("2h", 7_200_000)];
        for (text, ms) in cases {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn strangers_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\n\u{202e}"), "a\\u{1b}[31mb\\u{a}\\u{202e}");
        assert_eq!(clean("Zürich – ok"), "Zürich – ok");
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(count(1, "entry", "entries"), "1 entry");
    }
}
