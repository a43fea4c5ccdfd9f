//! Work that one server at a time does for all servers of a database. A server that has the database to itself always has
//! its turn.

use std::time::Duration;

use dstack_store::{DbError, turns};
use jiff::SignedDuration;

use super::Context;

/// How long a turn lasts when it is not renewed. What is done in it may happen twice without harm.
const HOLD: SignedDuration = SignedDuration::from_secs(90);
/// When to ask again while another server has its turn.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

/// Takes the turn, or keeps it longer; false while another server has it.
pub(super) async fn take(cx: &Context, name: &'static str) -> Result<bool, DbError> {
    if !cx.store.is_shared() {
        return Ok(true);
    }
    let (me, now) = (cx.replica, cx.now());
    let until = now.saturating_add(HOLD).unwrap_or(now);
    cx.store
        .write(move |tx| turns::take(tx, name, me, now, until))
        .await
}

/// Lets others have their turn.
pub(super) async fn give_back(cx: &Context, name: &'static str) {
    if !cx.store.is_shared() {
        return;
    }
    let me = cx.replica;
    if let Err(error) = cx
        .store
        .write(move |tx| turns::give_back(tx, name, me))
        .await
    {
        tracing::debug!(%error, name, "a turn could not be given back; it runs out");
    }
}
