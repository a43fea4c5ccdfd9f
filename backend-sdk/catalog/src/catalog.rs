//! All sources together.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use dstack_backend_types::CatalogItem;
use dstack_backend_types::services::{CatalogQuery, CatalogReply};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::folder::Folder;
use crate::remote::{Asked, Remote, chain};
use crate::snapshot::Snapshot;
use crate::source::{Edition, Source, SourceError};
use crate::web::Web;
use crate::{OFFLINE, ONLINE, merge, needs};

/// Providers that are fetched at a time.
const THREADS: usize = 8;

/// Which sources a catalog has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogConfig {
    /// For each provider, the first source that has it is used.
    pub sources: Vec<Source>,
    /// Where the last good archives of published sources are kept; none keeps none.
    pub copies: Option<PathBuf>,
    /// Always this version of published sources, instead of the newest.
    pub version: Option<String>,
    /// Whether the rows that the program carries are used where no source has a provider.
    pub has_snapshot: bool,
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// It cannot be the name of a provider.
    #[error("{0:?} is no provider's name")]
    Name(String),
    /// Nobody knows a provider of that name.
    #[error("unknown provider: {0}")]
    Unknown(String),
    /// The name is known, and no source has rows of it.
    #[error("no catalog source has {0}")]
    Missing(String),
    /// A source has it, and it cannot be used.
    #[error("the catalog of {provider} cannot be used")]
    Source {
        /// The provider.
        provider: String,
        /// Why.
        #[source]
        source: SourceError,
    },
}

/// An item with the provider it is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderItem {
    /// The catalog's word.
    pub provider: String,
    /// The row.
    #[serde(flatten)]
    pub item: CatalogItem,
}

/// What is known of one provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderStatus {
    /// The catalog's word.
    pub provider: String,
    /// Where the rows in use are from.
    pub source: Option<String>,
    /// Their publisher's name for the edition.
    pub version: Option<String>,
    /// How many there are.
    pub rows: usize,
    /// How many locations they are in.
    pub locations: usize,
    /// How many rows could not be used.
    pub bad_rows: usize,
    /// What the publisher says of the time of the prices.
    pub as_of: Option<String>,
    /// When they were fetched, or their file changed.
    pub fetched_at: Option<Timestamp>,
    /// When a source last said which edition is the newest.
    pub checked_at: Option<Timestamp>,
    /// When a source is asked again.
    pub next_check_at: Option<Timestamp>,
    /// Of the archive.
    pub sha256: Option<String>,
    /// What went wrong last.
    pub error: Option<String>,
}

/// What a refresh came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refreshed {
    /// Providers with new rows.
    pub updated: Vec<String>,
    /// Providers whose rows are the newest already.
    pub unchanged: Vec<String>,
    /// Providers that no published source has.
    pub absent: Vec<String>,
    /// Providers whose rows of before are still used, and why.
    pub failed: Vec<(String, String)>,
}

enum Place {
    Folder(Folder),
    Remote(Remote),
}

/// The catalogs of all providers. It has no clock, and no network but what it is given.
pub struct Catalog {
    places: Vec<Place>,
    has_snapshot: bool,
    web: Arc<dyn Web>,
    /// One fetch that a query waits for at a time.
    fetching: Mutex<()>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("places", &self.places.len())
            .field("has_snapshot", &self.has_snapshot)
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// Reads nothing yet.
    pub fn new(config: CatalogConfig, web: Arc<dyn Web>) -> Self {
        let CatalogConfig {
            sources,
            copies,
            version,
            has_snapshot,
        } = config;
        let place = |source| match source {
            Source::Folder(path) => Place::Folder(Folder::new(path)),
            Source::Published(base) => {
                Place::Remote(Remote::new(base, version.clone(), copies.as_deref()))
            }
        };
        Self {
            places: sources.into_iter().map(place).collect(),
            has_snapshot,
            web,
            fetching: Mutex::default(),
        }
    }

    fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.places.iter().filter_map(|place| match place {
            Place::Remote(remote) => Some(remote),
            Place::Folder(_) => None,
        })
    }

    /// Whether there is a source to ask for what is new.
    pub fn has_published(&self) -> bool {
        self.remotes().next().is_some()
    }

    /// The rows in use, without asking anybody.
    fn known(&self, provider: &str) -> Result<Option<Arc<Edition>>, SourceError> {
        for place in &self.places {
            let found = match place {
                Place::Folder(folder) => folder.find(provider)?,
                Place::Remote(remote) => remote.state(provider).edition,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        let snapshot = self.has_snapshot.then(Snapshot::embedded);
        Ok(snapshot.and_then(|snapshot| snapshot.edition(provider).cloned()))
    }

    /// The rows of a provider. Only where there are none yet a published source is asked, and waited for.
    fn edition(&self, provider: &str, now: Timestamp) -> Result<Arc<Edition>, CatalogError> {
        if !is_provider_name(provider) {
            return Err(CatalogError::Name(provider.to_owned()));
        }
        let failed = |source| CatalogError::Source {
            provider: provider.to_owned(),
            source,
        };
        if let Some(edition) = self.known(provider).map_err(failed)? {
            return Ok(edition);
        }
        let _one = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        for remote in self.remotes() {
            if remote.is_due(provider, now) {
                remote
                    .refresh(self.web.as_ref(), provider, now)
                    .map_err(failed)?;
            }
        }
        self.known(provider)
            .map_err(failed)?
            .ok_or_else(|| CatalogError::Missing(provider.to_owned()))
    }

    /// What a backend asks for.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn select(
        &self,
        query: &CatalogQuery,
        now: Timestamp,
    ) -> Result<CatalogReply, CatalogError> {
        let provider = query.provider.to_ascii_lowercase();
        let edition = self.edition(&provider, now)?;
        Ok(CatalogReply {
            version: edition.version.clone(),
            items: needs::select(&edition.table, query),
        })
    }

    /// The items that fit a filter: the lists of all providers merged by price, each in its own order.
    ///
    /// # Errors
    /// A provider of the filter that nobody knows or that no source has; without one, only if what a source has cannot be used.
    pub fn query(
        &self,
        filter: &Filter,
        now: Timestamp,
    ) -> Result<Vec<ProviderItem>, CatalogError> {
        let mut lists = Vec::new();
        for provider in self.wanted(filter)? {
            let edition = match self.edition(&provider, now) {
                Ok(edition) => edition,
                Err(CatalogError::Missing(_)) if filter.provider.is_none() => continue,
                Err(error) => return Err(error),
            };
            let rows = filter.rows(&edition.table).into_iter();
            let list: Vec<_> = rows
                .map(|row| (edition.table.price(row), row, lists.len()))
                .collect();
            lists.push((provider, edition, list));
        }
        let merged = merge::by_price(
            lists
                .iter_mut()
                .map(|(_, _, list)| std::mem::take(list))
                .collect(),
            |(price, _, _)| *price,
        );
        let item = |(_, row, list): (f64, u32, usize)| {
            let (provider, edition, _) = lists.get(list)?;
            Some(ProviderItem {
                provider: provider.clone(),
                item: edition.table.item(row)?,
            })
        };
        Ok(merged.into_iter().filter_map(item).collect())
    }

    /// The providers of a filter, in the order in which equal prices are listed.
    fn wanted(&self, filter: &Filter) -> Result<Vec<String>, CatalogError> {
        let known = self.providers();
        for name in filter.provider.iter().flatten() {
            let lower = name.to_ascii_lowercase();
            if !known.contains(&lower) && !ONLINE.contains(&lower.as_str()) {
                return Err(CatalogError::Unknown(name.clone()));
            }
        }
        let live = ONLINE.iter().map(|name| (*name).to_owned());
        let live = live.filter(|name| filter.provider.is_some() && !known.contains(name));
        let mut all: Vec<String> = known.iter().cloned().chain(live).collect();
        all.retain(|name| filter.wants(name));
        let place = |name: &String| OFFLINE.iter().position(|known| known == name);
        all.sort_by_key(|name| (place(name).unwrap_or(OFFLINE.len()), name.clone()));
        Ok(all)
    }

    /// All providers that there may be rows of.
    fn providers(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = OFFLINE.iter().map(|name| (*name).to_owned()).collect();
        for place in &self.places {
            match place {
                Place::Folder(folder) => all.extend(folder.providers()),
                Place::Remote(remote) => all.extend(remote.providers()),
            }
        }
        if self.has_snapshot {
            all.extend(Snapshot::embedded().about().providers.keys().cloned());
        }
        all
    }

    /// Asks the published sources for what is new: of all providers, or of those whose time has come. With a pinned version
    /// there is nothing new once it is there.
    pub fn refresh(&self, now: Timestamp, only_due: bool) -> Refreshed {
        let providers: Vec<String> = self.providers().into_iter().collect();
        let mut done = Refreshed::default();
        for remote in self.remotes() {
            let due: Vec<&String> = providers
                .iter()
                .filter(|provider| !only_due || remote.is_due(provider, now))
                .collect();
            for some in due.chunks(THREADS) {
                let answers: Vec<_> = std::thread::scope(|scope| {
                    let asking: Vec<_> = some
                        .iter()
                        .map(|provider| {
                            scope.spawn(|| remote.refresh(self.web.as_ref(), provider, now))
                        })
                        .collect();
                    asking.into_iter().map(|thread| thread.join()).collect()
                });
                for (provider, answer) in some.iter().zip(answers) {
                    let provider = (*provider).clone();
                    match answer {
                        Ok(Ok(Asked::New)) => done.updated.push(provider),
                        Ok(Ok(Asked::Same)) => done.unchanged.push(provider),
                        Ok(Ok(Asked::Absent)) => done.absent.push(provider),
                        Ok(Err(error)) => done.failed.push((provider, chain(&error))),
                        Err(_) => done
                            .failed
                            .push((provider, "the fetch panicked".to_owned())),
                    }
                }
            }
        }
        done
    }

    /// What is known of every provider that there are rows of, or that something went wrong with.
    pub fn status(&self) -> Vec<ProviderStatus> {
        let all = self.providers().into_iter();
        all.map(|provider| self.status_of(provider))
            .filter(|status| status.source.is_some() || status.error.is_some())
            .collect()
    }

    fn status_of(&self, provider: String) -> ProviderStatus {
        let mut status = ProviderStatus::default();
        for remote in self.remotes() {
            let state = remote.state(&provider);
            status.checked_at = status.checked_at.max(state.checked_at);
            status.next_check_at = match (status.next_check_at, state.next) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            status.error = status.error.or(state.error);
        }
        match self.known(&provider) {
            Ok(Some(edition)) => {
                status.source = Some(edition.from.clone());
                status.version.clone_from(&edition.version);
                status.rows = edition.table.len();
                status.locations = edition.table.location_count();
                status.bad_rows = edition.bad_rows;
                status.as_of.clone_from(&edition.as_of);
                status.fetched_at = edition.fetched_at;
                status.sha256.clone_from(&edition.sha256);
            }
            Ok(None) => {}
            Err(error) => status.error = Some(chain(&error)),
        }
        status.provider = provider;
        status
    }
}

/// Whether a text can be the name of a provider: it becomes part of paths and addresses.
pub(crate) fn is_provider_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.bytes().all(is_plain)
}
