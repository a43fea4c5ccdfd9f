//! Mappings with known keys.

use serde_json::{Map, Value};

use super::{Failed, FromValue, Kind, Mode, Reader};

/// A type that is spread over some keys of a mapping, so that several such types can share one.
pub trait FromObject: Sized {
    /// Takes its keys out of `obj`.
    ///
    /// # Errors
    /// [`Failed`] after at least one problem was noted.
    fn from_object(obj: &mut Obj<'_>, cx: &mut Reader) -> Result<Self, Failed>;
}

/// A mapping being read. It remembers which keys were asked for, so that [`Obj::finish`] can name the others.
#[derive(Debug)]
pub struct Obj<'v> {
    map: &'v Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'v> Obj<'v> {
    pub(super) fn new(map: &'v Map<String, Value>) -> Self {
        Self {
            map,
            known: Vec::new(),
        }
    }

    /// The value under `key`, null included.
    pub fn raw(&mut self, key: &'static str) -> Option<&'v Value> {
        self.known.push(key);
        self.map.get(key)
    }

    /// Whether the mapping has `key`, without asking for it.
    pub fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// A required key.
    ///
    /// # Errors
    /// [`Failed`] if it is absent or does not fit.
    pub fn required<T: FromValue>(
        &mut self,
        key: &'static str,
        cx: &mut Reader,
    ) -> Result<T, Failed> {
        self.required_with(key, cx, T::from_value)
    }

    /// A required key, read by `f`.
    ///
    /// # Errors
    /// [`Failed`] if it is absent or does not fit.
    pub fn required_with<T>(
        &mut self,
        key: &'static str,
        cx: &mut Reader,
        f: impl FnOnce(&Value, &mut Reader) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        match self.raw(key) {
            Some(value) => cx.at_key(key, |cx| f(value, cx)),
            None => Err(cx.at_key(key, |cx| {
                cx.note(Kind::Missing, format!("the key `{key}` is required"))
            })),
        }
    }

    /// A key that may be absent or null.
    ///
    /// # Errors
    /// [`Failed`] if its value does not fit.
    pub fn optional<T: FromValue>(
        &mut self,
        key: &'static str,
        cx: &mut Reader,
    ) -> Result<Option<T>, Failed> {
        self.optional_with(key, cx, T::from_value)
    }

    /// A key that may be absent or null, read by `f`.
    ///
    /// # Errors
    /// [`Failed`] if its value does not fit.
    pub fn optional_with<T>(
        &mut self,
        key: &'static str,
        cx: &mut Reader,
        f: impl FnOnce(&Value, &mut Reader) -> Result<T, Failed>,
    ) -> Result<Option<T>, Failed> {
        match self.raw(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => cx.at_key(key, |cx| f(value, cx)).map(Some),
        }
    }

    /// A key with a default for its absence; null is read like any other value.
    ///
    /// # Errors
    /// [`Failed`] if its value does not fit.
    pub fn defaulted<T: FromValue>(
        &mut self,
        key: &'static str,
        cx: &mut Reader,
        default: impl FnOnce() -> T,
    ) -> Result<T, Failed> {
        self.defaulted_with(key, cx, default, T::from_value)
    }

    /// A key with a default for its absence, read by `f`.
    ///
    /// # Errors
    /// [`Failed`] if its value does not fit.
    pub fn defaulted_with<T>(
        &mut self,
        key: &'static str,
        cx: &mut Reader,
        default: impl FnOnce() -> T,
        f: impl FnOnce(&Value, &mut Reader) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        match self.raw(key) {
            None => Ok(default()),
            Some(value) => cx.at_key(key, |cx| f(value, cx)),
        }
    }

    /// A key whose value must be one of the given words; used for `type`.
    ///
    /// # Errors
    /// [`Failed`] if it is absent or another value.
    pub fn tag(
        &mut self,
        key: &'static str,
        words: &[&'static str],
        cx: &mut Reader,
    ) -> Result<&'static str, Failed> {
        self.required_with(key, cx, |value, cx| cx.word(value, words))
    }

    /// Ends the mapping: in strict mode each key that nobody asked for is a problem.
    ///
    /// # Errors
    /// [`Failed`] if there was such a key.
    pub fn finish(self, cx: &mut Reader) -> Result<(), Failed> {
        if cx.mode() == Mode::Tolerant {
            return Ok(());
        }
        let mut result = Ok(());
        for key in self
            .map
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()))
        {
            result = Err(Failed);
            if cx.is_full() {
                break;
            }
            let nearest = nearest_key(key, self.known.iter().copied());
            let hint = match &nearest {
                Some(near) => format!(", did you mean `{near}`?"),
                None => String::new(),
            };
            let message = format!("the key `{key}` is not known here{hint}");
            let kind = Kind::UnknownKey {
                nearest: nearest.map(str::to_owned),
            };
            result = Err(cx.at_key(key, |cx| cx.note(kind, message)));
        }
        result
    }
}

/// Longer words are no misspelt keys; comparing them would take long.
const LONGEST_KEY: usize = 64;

/// The known key that is closest to `key`, if it is close enough to be what was meant.
pub fn nearest_key<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let length = key.chars().count();
    if length > LONGEST_KEY {
        return None;
    }
    let limit = (length / 3).max(1);
    known
        .map(|candidate| (distance(key, candidate), candidate))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, candidate)| candidate)
}

/// How many characters have to be inserted, removed, replaced or swapped with the next one; `-` and `_` count as equal.
fn distance(a: &str, b: &str) -> usize {
    let fold = |s: &str| -> Vec<char> {
        s.chars()
            .map(|c| {
                if c == '-' {
                    '_'
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect()
    };
    let (a, b) = (fold(a), fold(b));
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}
