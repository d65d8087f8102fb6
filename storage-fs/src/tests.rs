//! The store as a whole: on real files, and on a directory in memory that loses power.

mod crash;
mod damage;
mod golden;
mod mem;
mod real;
mod world;
