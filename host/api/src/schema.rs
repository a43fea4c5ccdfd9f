//! JSON Schemas of what the API takes and gives, for its OpenAPI document.
//!
//! Types of this crate derive theirs. Types of plugins' border have none, so that no plugin carries any: [`border`] has
//! mirrors of them, which name the same fields or do not compile. Configurations have theirs from their own declarations.

pub mod border;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

pub use border::{
    BackendType, GpuDriverInfo, InstanceOfferWithAvailability, InstanceType, JobProvisioningData,
    JobRuntimeData, RegistryAuth, Requirements, ResourcesSpec, VolumeAttachmentData,
    VolumeProvisioningData,
};

/// A time as [`crate::time`] writes it.
#[derive(Debug, Clone, Copy)]
pub struct Time;

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// An id.
#[derive(Debug, Clone, Copy)]
pub struct Id;

impl JsonSchema for Id {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "uuid"})
    }
}
