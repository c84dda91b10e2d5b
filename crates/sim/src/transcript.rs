//! What happened in a run, as one number: two runs with the same transcript did the same things in the same order.

use std::fmt::{self, Write};

/// FNV-1a over text that is never kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn of(text: fmt::Arguments<'_>) -> u64 {
        let mut digest = Digest::default();
        digest.write_fmt(text).expect("hashing cannot fail");
        digest.0
    }
}

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// Notes every step of a run; echoes them for a person who looks into one seed.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    digest: Digest,
    echo: bool,
}

impl Transcript {
    pub(crate) fn new(echo: bool) -> Self {
        Transcript { digest: Digest::default(), echo }
    }

    pub(crate) fn note(&mut self, line: fmt::Arguments<'_>) {
        if self.echo {
            eprintln!("{line}");
        }
        writeln!(self.digest, "{line}").expect("hashing cannot fail");
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.0
    }
}
