//! Run ids that sort by time, newest first: a store lists by id, so the newest runs are the first it finds.

use std::fmt;

use uuid::Uuid;

/// The latest time an id can hold, in milliseconds since 1970: some 8,900 years of it.
const TIME_MAX_MS: u64 = (1 << 48) - 1;
const PREFIX: &str = "r-";
/// `r-`, twelve digits of time, a hyphen, sixteen digits of chance.
const LENGTH: usize = 31;

/// The id of a new run: `r-`, the time counted backwards, and enough chance that no two are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

impl RunId {
    /// An id for a run that starts at the given time; the summary of the run tells this very time.
    #[must_use]
    pub fn new(started_at_ms: u64) -> Self {
        let backwards = TIME_MAX_MS - started_at_ms.min(TIME_MAX_MS);
        let (_, chance) = Uuid::new_v4().as_u64_pair();
        Self(format!("{PREFIX}{backwards:012x}-{chance:016x}"))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When the run with this id started, if the id was made by [`RunId::new`].
#[must_use]
pub fn started_at_ms(run_id: &str) -> Option<u64> {
    let rest = run_id.strip_prefix(PREFIX).filter(|_| run_id.len() == LENGTH)?;
    let (backwards, chance) = rest.split_once('-').filter(|(backwards, _)| backwards.len() == 12)?;
    let lower_hex = |text: &str| text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !lower_hex(backwards) || !lower_hex(chance) {
        return None;
    }
    u64::from_str_radix(backwards, 16).ok().map(|backwards| TIME_MAX_MS - backwards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_sorts_first_and_tells_its_time() {
        let times = [0, 1, 1_790_000_000_000, 1_790_000_000_001, TIME_MAX_MS];
        let ids: Vec<RunId> = times.iter().map(|&time| RunId::new(time)).collect();
        assert!(ids.windows(2).all(|pair| pair[1] < pair[0]), "{ids:?}");
        for (id, time) in ids.iter().zip(times) {
            assert_eq!(started_at_ms(id.as_str()), Some(time), "{id}");
        }
        assert_ne!(RunId::new(5), RunId::new(5));
    }

    #[test]
    fn ids_made_elsewhere_tell_no_time() {
        for id in ["", "r-2031", "run-\u{e9}-7", "r-FE5F00000000-0123456789abcdef", "r-fe5f00000000-0123456789abcde"] {
            assert_eq!(started_at_ms(id), None, "{id}");
        }
    }
}
