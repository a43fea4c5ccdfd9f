//! What replicas tell each other, and the time that they share.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use dstack_engine::changes::Hint;
use jiff::{SignedDuration, Timestamp};

/// What a replica tells the others after a commit. It may be lost: each replica also looks by itself now and then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Rows that are due now.
    Hints(Vec<Hint>),
    /// What the others keep in memory of this is old.
    Changed(Topic),
}

/// Something that replicas keep in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Which backends projects have.
    Backends,
    /// The host keys of machines.
    HostKeys,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 2] = [Self::Backends, Self::HostKeys];

    /// Its word between replicas.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Backends => "backends",
            Self::HostKeys => "host_keys",
        }
    }
}

/// What came from another replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// News of another replica.
    News(News),
    /// News may have been missed: whatever could have been told, look at it.
    Everything,
}

/// Who is called with what comes. Must not block.
pub(crate) type Ear = Box<dyn Fn(Heard) + Send + Sync>;

/// The one who listens, once there is one.
#[derive(Default)]
pub(crate) struct Ears(OnceLock<Ear>);

impl Ears {
    pub(crate) fn set(&self, ear: Ear) -> bool {
        self.0.set(ear).is_ok()
    }

    pub(crate) fn tell(&self, heard: Heard) {
        if let Some(ear) = self.0.get() {
            ear(heard);
        }
    }
}

impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ears")
    }
}

/// The database's time, going on by this process's steady clock between two looks at it. Without a database that has a clock
/// it is the system's time.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<Option<(Timestamp, Instant)>>);

impl Clock {
    /// The database said `time` to a question that was put at `asked` and has just been answered.
    pub(crate) fn set(&self, time: Timestamp, asked: Instant) {
        // The answer is as old as its way back took, about half of all.
        let at = asked + asked.elapsed() / 2;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, at));
    }

    pub(crate) fn now(&self) -> Timestamp {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = known.map_or_else(Timestamp::now, |(time, at)| {
            time.checked_add(at.elapsed()).unwrap_or(time)
        });
        // Columns keep microseconds.
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    /// How far the system's clock is ahead of the database's.
    pub(crate) fn skew(&self) -> SignedDuration {
        Timestamp::now().duration_since(self.now())
    }
}
