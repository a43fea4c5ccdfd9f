//! The modes, the backend, and its export.

use crate::acts;
use dstack_backend_sdk::{
    Backend, BackendError, Call, Compute, Configurator, ErrorKind, host, schemars,
    types::methods::{
        Done, GetOffersReply, GetOffersRequest, HealthReply, HealthRequest, RunJobReply,
        RunJobRequest, TerminateInstanceRequest,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// What `health` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Answers.
    Good,
    /// Refuses its configuration.
    RefuseConfig,
    /// Panics.
    Panic,
    /// Panics with a payload whose drop panics too.
    PanicPayload,
    /// Waits for the host for an hour.
    Sleep,
    /// Waits for the host again and again, whatever it says, up to three times.
    IgnoreCancel,
    /// Blocks without the host until the file `release` exists.
    Block,
    /// Computes without end until the file `release` exists.
    Busy,
    /// Computes without end, whatever exists.
    Endless,
    /// Answers how often it was computed, from the cache.
    Cached,
    /// Waits in four threads at once.
    Threads,
    /// Answers what the host says about itself and some random bytes.
    Services,
    /// Asks for this machine, which is not its right.
    Machine,
    /// Logs, with a field.
    Log,
    /// Emits from a method that does not stream.
    Emit,
    /// Writes to address 0.
    NullWrite,
    /// Aborts.
    Abort,
    /// Exits with code 3, as if all were well.
    Exit,
    /// Calls itself without end.
    StackOverflow,
    /// Takes memory without end.
    AllocationBomb,
    /// Takes two hundred naps before it answers.
    SlowDrip,
    /// Leaves threads that run on.
    ThreadsLeft,
    /// Prints ten thousand lines, and one without an end.
    StdoutNoise,
    /// Writes nonsense into every descriptor that is open.
    Babble,
    /// Starts a child that sleeps for an hour, then aborts.
    ChildLeft,
    /// Answers its process id.
    ProcessId,
    /// Answers how many bytes its process may take, how many files it may open, and the variables of the host that it sees.
    Confinement,
}

/// `{type: misbehaving, mode: panic}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// What `health` does.
    pub mode: Mode,
    /// Folder of the file `release`.
    #[serde(default)]
    pub folder: PathBuf,
}

/// Accepts all.
#[derive(Debug, Default)]
pub struct Any;

impl Configurator for Any {
    type Config = Config;
    fn check(&self, _config: &Config) -> Result<(), BackendError> {
        Ok(())
    }
}

/// The backend.
#[derive(Debug)]
pub struct Misbehaving {
    config: Config,
    computed: AtomicU64,
}

struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload must not be dropped");
    }
}

impl Misbehaving {
    fn is_released(&self) -> bool {
        self.config.folder.join("release").exists()
    }

    fn act(&self) -> Result<String, BackendError> {
        const HOUR: Duration = Duration::from_secs(3600);
        match self.config.mode {
            Mode::Good | Mode::RefuseConfig => {}
            Mode::Panic => panic!("a bug in the backend"),
            Mode::PanicPayload => std::panic::panic_any(Bomb),
            Mode::Sleep => host::sleep(HOUR)?,
            Mode::IgnoreCancel => {
                let cancelled = (0..3).filter(|_| host::sleep(HOUR).is_err()).count();
                return Ok(format!("{cancelled} {}", host::is_cancelled()));
            }
            Mode::Block => {
                while !self.is_released() {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Mode::Endless => loop {
                std::hint::spin_loop();
            },
            Mode::Busy => while !self.is_released() {},
            Mode::Cached => {
                let computed: u64 = host::cache::get_or_compute("key", HOUR, || {
                    host::sleep(Duration::from_millis(50))?;
                    Ok(self.computed.fetch_add(1, Ordering::SeqCst) + 1)
                })?;
                return Ok(computed.to_string());
            }
            Mode::Threads => {
                let call = Call::current();
                let wait = || {
                    let _entered = call.enter();
                    host::sleep(HOUR).map_err(|error| error.kind)
                };
                let ends = thread::scope(|threads| {
                    let all: Vec<_> = (0..4).map(|_| threads.spawn(wait)).collect();
                    all.into_iter()
                        .filter_map(|thread| thread.join().ok())
                        .filter(|end| *end == Err(ErrorKind::Cancelled))
                        .count()
                });
                return Err(BackendError::internal(format!("{ends} ended")));
            }
            Mode::Services => {
                let described = host::describe()?;
                let services: Vec<String> = described.services.into_keys().collect();
                return Ok(format!(
                    "{} {} {}",
                    services.join(","),
                    host::random(8)?.len(),
                    host::now()
                ));
            }
            Mode::Machine => return host::machine::facts("").map(|facts| facts.hostname),
            Mode::Log => tracing_line(),
            Mode::Emit => host::emit(&1)?,
            Mode::NullWrite => acts::null_write(),
            Mode::Abort => std::process::abort(),
            Mode::Exit => std::process::exit(3),
            Mode::StackOverflow => return Ok(acts::stack_overflow(0).to_string()),
            Mode::AllocationBomb => acts::allocation_bomb(),
            Mode::Babble => acts::babble(),
            Mode::ChildLeft => acts::child_left(),
            Mode::SlowDrip => {
                for _ in 0..200 {
                    host::sleep(Duration::from_millis(2))?;
                }
            }
            Mode::ThreadsLeft => acts::threads_left(),
            Mode::StdoutNoise => acts::noise(),
            Mode::ProcessId => return Ok(std::process::id().to_string()),
            Mode::Confinement => return Ok(acts::confinement()),
        }
        Ok("good".to_owned())
    }
}

fn tracing_line() {
    tracing::warn!(answer = 42, "a line from the backend");
}

impl Backend for Misbehaving {
    type Configurator = Any;
    fn new(config: Config) -> Result<Self, BackendError> {
        if config.mode == Mode::RefuseConfig {
            return Err(BackendError::auth("the token is wrong", ["token"]));
        }
        Ok(Self {
            config,
            computed: AtomicU64::new(0),
        })
    }
    fn close(self) {
        if self.config.folder.is_dir()
            && let Err(error) = std::fs::write(self.config.folder.join("closed"), "")
        {
            tracing::error!(%error, "cannot say that it was closed");
        }
    }
}

impl Compute for Misbehaving {
    fn get_offers(&self, _request: &GetOffersRequest) -> Result<GetOffersReply, BackendError> {
        self.act().map(|_| GetOffersReply::default())
    }
    fn run_job(&self, _request: &RunJobRequest) -> Result<RunJobReply, BackendError> {
        Err(BackendError::no_capacity("never"))
    }
    fn terminate_instance(
        &self,
        _request: &TerminateInstanceRequest,
    ) -> Result<Done, BackendError> {
        Ok(Done {})
    }
    fn health(&self, _request: &HealthRequest) -> Result<HealthReply, BackendError> {
        self.act().map(|message| HealthReply {
            message: Some(message),
        })
    }
}

dstack_backend_sdk::export_backend! {
    name: "misbehaving", backend: Misbehaving, configurator: Any, capabilities: [], flags: [],
}
