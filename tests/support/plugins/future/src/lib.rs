//! A plugin of today's SDK to which a later version has added fields, a method, a capability, an error kind and a manifest key.
//! Hosts of today and of the past must work with it.

mod backend;
mod later;
