//! Sessions against servers that follow a script.

mod random;
mod script;
mod session;
