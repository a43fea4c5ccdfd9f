//! Simulations that must hold, and worlds that must not.

mod broken;
mod days;
