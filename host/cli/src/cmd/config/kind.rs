//! What a file is: by what stands in it, and where that leaves it open, by its name.

use std::path::Path;

use dstack_api::config::SchemaType;
use dstack_api::yaml::{Data, Document, Entry, Node};

/// What the file `name` with this text is. A text that cannot be read is known by its name alone.
pub(super) fn of(name: &Path, text: &str) -> SchemaType {
    let document = Document::parse(text);
    let entries = match document.as_ref().map(|document| &document.root().data) {
        Ok(Data::Map(entries)) => entries.as_slice(),
        _ => &[],
    };
    if let Some(kind) = value(entries, "type") {
        return of_type(kind);
    }
    if value(entries, "profiles").is_some() {
        return SchemaType::Profiles;
    }
    let has = |key: &str| value(entries, key).is_some();
    let server_keys = ["encryption", "default_permissions", "plugins"];
    if server_keys.into_iter().any(has) {
        return SchemaType::ServerConfig;
    }
    match value(entries, "projects") {
        Some(projects) => of_projects(projects).unwrap_or_else(|| of_config_name(name)),
        None if has("repos") && !has("commands") => SchemaType::ClientConfig,
        None => of_name(name),
    }
}

fn value<'n>(entries: &'n [Entry], key: &str) -> Option<&'n Node> {
    let entry = entries.iter().find(|entry| entry.key == key);
    entry.map(|entry| &entry.value)
}

/// The type that a file names; a wrong one is for the parser to report.
fn of_type(node: &Node) -> SchemaType {
    let Data::Text(word) = &node.data else {
        return SchemaType::Configuration;
    };
    let found = SchemaType::ALL
        .iter()
        .copied()
        .find(|of| of.as_str() == word && is_named_by_type(*of));
    found.unwrap_or(SchemaType::Configuration)
}

/// Whether files of this sort say so by their key `type`.
pub(super) fn is_named_by_type(of: SchemaType) -> bool {
    match of {
        SchemaType::Task
        | SchemaType::DevEnvironment
        | SchemaType::Service
        | SchemaType::Fleet
        | SchemaType::Volume
        | SchemaType::Gateway
        | SchemaType::Preset => true,
        SchemaType::Configuration
        | SchemaType::Profiles
        | SchemaType::ServerConfig
        | SchemaType::ClientConfig => false,
    }
}

/// Projects of clients have addresses and tokens, those of servers have backends.
fn of_projects(projects: &Node) -> Option<SchemaType> {
    let Data::List(items) = &projects.data else {
        return None;
    };
    items.iter().find_map(|item| match &item.data {
        Data::Map(entries) if value(entries, "backends").is_some() => {
            Some(SchemaType::ServerConfig)
        }
        Data::Map(entries) => ["url", "token"]
            .iter()
            .any(|key| value(entries, key).is_some())
            .then_some(SchemaType::ClientConfig),
        _ => None,
    })
}

fn of_name(name: &Path) -> SchemaType {
    match name.file_stem().and_then(|stem| stem.to_str()) {
        Some("profiles") => SchemaType::Profiles,
        Some("config") => of_config_name(name),
        _ => SchemaType::Configuration,
    }
}

/// The client's file is `~/.dstack/config.yml`, the server's `~/.dstack/server/config.yml`.
fn of_config_name(name: &Path) -> SchemaType {
    let folder = name.parent().and_then(Path::file_name);
    match folder.and_then(|folder| folder.to_str()) {
        Some(".dstack") => SchemaType::ClientConfig,
        _ => SchemaType::ServerConfig,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::of;

    #[test]
    fn files_are_known_by_what_stands_in_them_and_then_by_their_names() {
        let kind = |name: &str, text: &str| of(Path::new(name), text).as_str();
        assert_eq!(kind("x.yml", "type: task"), "task");
        assert_eq!(
            kind("profiles.yml", "type: dev-environment"),
            "dev-environment"
        );
        assert_eq!(kind("x.yml", "type: profiles"), "configuration");
        assert_eq!(kind("x.yml", "profiles: []"), "profiles");
        let client = "projects: [{name: a, url: u, token: t}]";
        assert_eq!(kind("server/config.yml", client), "client-config");
        let server = "projects: [{name: a, backends: []}]";
        assert_eq!(kind(".dstack/config.yml", server), "server-config");
        let open = "projects: [{name: a}]";
        assert_eq!(kind(".dstack/config.yml", open), "client-config");
        assert_eq!(kind(".dstack/server/config.yml", open), "server-config");
        assert_eq!(kind(".dstack/profiles.yml", "- ["), "profiles");
        assert_eq!(kind(".dstack.yml", "commands: [make]"), "configuration");
        assert_eq!(kind("config.yml", "plugins: []"), "server-config");
    }
}
