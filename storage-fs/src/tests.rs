//! Tests of the whole store, on real files and on a simulated directory with power failures.

mod aside;
mod crash;
mod cut;
mod damage;
mod end;
mod full;
mod golden;
mod mem;
mod read;
mod real;
mod replace;
mod world;
