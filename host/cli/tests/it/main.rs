//! Whole commands against a server that answers what was recorded, screen by screen.

mod apply;
mod errors;
mod screens;
mod world;
