//! One published source: what was fetched of it, and when to look again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::archive::{checksum, read_zip};
use crate::copies::Copies;
use crate::published::{download, newest};
use crate::source::{Edition, SourceError};
use crate::web::Web;

/// How often a source is asked for a new version.
const INTERVAL: SignedDuration = SignedDuration::from_mins(15);
/// The first pause after a failure; each further one doubles it.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(30);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// What is known of one provider.
#[derive(Debug, Default, Clone)]
pub(crate) struct State {
    pub(crate) edition: Option<Arc<Edition>>,
    /// When the source last said what its newest version is.
    pub(crate) checked_at: Option<Timestamp>,
    /// When to ask next; none is at once.
    pub(crate) next: Option<Timestamp>,
    pub(crate) failures: u32,
    pub(crate) error: Option<String>,
    is_copy_tried: bool,
}

/// What asking a source about a provider came to.
pub(crate) enum Asked {
    /// There is a new edition, and it is used from now on.
    New,
    /// What is known is the newest.
    Same,
    /// The source has nothing of this provider.
    Absent,
}

/// A published source.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) base: String,
    /// Always this version, instead of the newest.
    pinned: Option<String>,
    copies: Option<Copies>,
    states: Mutex<BTreeMap<String, State>>,
}

impl Remote {
    pub(crate) fn new(base: String, pinned: Option<String>, copies: Option<&Path>) -> Self {
        Self {
            copies: copies.map(|root| Copies::new(root, &base)),
            base,
            pinned,
            states: Mutex::default(),
        }
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a provider; at first that is the copy of an earlier time.
    pub(crate) fn state(&self, provider: &str) -> State {
        if let Some(state) = self.states().get(provider)
            && (state.is_copy_tried || state.edition.is_some())
        {
            return state.clone();
        }
        // Read without the lock: another thread may read the same copy, which does no harm.
        let copy = self
            .copies
            .as_ref()
            .and_then(|copies| copies.load(provider));
        let copy = copy.filter(|copy| {
            let pinned = self.pinned.as_ref();
            pinned.is_none_or(|pinned| copy.version.as_ref() == Some(pinned))
        });
        let mut states = self.states();
        let state = states.entry(provider.to_owned()).or_default();
        state.is_copy_tried = true;
        if state.edition.is_none() {
            state.edition = copy.map(Arc::new);
        }
        state.clone()
    }

    /// The providers that were asked for so far.
    pub(crate) fn providers(&self) -> Vec<String> {
        self.states().keys().cloned().collect()
    }

    /// Whether it is time to ask.
    pub(crate) fn is_due(&self, provider: &str, now: Timestamp) -> bool {
        self.state(provider).next.is_none_or(|next| next <= now)
    }

    /// Asks the source and uses what is new. A failure leaves what is known as it is, and is asked again after a pause.
    pub(crate) fn refresh(
        &self,
        web: &dyn Web,
        provider: &str,
        now: Timestamp,
    ) -> Result<Asked, SourceError> {
        let known = self.state(provider).edition;
        let fetched = self.fetch(web, provider, known.as_deref(), now);
        let mut states = self.states();
        let state = states.entry(provider.to_owned()).or_default();
        match fetched {
            Ok(fetched) => {
                state.checked_at = Some(now);
                state.next = Some(now.saturating_add(INTERVAL).unwrap_or(now));
                state.failures = 0;
                state.error = None;
                Ok(match fetched {
                    Fetched::Edition(edition) => {
                        state.edition = Some(Arc::new(*edition));
                        Asked::New
                    }
                    Fetched::Same => Asked::Same,
                    Fetched::Absent => {
                        state.edition = None;
                        Asked::Absent
                    }
                })
            }
            Err(error) => {
                state.next = Some(now.saturating_add(pause(state.failures)).unwrap_or(now));
                state.failures = state.failures.saturating_add(1);
                state.error = Some(chain(&error));
                Err(error)
            }
        }
    }

    fn fetch(
        &self,
        web: &dyn Web,
        provider: &str,
        known: Option<&Edition>,
        now: Timestamp,
    ) -> Result<Fetched, SourceError> {
        let version = match &self.pinned {
            Some(version) => Some(version.clone()),
            None => newest(web, &self.base, provider)?,
        };
        let Some(version) = version else {
            return Ok(Fetched::Absent);
        };
        if known.is_some_and(|known| known.version.as_ref() == Some(&version)) {
            return Ok(Fetched::Same);
        }
        let bytes = download(web, &self.base, provider, &version)?;
        let place = format!("{}/{provider}/{version}/catalog.zip", self.base);
        let loaded =
            read_zip(provider, &bytes).map_err(|source| SourceError::Content { place, source })?;
        let mut edition = Edition::new(provider, self.base.clone(), loaded);
        edition.version = Some(version);
        edition.fetched_at = Some(now);
        edition.sha256 = Some(checksum(&bytes));
        if let Some(copies) = &self.copies
            && let Err(error) = copies.keep(provider, &edition, &bytes)
        {
            tracing::warn!(
                provider,
                error = chain(&error),
                "no copy of the catalog is kept"
            );
        }
        Ok(Fetched::Edition(Box::new(edition)))
    }
}

enum Fetched {
    Edition(Box<Edition>),
    Same,
    Absent,
}

fn pause(failures: u32) -> SignedDuration {
    let factor = 1_i32.checked_shl(failures.min(16)).unwrap_or(i32::MAX);
    FIRST_PAUSE
        .checked_mul(factor)
        .map_or(LONGEST_PAUSE, |pause| pause.min(LONGEST_PAUSE))
}

/// An error with what led to it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(&format!(": {next}"));
        source = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::pause;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let seconds: Vec<i64> = [0, 1, 2, 6, 7, 40]
            .map(|failures| pause(failures).as_secs())
            .to_vec();
        assert_eq!(seconds, [30, 60, 120, 1920, 3600, 3600]);
    }
}
