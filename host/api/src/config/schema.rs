//! JSON Schemas of the configuration files, made from the types, for editors and other tools.
//!
//! A schema accepts what the parser accepts and refuses what a schema can refuse; rules that compare values with each
//! other are left to the parser. Draft 7, which every YAML language server understands.

pub(super) mod choices;
pub(super) mod grammar;
mod object;
pub(super) mod parts;
mod resources;
pub(super) mod rules;
pub(super) mod scalars;

use std::borrow::Cow;
use std::marker::PhantomData;

use dstack_backend_types::words;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

pub(super) use object::{Keys, Object};

use super::{
    ClientConfig, DevEnvironmentConfiguration, FleetConfiguration, GatewayConfiguration,
    PresetConfiguration, ProfilesConfig, ServerConfig, ServiceConfiguration, TaskConfiguration,
    VolumeConfiguration,
};

/// A type that says what its values look like in a file.
pub(crate) trait Described {
    /// The name under which other schemas refer to it; none for what is written where it is used.
    const NAME: Option<&'static str> = None;

    /// Its schema, with references to those of other types.
    fn describe(generator: &mut SchemaGenerator) -> Schema;
}

/// The schema of a type as it is used in another one.
pub(super) fn of<T: Described>(generator: &mut SchemaGenerator) -> Schema {
    if T::NAME.is_some() {
        generator.subschema_for::<Definition<T>>()
    } else {
        T::describe(generator)
    }
}

/// A [`Described`] type for the generator; some of the types are of other crates.
struct Definition<T>(PhantomData<T>);

impl<T: Described> JsonSchema for Definition<T> {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed(T::NAME.unwrap_or("Value"))
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::describe(generator)
    }
}

/// Configurations as parts of what the API takes and gives.
macro_rules! json_schema_by_description {
    ($($type:ident),+ $(,)?) => {$(
        impl JsonSchema for super::$type {
            fn inline_schema() -> bool {
                <Self as Described>::NAME.is_none()
            }

            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed(<Self as Described>::NAME.unwrap_or(stringify!($type)))
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <Self as Described>::describe(generator)
            }
        }
    )+};
}

json_schema_by_description!(
    FleetConfiguration,
    GatewayConfiguration,
    MountPoint,
    Profile,
    RunConfiguration,
    UtilizationPolicy,
    VolumeConfiguration,
);

impl Described for super::RunConfiguration {
    const NAME: Option<&'static str> = Some("RunConfiguration");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let cases = [
            of::<TaskConfiguration>(generator),
            of::<ServiceConfiguration>(generator),
            of::<DevEnvironmentConfiguration>(generator),
        ];
        json_schema!({
            "description": "A task, service or dev environment, by `type`.",
            "oneOf": cases,
        })
    }
}

words! {
    /// A file, or a part of one, that has a schema.
    pub enum SchemaType {
        /// Any configuration that `apply` takes.
        Configuration = "configuration",
        /// A task.
        Task = "task",
        /// A dev environment.
        DevEnvironment = "dev-environment",
        /// A service.
        Service = "service",
        /// A fleet.
        Fleet = "fleet",
        /// A volume.
        Volume = "volume",
        /// A gateway.
        Gateway = "gateway",
        /// A preset.
        Preset = "preset",
        /// `.dstack/profiles.yml`.
        Profiles = "profiles",
        /// The server's `config.yml`.
        ServerConfig = "server-config",
        /// The client's `~/.dstack/config.yml`.
        ClientConfig = "client-config",
    }
}

/// The JSON Schema of a file, draft 7.
pub fn json_schema(of: SchemaType) -> Value {
    let schema = match of {
        SchemaType::Configuration => root::<Union>(),
        SchemaType::Task => root::<TaskConfiguration>(),
        SchemaType::DevEnvironment => root::<DevEnvironmentConfiguration>(),
        SchemaType::Service => root::<ServiceConfiguration>(),
        SchemaType::Fleet => root::<FleetConfiguration>(),
        SchemaType::Volume => root::<VolumeConfiguration>(),
        SchemaType::Gateway => root::<GatewayConfiguration>(),
        SchemaType::Preset => root::<PresetConfiguration>(),
        SchemaType::Profiles => root::<ProfilesConfig>(),
        SchemaType::ServerConfig => root::<ServerConfig>(),
        SchemaType::ClientConfig => root::<ClientConfig>(),
    };
    let mut value = schema.to_value();
    // Inside of a fleet's own type `type` may be left out; a file needs it.
    let is_typed = matches!(
        of,
        SchemaType::Fleet | SchemaType::Volume | SchemaType::Gateway | SchemaType::Preset
    );
    if is_typed {
        object::require(&mut value, "type");
    }
    value
}

fn root<T: Described>() -> Schema {
    SchemaSettings::draft07()
        .into_generator()
        .into_root_schema_for::<Definition<T>>()
}

/// Any configuration that `apply` takes.
struct Union;

impl Described for Union {
    const NAME: Option<&'static str> = Some("Configuration");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let cases = [
            ("task", of::<TaskConfiguration>(generator)),
            ("service", of::<ServiceConfiguration>(generator)),
            (
                "dev-environment",
                of::<DevEnvironmentConfiguration>(generator),
            ),
            ("fleet", of::<FleetConfiguration>(generator)),
            ("volume", of::<VolumeConfiguration>(generator)),
            ("gateway", of::<GatewayConfiguration>(generator)),
            ("preset", of::<PresetConfiguration>(generator)),
        ];
        let mut schema = object::switched("type", "What the file describes.", cases);
        schema.insert("title".to_owned(), json!("Configuration"));
        let about = "A task, service, dev environment, fleet, volume, gateway or preset.";
        schema.insert("description".to_owned(), json!(about));
        schema
    }
}

impl<T: Described> Described for Option<T> {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        parts::nullable(of::<T>(generator))
    }
}

impl<T: Described> Described for Box<T> {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        of::<T>(generator)
    }
}

impl<T: Described> Described for Vec<T> {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let items = of::<T>(generator);
        json_schema!({"type": "array", "items": items})
    }
}
