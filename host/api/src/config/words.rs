//! The words of configurations.

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use dstack_backend_types::words;
use serde_json::Value;

use crate::jobs::{HttpMethod, ProbeType, RepoExistsAction, RetryEvent};

/// Words that configurations share with jobs.
macro_rules! words_of_jobs {
    ($($name:ty),+) => {$(
        impl FromValue for $name {
            fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
                let words: Vec<_> = Self::ALL.iter().map(|word| word.as_str()).collect();
                let word = cx.word(value, &words)?;
                word.parse().map_err(|_| cx.fail("unknown word"))
            }
        }
    )+};
}
words_of_jobs!(HttpMethod, ProbeType, RepoExistsAction, RetryEvent);

words! {
    /// Which price model to use; unset means on-demand.
    pub enum SpotPolicy {
        /// Only interruptible machines.
        Spot = "spot",
        /// Only regular machines.
        OnDemand = "on-demand",
        /// Both.
        Auto = "auto",
    }
}
words! {
    /// Whether a run may make machines; unset means it may.
    pub enum CreationPolicy {
        /// Only existing instances.
        Reuse = "reuse",
        /// Existing instances first, then new ones.
        ReuseOrCreate = "reuse-or-create",
    }
}
words! {
    /// The order in which the nodes of a task start their commands; unset means any.
    pub enum StartupOrder {
        /// As they become ready.
        Any = "any",
        /// Node 0 first.
        MasterFirst = "master-first",
        /// Node 0 last.
        WorkersFirst = "workers-first",
    }
}
words! {
    /// When a task of several nodes is done; unset means all of them.
    pub enum StopCriteria {
        /// All nodes are done.
        AllDone = "all-done",
        /// Node 0 is done.
        MasterDone = "master-done",
    }
}
words! {
    /// How the instances of a fleet lie to each other.
    pub enum Placement {
        /// Anywhere.
        Any = "any",
        /// Close together, with the best network.
        Cluster = "cluster",
    }
}
words! {
    /// A Python minor version that default images can set up.
    pub enum PythonVersion {
        /// 3.9
        Py39 = "3.9",
        /// 3.10
        Py310 = "3.10",
        /// 3.11
        Py311 = "3.11",
        /// 3.12
        Py312 = "3.12",
        /// 3.13
        Py313 = "3.13",
        /// 3.14
        Py314 = "3.14",
        /// 3.15
        Py315 = "3.15",
    }
}
words! {
    /// An editor a dev environment is prepared for.
    pub enum Ide {
        /// Visual Studio Code.
        Vscode = "vscode",
        /// Cursor.
        Cursor = "cursor",
        /// Windsurf.
        Windsurf = "windsurf",
        /// Zed.
        Zed = "zed",
    }
}
words! {
    /// What scaling watches.
    pub enum ScalingMetric {
        /// Requests a second for each replica.
        Rps = "rps",
    }
}
words! {
    /// How offers of Vast.ai are sorted; unset means by score.
    pub enum VastAiOfferOrder {
        /// Best score first.
        Score = "score",
        /// Cheapest first.
        Price = "price",
    }
}
words! {
    /// The name of the backend that has options of its own.
    pub enum VastAi {
        /// Vast.ai.
        VastAi = "vastai",
    }
}
words! {
    /// The `type` of a fleet.
    pub enum FleetTag {
        /// Always this.
        Fleet = "fleet",
    }
}
words! {
    /// The `type` of a gateway.
    pub enum GatewayTag {
        /// Always this.
        Gateway = "gateway",
    }
}
words! {
    /// The `type` of a preset.
    pub enum PresetTag {
        /// Always this.
        Preset = "preset",
    }
}
words! {
    /// The `type` of a volume.
    pub enum VolumeTag {
        /// Always this.
        Volume = "volume",
    }
}
words! {
    /// Where the code of a backend's plugin runs; unset leaves it to the lock file beside the plugin.
    pub enum PluginIsolation {
        /// Inside the server: a crash of the plugin is a crash of the server.
        InProcess = "in_process",
        /// In a child process of the server.
        Process = "process",
    }
}
