#![doc = include_str!("../README.md")]

pub mod http;
pub mod provider;
