//! The store as a whole: on real files, and on a directory in memory that loses power.

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
