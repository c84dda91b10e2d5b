//! Bytes read as choices.

/// At the end of the bytes every choice is the first.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// True for one byte in `count`.
    pub fn one_in(&mut self, count: u8) -> bool {
        self.byte() % count == count - 1
    }

    /// Up to so many of the bytes, as they are.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn raw(&mut self) -> Vec<u8> {
        let most = usize::from(self.byte() % 64);
        self.take(most).to_vec()
    }
}
