//! Exports and imports: what projects lend to each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A fleet or gateway of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportedResource {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name in the project that lends it.
    pub name: String,
}

/// A project that imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportImport {
    /// Its name.
    pub project_name: String,
}

/// An export as the project that lends sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Export {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name, unique in the project.
    pub name: String,
    /// Whether every project imports it.
    #[serde(default)]
    pub is_global: bool,
    /// Who imports it.
    pub imports: Vec<ExportImport>,
    /// Fleets of it.
    pub exported_fleets: Vec<ExportedResource>,
    /// Gateways of it.
    #[serde(default)]
    pub exported_gateways: Vec<ExportedResource>,
}

/// An export as a project that borrows sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportExport {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// The project that lends.
    pub project_name: String,
    /// Fleets of it.
    pub exported_fleets: Vec<ExportedResource>,
    /// Gateways of it.
    #[serde(default)]
    pub exported_gateways: Vec<ExportedResource>,
}

/// An import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Import {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// What is imported.
    pub export: ImportExport,
}

/// Answer of `exports/list`; clients below 0.22 get the bare list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListExportsResponse {
    /// Oldest first.
    pub exports: Vec<Export>,
    /// What the user should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Answer of `imports/list`; clients below 0.22 get the bare list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListImportsResponse {
    /// Oldest first.
    pub imports: Vec<Import>,
    /// What the user should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// `POST /api/project/{project}/exports/create`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CreateExportRequest {
    /// Name, unique in the project.
    pub name: String,
    /// Every project imports it, also those made later.
    #[serde(default)]
    pub is_global: bool,
    /// Projects that import it.
    #[serde(default)]
    pub importer_projects: Vec<String>,
    /// Names of fleets.
    #[serde(default)]
    pub exported_fleets: Vec<String>,
    /// Names of gateways.
    #[serde(default)]
    pub exported_gateways: Vec<String>,
}

/// `POST /api/project/{project}/exports/update`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UpdateExportRequest {
    /// Which.
    pub name: String,
    /// From now on every project imports it.
    #[serde(default)]
    pub set_global: bool,
    /// New projects no longer import it; those that do, go on.
    #[serde(default)]
    pub unset_global: bool,
    /// Projects that begin to import it.
    #[serde(default)]
    pub add_importer_projects: Vec<String>,
    /// Projects that end to import it.
    #[serde(default)]
    pub remove_importer_projects: Vec<String>,
    /// Fleets that come.
    #[serde(default)]
    pub add_exported_fleets: Vec<String>,
    /// Fleets that go.
    #[serde(default)]
    pub remove_exported_fleets: Vec<String>,
    /// Gateways that come.
    #[serde(default)]
    pub add_exported_gateways: Vec<String>,
    /// Gateways that go.
    #[serde(default)]
    pub remove_exported_gateways: Vec<String>,
}

/// `POST /api/project/{project}/exports/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteExportRequest {
    /// Which.
    pub name: String,
}

/// `POST /api/project/{project}/imports/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteImportRequest {
    /// Name of the export.
    pub export_name: String,
    /// Project that lends.
    pub export_project_name: String,
}
