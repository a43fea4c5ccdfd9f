//! What operations take and give, for our OpenAPI document, where the types themselves have no schema.

#![expect(dead_code, reason = "they are there for their schemas")]

use std::borrow::Cow;

use dstack_api::schema::Time;
use dstack_backend_catalog as catalog;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// One of two answers.
pub(crate) struct Either<A, B>(std::marker::PhantomData<(A, B)>);

impl<A: JsonSchema, B: JsonSchema> JsonSchema for Either<A, B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", A::schema_name(), B::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let cases = [
            generator.subschema_for::<A>(),
            generator.subschema_for::<B>(),
        ];
        json_schema!({"anyOf": cases})
    }
}

/// Defines structs with the fields of others; a field too many or too few does not compile.
macro_rules! mirrors {
    ($(
        $(#[$meta:meta])*
        $name:ident of $real:path { $( $(#[$field_meta:meta])* $field:ident : $type:ty ),+ $(,)? }
    )+) => {$(
        $(#[$meta])*
        #[derive(JsonSchema)]
        pub(super) struct $name { $( $(#[$field_meta])* $field: $type ),+ }

        const _: fn($real) = |$real { $( $field: _ ),+ }| {};
    )+};
}

mirrors! {
    /// What is known of one provider of prices.
    ProviderStatus of catalog::ProviderStatus {
        /// The catalog's word.
        provider: String,
        /// Where the rows in use are from.
        source: Option<String>,
        /// Their publisher's name for the edition.
        version: Option<String>,
        /// How many there are.
        rows: usize,
        /// How many locations they are in.
        locations: usize,
        /// How many rows could not be used.
        bad_rows: usize,
        /// What the publisher says of the time of the prices.
        as_of: Option<String>,
        /// When they were fetched, or their file changed.
        fetched_at: Option<Time>,
        /// When a source last said which edition is the newest.
        checked_at: Option<Time>,
        /// When a source is asked again.
        next_check_at: Option<Time>,
        /// Of the archive.
        sha256: Option<String>,
        /// What went wrong last.
        error: Option<String>,
    }

    /// What a refresh of the prices came to.
    Refreshed of catalog::Refreshed {
        /// Providers with new rows.
        updated: Vec<String>,
        /// Providers whose rows are the newest already.
        unchanged: Vec<String>,
        /// Providers that no published source has.
        absent: Vec<String>,
        /// Providers whose rows of before are still used, and why.
        failed: Vec<(String, String)>,
    }

    /// What is looked for among the prices.
    Search of catalog::Search {
        /// What a row has, by the names of the catalog's filter.
        #[schemars(default)]
        filter: Map<String, Value>,
        /// Only in these locations, in any case; a zone is in its region.
        #[schemars(default)]
        locations: Option<Vec<String>>,
        /// Only these types of machines, in any case.
        #[schemars(default)]
        instance_names: Option<Vec<String>>,
        /// Not these providers.
        #[schemars(default)]
        skip: Vec<String>,
        /// The cheapest ones only.
        #[schemars(default)]
        max_items: Option<usize>,
    }

    /// What was found among the prices.
    Found of catalog::Found {
        /// Rows by price, each with its `provider`.
        items: Vec<Map<String, Value>>,
        /// How many there are without the limit.
        total: usize,
        /// The highest price without the limit.
        max_price: Option<f64>,
        /// Where the rows of each provider that has some are from.
        editions: Vec<ProviderStatus>,
    }
}
