//! The words of configurations.

use dstack_backend_types::words;

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
    /// What a retry reacts to.
    pub enum RetryEvent {
        /// No machine could be had.
        NoCapacity = "no-capacity",
        /// The machine was taken away.
        Interruption = "interruption",
        /// The job failed.
        Error = "error",
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
    /// What to do when the target folder of a repository is not empty.
    pub enum RepoExistsAction {
        /// End the job.
        Error = "error",
        /// Leave the folder as it is.
        Skip = "skip",
    }
}
words! {
    /// An HTTP method of a probe.
    pub enum ProbeMethod {
        /// GET
        Get = "get",
        /// POST
        Post = "post",
        /// PUT
        Put = "put",
        /// DELETE
        Delete = "delete",
        /// PATCH
        Patch = "patch",
        /// HEAD
        Head = "head",
    }
}
words! {
    /// The only kind of probe.
    pub enum ProbeKind {
        /// An HTTP request.
        Http = "http",
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
