//! The folder that is the cloud. Several processes may use it at once: every change holds a file lock.

use crate::config::Knobs;
use dstack_backend_sdk::{BackendError, host, types::InstanceConfiguration};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
};

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `fake-<number>`.
    pub id: String,
    /// What the host called it.
    pub name: String,
    /// Whose call made it.
    pub provider_ref: Option<String>,
    /// Its type.
    pub instance_type: String,
    /// Where.
    pub region: String,
    /// Microseconds since 1970, UTC.
    pub created_at_us: i64,
    /// How often its address was asked for.
    pub looks: u32,
    /// How often it was told to end.
    pub terminations: u32,
}

/// The folder.
#[derive(Debug)]
pub struct Cloud {
    pub(crate) folder: PathBuf,
}

pub(crate) fn failed(error: impl std::fmt::Display) -> BackendError {
    BackendError::internal(format!("the fake cloud's folder: {error}"))
}

impl Cloud {
    /// The cloud in `folder`, made at the first change.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, BackendError> {
        match fs::read(self.folder.join(name)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    pub(crate) fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), BackendError> {
        let path = self.folder.join(name);
        let temporary = path.with_extension("tmp");
        fs::write(&temporary, serde_json::to_vec(value).map_err(failed)?).map_err(failed)?;
        fs::rename(temporary, path).map_err(failed)
    }

    /// Released when dropped.
    pub(crate) fn lock(&self) -> Result<File, BackendError> {
        for part in ["machines", "volumes"] {
            fs::create_dir_all(self.folder.join(part)).map_err(failed)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("lock"))
            .map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(file)
    }

    pub(crate) fn note(&self, what: Value) -> Result<(), BackendError> {
        let mut journal = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("journal.jsonl"))
            .map_err(failed)?;
        writeln!(journal, "{what}").map_err(failed)
    }

    /// How the cloud behaves now.
    pub(crate) fn knobs(&self) -> Result<Knobs, BackendError> {
        Ok(self.read("knobs.json")?.unwrap_or_default())
    }

    /// All machines, by id.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn machines(&self) -> Result<Vec<Machine>, BackendError> {
        let entries = match fs::read_dir(self.folder.join("machines")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut machines = Vec::new();
        for entry in entries {
            let name = entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned();
            if name.ends_with(".json") {
                machines.extend(self.read::<Machine>(&format!("machines/{name}"))?);
            }
        }
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(machines)
    }

    /// One machine.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn machine(&self, id: &str) -> Result<Option<Machine>, BackendError> {
        self.read(&format!("machines/{id}.json"))
    }

    pub(crate) fn create(
        &self,
        config: &InstanceConfiguration,
        instance_type: &str,
        region: &str,
    ) -> Result<Machine, BackendError> {
        let _lock = self.lock()?;
        let known = self
            .machines()?
            .into_iter()
            .find(|m| m.provider_ref.is_some() && m.provider_ref == config.provider_ref);
        if let Some(machine) = known {
            return Ok(machine);
        }
        let number = self.read::<u64>("next.json")?.unwrap_or(1);
        self.write("next.json", &(number + 1))?;
        let machine = Machine {
            id: format!("fake-{number:06}"),
            name: config.instance_name.clone(),
            provider_ref: config.provider_ref.clone(),
            instance_type: instance_type.to_owned(),
            region: region.to_owned(),
            created_at_us: host::now().as_microsecond(),
            looks: 0,
            terminations: 0,
        };
        self.write(&format!("machines/{}.json", machine.id), &machine)?;
        self.note(
            json!({"did": "create", "id": machine.id, "provider_ref": machine.provider_ref}),
        )?;
        Ok(machine)
    }

    fn change(
        &self,
        id: &str,
        change: impl FnOnce(&mut Machine),
    ) -> Result<Option<Machine>, BackendError> {
        let _lock = self.lock()?;
        let Some(mut machine) = self.machine(id)? else {
            return Ok(None);
        };
        change(&mut machine);
        self.write(&format!("machines/{id}.json"), &machine)?;
        Ok(Some(machine))
    }

    pub(crate) fn count_look(&self, id: &str) -> Result<Option<Machine>, BackendError> {
        self.change(id, |machine| machine.looks += 1)
    }

    pub(crate) fn count_termination(&self, id: &str) -> Result<(), BackendError> {
        self.change(id, |machine| machine.terminations += 1)
            .map(|_| ())
    }

    pub(crate) fn delete(&self, id: &str) -> Result<(), BackendError> {
        let _lock = self.lock()?;
        match fs::remove_file(self.folder.join(format!("machines/{id}.json"))) {
            Ok(()) => self.note(json!({"did": "delete", "id": id})),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether this answer is to be lost: the first `total` are.
    pub(crate) fn lose_answer(&self, total: u32) -> Result<bool, BackendError> {
        let _lock = self.lock()?;
        let lost = self.read::<u32>("lost.json")?.unwrap_or(0);
        if lost >= total {
            return Ok(false);
        }
        self.write("lost.json", &(lost + 1))?;
        Ok(true)
    }
}
