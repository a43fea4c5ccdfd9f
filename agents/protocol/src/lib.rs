//! Wire types of the shim, runner and gateway APIs.
