//! Each oracle is shown a history that is right and its twin that is not: it must pass the one and catch the other
//! under its own id. `legal` holds what a correct server may do although it looks odd.

mod access;
mod anywhere;
mod cast;
mod consistency;
mod ensembles;
mod history;
mod legal;
mod lifetimes;
mod local;
mod operators;
mod outside;
mod pace;
mod real;
mod servers;
mod sessions;
mod watches;
