//! A cloud in a folder: the backend that tests and the simulator's scenarios use.
