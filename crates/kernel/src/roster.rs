//! Who may take part, in the order given and quick to search.

use smol_str::SmolStr;

/// Participants of a session without repetitions. Empty means that anyone may take part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    given: Box<[SmolStr]>,
    /// Indices into `given`, ordered by name.
    by_name: Box<[u16]>,
}

impl Roster {
    /// Repeated names count once, at their first place. The caller has bounded the number of names.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut seen = std::collections::BTreeSet::new();
        let given: Box<[SmolStr]> = names.into_iter().filter(|name| seen.insert(*name)).map(SmolStr::new).collect();
        let count = u16::try_from(given.len()).expect("a roster is bounded far below 65,536 names");
        let mut by_name: Box<[u16]> = (0..count).collect();
        by_name.sort_by(|a, b| given[usize::from(*a)].cmp(&given[usize::from(*b)]));
        Roster { given, by_name }
    }

    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Position in the given order.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name
            .binary_search_by(|at| self.given[usize::from(*at)].as_str().cmp(name))
            .ok()
            .map(|found| usize::from(self.by_name[found]))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index_of(name).is_some()
    }

    /// In the order given.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(SmolStr::as_str)
    }
}
