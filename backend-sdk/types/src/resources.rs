//! What a job asks of a machine: CPUs, memory, GPUs, disk, with the short forms of configurations.
//!
//! | short form | means |
//! |---|---|
//! | `cpu: arm:4..` | ARM, four or more |
//! | `memory: 16GB..` | 16 GB or more |
//! | `gpu: H100:80GB:8` | eight H100 with 80 GB each |
//! | `disk: 200GB` | exactly 200 GB |
//!
//! Both forms are read everywhere; only the canonical form is written.

mod cpu;
mod gpu;
mod size;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

pub use cpu::CpuSpec;
pub use gpu::{ComputeCapability, GpuSpec};
pub use size::{Bound, Memory, Range};

use crate::deserialize_by_value;
use crate::reading::{Failed, FromValue, Reader};

/// What is asked of a machine's disk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskSpec {
    /// Its size, GB.
    pub size: Range<Memory>,
}

impl DiskSpec {
    /// This size or more, GB.
    pub fn at_least(gb: f64) -> Self {
        Self {
            size: Range::at_least(Memory(gb)),
        }
    }
}

impl FromValue for DiskSpec {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if !value.is_object() {
            return Range::from_value(value, cx).map(|size| Self { size });
        }
        let mut obj = cx.object(value)?;
        if obj.has("min") || obj.has("max") {
            return Range::from_object(obj, cx).map(|size| Self { size });
        }
        let size = obj.required("size", cx);
        obj.finish(cx)?;
        Ok(Self { size: size? })
    }
}

/// What a job asks of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourcesSpec {
    /// CPUs; `2..` by default.
    pub cpu: CpuSpec,
    /// Main memory, GB; `8GB..` by default.
    pub memory: Range<Memory>,
    /// Shared memory of the container, GB; absent leaves the container engine's default.
    pub shm_size: Option<Memory>,
    /// GPUs; by default a count of `0..`, null is filled in by the server.
    pub gpu: Option<GpuSpec>,
    /// Disk, GB; `100GB..` by default, null asks for nothing.
    pub disk: Option<DiskSpec>,
}

impl Default for ResourcesSpec {
    fn default() -> Self {
        Self {
            cpu: CpuSpec::default(),
            memory: Range::at_least(Memory(8.0)),
            shm_size: None,
            gpu: Some(GpuSpec::unasked()),
            disk: Some(DiskSpec::at_least(100.0)),
        }
    }
}

impl ResourcesSpec {
    /// What a fleet asks for that names no resources: anything with a CPU.
    pub fn unconstrained() -> Self {
        Self {
            cpu: CpuSpec {
                arch: None,
                count: Range::at_least(1),
            },
            memory: Range::at_least(Memory(0.0)),
            shm_size: None,
            gpu: Some(GpuSpec::unasked()),
            disk: None,
        }
    }
}

impl FromValue for ResourcesSpec {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let default = Self::default();
        let mut obj = cx.object(value)?;
        let cpu = obj.defaulted("cpu", cx, || default.cpu);
        let memory = obj.defaulted("memory", cx, || default.memory);
        let shm_size = obj.optional("shm_size", cx);
        let gpu = obj.defaulted("gpu", cx, || default.gpu);
        let disk = obj.defaulted("disk", cx, || default.disk);
        obj.finish(cx)?;
        Ok(Self {
            cpu: cpu?,
            memory: memory?,
            shm_size: shm_size?,
            gpu: gpu?,
            disk: disk?,
        })
    }
}

impl fmt::Display for ResourcesSpec {
    /// One line for tables: `cpu=2.. mem=8GB.. disk=100GB.. H100:80GB:8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu={} mem={}", self.cpu, self.memory)?;
        if let Some(disk) = &self.disk {
            write!(f, " disk={}", disk.size)?;
        }
        match &self.gpu {
            Some(gpu) if gpu.count.max != Some(0) => write!(f, " gpu={gpu}"),
            _ => Ok(()),
        }
    }
}

deserialize_by_value!(DiskSpec, ResourcesSpec);
