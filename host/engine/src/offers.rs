//! Offers: merging the lists of several backends, filtering, sharing, ranking.
//!
//! Whether a machine satisfies needs, and how it is cut into blocks, is decided by
//! [`matching`](dstack_backend_types::matching), which backends use, too.

use std::collections::VecDeque;

use dstack_backend_types::matching::{matches, smallest_share, total_blocks};
use dstack_backend_types::{InstanceOfferWithAvailability as Offer, Requirements};

use crate::combine::Wanted;

pub use dstack_backend_types::matching::{Blocks as Sharing, share_of};

/// How many of the machine's `total` blocks satisfy the needs at least; with `whole` only all of them will do.
/// `offer` is the whole machine, `free` the blocks that nobody has.
pub fn fit(
    offer: &Offer,
    total: u32,
    free: u32,
    requirements: &Requirements,
    whole: bool,
) -> Option<u32> {
    if whole || total == 1 {
        return (free >= total && matches(offer, requirements)).then_some(total);
    }
    smallest_share(offer, total, free, requirements).map(|share| share.blocks)
}

/// Merges lists by price without changing the order within a list: a backend may have reasons for its own order.
/// Equal prices: the earlier list first.
pub fn merge(lists: Vec<Vec<Offer>>) -> Vec<Offer> {
    let mut lists: Vec<VecDeque<Offer>> = lists.into_iter().map(VecDeque::from).collect();
    let mut out = Vec::with_capacity(lists.iter().map(VecDeque::len).sum());
    loop {
        let mut best: Option<(usize, f64)> = None;
        for (at, list) in lists.iter().enumerate() {
            if let Some(head) = list.front()
                && best.is_none_or(|(_, price)| head.price < price)
            {
                best = Some((at, head.price));
            }
        }
        match best
            .and_then(|(at, _)| lists.get_mut(at))
            .and_then(VecDeque::pop_front)
        {
            Some(offer) => out.push(offer),
            None => return out,
        }
    }
}

/// Turns what the backends answered into what a fleet can use for a need: filtered by the profile, divided into
/// blocks, cut to `limit`, and with what cannot be had now at the end.
///
/// The offers stay whole machines; `blocks` says how many of `total_blocks` the need takes.
/// [`share_of`] makes the part that is shown to people.
pub fn select(
    lists: Vec<Vec<Offer>>,
    wanted: &Wanted,
    sharing: Sharing,
    limit: usize,
) -> Vec<Offer> {
    let mut offers: Vec<Offer> = merge(lists)
        .into_iter()
        .filter_map(|offer| wanted.narrow(offer))
        .filter_map(|mut offer| {
            let total = total_blocks(&offer.instance.resources, sharing)?;
            offer.blocks = fit(&offer, total, total, &wanted.requirements, wanted.whole)?;
            offer.total_blocks = total;
            Some(offer)
        })
        .take(limit)
        .collect();
    offers.sort_by_key(|offer| !offer.availability.is_available());
    offers
}
