//! Where offers come from.
//!
//! **Offline**: prices that change seldom. The catalog that the server keeps comes first, else the file beside this one.
//! **Online**: prices and availability of this very moment. Ask the API in `all` and return `offers::from_rows`, a row and its
//! availability each; an error of the API leaves this backend out and harms no other.

use dstack_backend_sdk::offers::{Csv, FirstOf, HostCatalog, from_items};
use dstack_backend_sdk::prelude::*;

// FILL-IN: rows of `offers.csv`, or an online provider in its place.
const ROWS: Csv = Csv(include_str!("offers.csv"));

/// All offers of these regions, whether they fit or not.
pub(crate) fn all(
    hint: &Requirements,
    regions: &[String],
) -> Result<Vec<InstanceOfferWithAvailability>> {
    let items = FirstOf(HostCatalog::new("__name__"), ROWS).items(hint)?;
    //? vm
    Ok(from_items("__name__", items, regions))
    //? container
    let mut offers = from_items("__name__", items, regions);
    for offer in &mut offers {
        offer.instance_runtime = InstanceRuntime::Runner;
    }
    Ok(offers)
    //?
}
