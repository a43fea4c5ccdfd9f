//! Opens an inspected file in this process and calls it.

use crate::{
    error::{OpenError, chain, short},
    inspect::Inspected,
};
use dstack_backend_abi::{
    AbiHeaderRef, BackendModuleRef, Handle, HostServices, RResult, RSlice, RVec, SYMBOL,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::{fmt, ops::Deref, os::fd::IntoRawFd, sync::Arc};

/// Bytes that the plugin made; its own deallocator frees them. Read-only: growing them would call the plugin's allocator.
pub struct ReplyBytes(RVec<u8>);

impl Deref for ReplyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for ReplyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyBytes({} bytes)", self.len())
    }
}

/// A loaded plugin. It is never unloaded: threads, statics and vtables of it may live on anywhere.
#[derive(Clone)]
pub struct Plugin {
    module: BackendModuleRef,
    name: Arc<str>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({})", self.name)
    }
}

impl Inspected {
    /// Loads the file into this process and starts it. From here on its code runs.
    ///
    /// # Errors
    /// A short reason; the file is then of no use in this process.
    pub fn open(self, services: HostServices) -> Result<Plugin, OpenError> {
        // The descriptor is never closed, not even when loading fails: the C library finds loaded files by *name* first, so a
        // later file that got the same number would be answered with the library that had it before.
        let path = format!("/proc/self/fd/{}", self.file.into_raw_fd());
        // SAFETY: inspection saw a manifest, so the file's constructors are those of a backend; RTLD_LOCAL keeps its symbols
        // apart. What a hostile file does then cannot be prevented in one process: policy above decides what gets here.
        let library =
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| {
                OpenError::Load {
                    reason: chain(&e).replace(&path, &self.path.display().to_string()),
                }
            })?;
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the symbol is abi_stable's header; `upgrade` checks its magic before anything else of it is read.
        let header = unsafe { library.get::<AbiHeaderRef>(SYMBOL.as_bytes()) }
            .map_err(|e| OpenError::Load { reason: chain(&e) })?;
        let module = (*header)
            .upgrade()
            .and_then(|header| header.init_root_module::<BackendModuleRef>())
            .map_err(|e| short(&e))?;
        if module.manifest()().as_str() != self.manifest_text {
            return Err(OpenError::ManifestDiffers);
        }
        if let RResult::RErr(error) = module.init()(services) {
            return Err(OpenError::Init {
                reason: String::from_utf8_lossy(error.as_slice()).into_owned(),
            });
        }
        Ok(Plugin {
            module,
            name: self.manifest.name.as_str().into(),
        })
    }
}

impl Plugin {
    /// The manifest's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens a backend with its configuration; empty bytes give one for the configurator's methods alone.
    ///
    /// # Errors
    /// The plugin's error, as it came.
    pub fn open_backend(&self, config: &[u8]) -> Result<OpenedBackend, ReplyBytes> {
        match self.module.open()(RSlice::from_slice(config)) {
            RResult::ROk(handle) => Ok(OpenedBackend {
                module: self.module,
                handle,
            }),
            RResult::RErr(error) => Err(ReplyBytes(error)),
        }
    }
}

/// An opened backend; dropping it closes it, so share it by `Arc` with every running call.
pub struct OpenedBackend {
    module: BackendModuleRef,
    handle: Handle,
}

impl fmt::Debug for OpenedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenedBackend({:?})", self.handle)
    }
}

impl OpenedBackend {
    /// Runs one method on this thread, for as long as the plugin takes.
    ///
    /// # Errors
    /// The plugin's error, as it came.
    pub fn call(
        &self,
        method: u32,
        call_id: u64,
        request: &[u8],
    ) -> Result<ReplyBytes, ReplyBytes> {
        match self.module.call()(&self.handle, method, call_id, RSlice::from_slice(request)) {
            RResult::ROk(reply) => Ok(ReplyBytes(reply)),
            RResult::RErr(error) => Err(ReplyBytes(error)),
        }
    }
}

impl Drop for OpenedBackend {
    fn drop(&mut self) {
        self.module.close()(Handle::new(self.handle.raw()));
    }
}
