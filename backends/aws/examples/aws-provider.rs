//! The fake provider of the tests as a program, which `dstack backend check` starts for the `.so` that is built beside it.

#[path = "../tests/it/cloud.rs"]
mod cloud;

fn main() -> std::io::Result<()> {
    cloud::fake().start().serve(&cloud::config())
}
