//! Test servers, fake clouds and agents. Ships nowhere.
