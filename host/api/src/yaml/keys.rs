//! The keys of a mapping while it is read.

use std::collections::BTreeMap;

use super::tree::Entry;

/// Entries in their order, each key once. Also with very many keys each is found quickly.
#[derive(Default)]
pub(super) struct Keys {
    entries: Vec<Entry>,
    /// Positions by identity; made only for mappings that are not small.
    index: BTreeMap<String, usize>,
}

/// Up to so many entries are searched one after the other.
const SMALL: usize = 16;

impl Keys {
    fn position(&self, id: &str) -> Option<usize> {
        if self.entries.len() <= SMALL {
            self.entries.iter().position(|entry| entry.id == id)
        } else {
            self.index.get(id).copied()
        }
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        let count = self.entries.len();
        // The first time, those that are there already are entered, too.
        let new = match count {
            ..=SMALL => return,
            count if count == SMALL + 1 => 0,
            count => count - 1,
        };
        for (position, entry) in self.entries.iter().enumerate().skip(new) {
            self.index.insert(entry.id.clone(), position);
        }
    }

    /// Adds an entry. One with the same key is replaced at its position, and returned.
    pub(super) fn put(&mut self, entry: Entry) -> Option<Entry> {
        match self.position(&entry.id) {
            Some(position) => {
                let earlier = self.entries.get_mut(position)?;
                // 1, 1.0 and true are one key; the first way to write it stays.
                let key = earlier.key.clone();
                Some(std::mem::replace(earlier, Entry { key, ..entry }))
            }
            None => {
                self.push(entry);
                None
            }
        }
    }

    /// Adds an entry unless its key is there.
    pub(super) fn put_absent(&mut self, entry: Entry) {
        if self.position(&entry.id).is_none() {
            self.push(entry);
        }
    }

    /// Adds those entries whose keys are not there.
    pub(super) fn add_absent(&mut self, others: Self) {
        for entry in others.entries {
            self.put_absent(entry);
        }
    }

    /// The entries in their order.
    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}
