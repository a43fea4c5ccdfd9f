//! Which call this thread works for.

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// A call of the host into this backend. Host services belong to the call of the thread that asks.
///
/// A backend that starts threads of its own, say to ask all regions at once, takes the call along:
///
/// ```
/// use dstack_backend_sdk::Call;
/// let call = Call::current();
/// std::thread::scope(|threads| {
///     for region in ["north", "south"] {
///         threads.spawn(move || {
///             let _entered = call.enter();
///             // host services work here, and end when the call is told to end
///             let _ = region;
///         });
///     }
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call(u64);

impl Call {
    /// The call of this thread; outside of one, a call for which waiting services are refused.
    pub fn current() -> Self {
        Self(CURRENT.get())
    }

    /// Its number, 0 outside of a call.
    pub fn id(self) -> u64 {
        self.0
    }

    /// Makes this thread work for the call, until the guard is dropped.
    #[must_use]
    pub fn enter(self) -> Entered {
        Entered {
            before: CURRENT.replace(self.0),
            of_this_thread: PhantomData,
        }
    }

    pub(crate) fn new(id: u64) -> Self {
        Self(id)
    }
}

/// Undoes [`Call::enter`] when dropped.
#[derive(Debug)]
pub struct Entered {
    before: u64,
    /// Must be dropped on the thread that it changed.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::Call;

    #[test]
    fn entering_nests_and_stays_on_its_thread() {
        assert_eq!(Call::current().id(), 0);
        let outer = Call::new(7).enter();
        let inner = Call::new(8).enter();
        assert_eq!(Call::current().id(), 8);
        drop(inner);
        let call = Call::current();
        assert_eq!(call.id(), 7);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                assert_eq!(Call::current().id(), 0);
                let _entered = call.enter();
                assert_eq!(Call::current().id(), 7);
            });
        });
        drop(outer);
        assert_eq!(Call::current().id(), 0);
    }
}
