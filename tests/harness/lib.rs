//! The parts that tests of small programs share: the command under test, compiling, running within
//! bounds, and how a test says that it cannot run here.

#![forbid(unsafe_code)]

pub mod built;
pub mod compile;
pub mod product;
pub mod run;
pub mod shell;
pub mod verdict;
