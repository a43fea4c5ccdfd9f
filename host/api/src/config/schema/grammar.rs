//! Short forms: ports, mounts, files, repositories, variables, users, references.

use dstack_backend_types::RegistryAuth;
use dstack_backend_types::instances::SshKey;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::object::with_doc;
use super::parts::{self, about, any_of, nullable, text, text_like, whole};
use super::{Described, Object, of};
use crate::config::{
    EntityReference, Env, FileMapping, InstanceSelector, MountPoint, PortMapping, RepoSpec,
};
use crate::jobs::HttpHeader;

/// 1 to 65535.
const PORT: &str =
    "0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";

fn port() -> Schema {
    parts::integer_in(1, 65_535)
}

fn port_mapping(pattern: &str, expected: &str) -> Schema {
    json_schema!({
        "type": ["integer", "string", "object"],
        "minimum": 1,
        "maximum": 65_535,
        "pattern": whole(pattern),
        "patternErrorMessage": format!("expected {expected}"),
        "properties": {
            "local_port": with_doc(nullable(port()), "The port of your machine; default: any free one."),
            "container_port": with_doc(port(), "The port in the container."),
        },
        "required": ["container_port"],
        "additionalProperties": false,
    })
}

impl Described for PortMapping {
    const NAME: Option<&'static str> = Some("Port");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let pattern = format!(r"((\*|{PORT}):)?{PORT}");
        let schema = port_mapping(&pattern, "a port, LOCAL:CONTAINER or *:CONTAINER");
        about(
            schema,
            "A port of the container, `LOCAL:CONTAINER`, or `*:CONTAINER` for any free local port. Put forms with a colon in quotes.",
            json!([8080, "80:8080", "*:8080"]),
        )
    }
}

/// The port of a service.
pub(in crate::config) fn service_port(_: &mut SchemaGenerator) -> Schema {
    let pattern = format!(r"({PORT}:)?{PORT}|\s*\+?{PORT}(\.0+)?\s*");
    let schema = port_mapping(&pattern, "a port from 1 to 65535");
    about(schema, "A port of the container.", json!([8000]))
}

/// A path of the container or the instance, without `..`.
const CLEAN_PATH: &str = "/[^:]*";

fn absolute_path() -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^(?!(.*/)?\.\.(/|$))/",
        "patternErrorMessage": "expected an absolute path without `..`",
    })
}

impl Described for MountPoint {
    const NAME: Option<&'static str> = Some("Mount");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let short = json_schema!({
            "type": "string",
            "pattern": format!(r"^(?!(.*[/:])?\.\.(/|:|$))({CLEAN_PATH}|([^:/~.][^:/]*)?):{CLEAN_PATH}$"),
            "patternErrorMessage": "expected VOLUME:/PATH or /INSTANCE/PATH:/PATH",
        });
        let mut volume = Object::default();
        let names = json_schema!({"type": ["string", "number", "array"], "items": {"type": ["string", "number"]}});
        volume.required(
            "name",
            "A network volume, or several of which the first usable one is taken.",
            names,
        );
        volume.required("path", "Where, in the container.", absolute_path());
        let mut instance = Object::default();
        instance.required(
            "instance_path",
            "A folder of the instance.",
            absolute_path(),
        );
        instance.required("path", "Where, in the container.", absolute_path());
        let switch = parts::switch();
        instance.defaulted(
            "optional",
            "Whether the job goes on where instances have no such thing.",
            switch,
            &false,
        );
        about(
            any_of([short, volume.finish("", ""), instance.finish("", "")]),
            "A network volume (`VOLUME:/PATH`) or a folder of the instance (`/INSTANCE/PATH:/PATH`).",
            json!(["my-volume:/data", "/mnt/cache:/root/.cache"]),
        )
    }
}

impl Described for FileMapping {
    const NAME: Option<&'static str> = Some("FileMapping");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let windows = r"[A-Za-z]:[\\/]";
        let short = text_like(
            &format!("{windows}[^:]*:(?!{windows})[^:]*|(?!{windows})[^:]*(:[^:]*)?"),
            "PATH or LOCAL:CONTAINER",
        );
        let mut long = Object::default();
        long.required(
            "local_path",
            "A file or folder, relative to the configuration file.",
            text(),
        );
        let unix =
            json_schema!({"type": ["string", "number"], "pattern": format!("^(?!{windows})")});
        long.required("path", "Where, in the container.", unix);
        about(
            any_of([short, long.finish("", "")]),
            "A local file or folder: `PATH`, or `LOCAL:CONTAINER`.",
            json!(["config.json", "~/.ssh/config:~/.ssh/config"]),
        )
    }
}

/// The list of repositories.
pub(in crate::config) fn repos(generator: &mut SchemaGenerator) -> Schema {
    let target = "(?!~[^/:])[^:]*";
    let short = text_like(
        &format!(
            r"([^:]*@[^:]*:[^:]*|[^:]*:(?=//)[^:]*|[A-Za-z]:[\\/][^:]*|[^:@]+|[^:]+)(:{target})?"
        ),
        "a local path or a URL, each with :CONTAINER_PATH if wanted",
    );
    let item = any_of([short, of::<RepoSpec>(generator)]);
    json_schema!({"type": "array", "items": item, "maxItems": 1})
}

impl Described for Env {
    const NAME: Option<&'static str> = Some("Env");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let item = text_like(
            r"[a-zA-Z_][a-zA-Z0-9_]*(=[\s\S]*)?",
            "NAME=VALUE, or NAME to take the value from your environment",
        );
        let list = json_schema!({"type": "array", "items": item});
        let mapping = json_schema!({
            "type": "object",
            "additionalProperties": {
                "type": ["string", "number", "object"],
                "properties": {"key": {"type": "string"}},
                "required": ["key"],
                "additionalProperties": false,
            },
        });
        about(
            any_of([list, mapping]),
            "A list of `NAME=VALUE` and `NAME` (taken from your environment), or a mapping.",
            json!([["HF_TOKEN", "LEVEL=3"], {"LEVEL": "3"}]),
        )
    }
}

/// `user[:group]`.
pub(in crate::config) fn user(_: &mut SchemaGenerator) -> Schema {
    let schema = json_schema!({
        "type": ["string", "number"],
        "minimum": 0,
        "pattern": whole("(?!-[0-9]+(:|$))[^:]+(:(?!-[0-9]+$)[^:]+)?"),
        "patternErrorMessage": "expected user or user:group, each a name or a number",
    });
    about(
        schema,
        "`user` or `user:group`, each a name or a number.",
        json!(["ubuntu", "1000:1000"]),
    )
}

impl Described for RegistryAuth {
    const NAME: Option<&'static str> = Some("RegistryAuth");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let mut object = Object::default();
        object.required(
            "username",
            "User; may refer to `${{ env.NAME }}` and `${{ secrets.NAME }}`.",
            text(),
        );
        object.required(
            "password",
            "Password or token; better `${{ secrets.NAME }}` than the text.",
            text(),
        );
        object.finish("RegistryAuth", "Login for the registry of the image.")
    }
}

impl Described for SshKey {
    const NAME: Option<&'static str> = Some("SshKey");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "public": {"type": "string", "description": "As in `authorized_keys`."},
                "private": {"type": ["string", "null"], "description": "PEM; secret."},
            },
            "required": ["public"],
        })
    }
}

impl Described for HttpHeader {
    const NAME: Option<&'static str> = Some("HttpHeader");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let mut object = Object::default();
        object.required(
            "name",
            "Its name.",
            parts::text_of_length(1, 256)(generator),
        );
        object.required(
            "value",
            "Its value.",
            parts::text_of_length(1, 2048)(generator),
        );
        object.finish("HttpHeader", "A header of a request.")
    }
}

impl Described for EntityReference {
    const NAME: Option<&'static str> = Some("Reference");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let schema = json_schema!({
            "type": ["string", "number", "object"],
            "pattern": whole("([^/]+/)?[^/]+"),
            "patternErrorMessage": "expected NAME or PROJECT/NAME",
            "properties": {
                "project": with_doc(nullable(text()), "Its project; default: the one in use."),
                "name": with_doc(text(), "Its name."),
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        about(
            schema,
            "`NAME`, or `PROJECT/NAME` for one of another project.",
            json!(["my-fleet", "team/shared"]),
        )
    }
}

impl Described for InstanceSelector {
    const NAME: Option<&'static str> = Some("InstanceSelector");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let filled = || json_schema!({"type": ["string", "number"], "minLength": 1});
        let (mut name, mut host, mut number) =
            (Object::default(), Object::default(), Object::default());
        name.required("name", "Its name.", filled());
        host.required("hostname", "Its host name or address.", filled());
        number.required("fleet", "Its fleet.", of::<EntityReference>(generator));
        number.required("instance", "Its number in the fleet.", of::<u32>(generator));
        about(
            any_of([
                filled(),
                name.finish("", ""),
                host.finish("", ""),
                number.finish("", ""),
            ]),
            "An existing instance: its name, or its name, host name, or fleet and number as a mapping.",
            json!(["my-fleet-0", {"fleet": "my-fleet", "instance": 0}]),
        )
    }
}

/// Existing instances, at least one.
pub(in crate::config) fn instances(generator: &mut SchemaGenerator) -> Schema {
    let items = of::<InstanceSelector>(generator);
    json_schema!({"type": "array", "items": items, "minItems": 1})
}
