//! The OpenAPI document as people get it: printed by the program, and served.

use anyhow::{Result, ensure};
use dstack_test_support::server::TestServer;

#[test]
fn the_printed_document_is_the_served_one() -> Result<()> {
    let mut server = TestServer::start(&[])?;
    let printed = server.ok(&["config", "openapi"])?;
    let printed: serde_json::Value = serde_json::from_str(&printed)?;
    let served: serde_json::Value = serde_json::from_str(&server.get("/api/openapi.json")?)?;
    ensure!(printed == served, "{printed}");
    ensure!(printed["paths"]["/api/runs/list"]["post"].is_object());
    server.stop()?;
    Ok(())
}
