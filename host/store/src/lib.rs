//! SQL: schema, migrations, queries, leases.
