//! Gateways.

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use dstack_backend_types::{BackendType, deserialize_by_value};
use serde::Serialize;
use serde_json::Value;

use super::object::config;
use super::references::{Tags, tags};
use super::schema::{parts, scalars};
use super::words::GatewayTag;

config! {
    /// A machine that publishes services under an own domain.
    pub struct GatewayConfiguration {
        /// Always `gateway`.
        #[serde(rename = "type")]
        pub kind: GatewayTag = named("type", default(GatewayTag::Gateway)),
        /// Its name; unset means that the server makes one.
        pub name: Option<String> = optional,
        /// Whether it becomes the project's default. Unset: if there is none; on update: as it was.
        pub default: Option<bool> = optional,
        /// Who makes it.
        pub backend: BackendType = required,
        /// Where.
        pub region: String = required,
        /// The provider's type name; unset means the backend's choice.
        pub instance_type: Option<String> = optional(not_empty, parts::text_of_length(1, 10_000)),
        /// The domain of services; may refer to the project's name.
        pub domain: Option<String> = optional,
        /// Whether it has a public address.
        pub public_ip: bool = default(true),
        /// A load balancer of the provider in front.
        pub load_balancer: Option<LoadBalancer> = optional,
        /// Where certificates come from; null means none.
        pub certificate: Option<Certificate> = default(Some(Certificate::LetsEncrypt {})),
        /// How many machines; unset means 1.
        pub replicas: Option<u32> = optional(super::task::at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Tags for what the provider makes.
        pub tags: Option<Tags> = optional(tags, scalars::tags),
    }
}

fn not_empty(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    match String::from_value(value, cx)? {
        text if text.is_empty() => Err(cx.fail("cannot be empty")),
        text => Ok(text),
    }
}

/// A load balancer of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LoadBalancer {
    /// An application load balancer.
    Alb {},
}

impl FromValue for LoadBalancer {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        obj.tag("type", &["alb"], cx)?;
        obj.finish(cx)?;
        Ok(Self::Alb {})
    }
}

/// Where a gateway's certificates come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Certificate {
    /// Made automatically for each service.
    LetsEncrypt {},
    /// AWS Certificate Manager; implies a load balancer.
    Acm {
        /// The certificate.
        arn: String,
    },
    /// GCP Certificate Manager; needs a load balancer.
    GcpCm {
        /// The certificate map.
        name: String,
    },
}

impl FromValue for Certificate {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let read = match obj.tag("type", &["lets-encrypt", "acm", "gcp-cm"], cx)? {
            "acm" => obj.required("arn", cx).map(|arn| Self::Acm { arn }),
            "gcp-cm" => obj.required("name", cx).map(|name| Self::GcpCm { name }),
            _ => Ok(Self::LetsEncrypt {}),
        };
        obj.finish(cx)?;
        read
    }
}

deserialize_by_value!(LoadBalancer, Certificate);
