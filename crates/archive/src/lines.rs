//! Reads files line by line without trusting their line lengths.

use std::io::{self, BufRead, Read};

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawLine {
    pub(crate) bytes: Vec<u8>,
    /// Whether the line has its end: only the last of a file that was cut off has none.
    pub(crate) ended: bool,
}

/// The next line, none at the end of the file. A line above the limit is an error: nobody writes such lines, and
/// keeping one would let a stranger's file decide how much memory is used.
pub(crate) fn read_line(reader: &mut impl BufRead, bytes_max: u64) -> io::Result<Option<RawLine>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(bytes_max.saturating_add(1)).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let ended = bytes.last() == Some(&b'\n');
    if ended {
        bytes.pop();
    } else if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line is longer than {bytes_max} bytes")));
    }
    Ok(Some(RawLine { bytes, ended }))
}

/// Whether reading failed because of what the file holds.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_a_missing_end_is_told() {
        let mut text: &[u8] = b"four\n\nlast";
        let mut next = || read_line(&mut text, 4);
        assert_eq!(next().unwrap(), Some(RawLine { bytes: b"four".to_vec(), ended: true }));
        assert_eq!(next().unwrap(), Some(RawLine { bytes: Vec::new(), ended: true }));
        assert_eq!(next().unwrap(), Some(RawLine { bytes: b"last".to_vec(), ended: false }));
        assert_eq!(next().unwrap(), None);
        for long in [&b"fives"[..], b"fives\n", b"longer than that"] {
            assert!(is_too_long(&read_line(&mut &*long, 4).unwrap_err()), "{long:?}");
        }
    }
}
