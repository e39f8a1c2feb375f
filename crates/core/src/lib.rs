//! The heart of uncopy: extents, views and the tracker.
//!
//! Nothing here makes a system call or touches the program's memory. Changes to pages are asked of
//! a [`memory::Memory`]; copies are handed back to the caller as [`plan::Copy`] lists, to be
//! carried out after the tracker's lock is dropped. So the whole logic runs against a simulated
//! address space in `tests/model.rs`. Whether a copy is worth eliding is decided by
//! [`uncopy_decide`].
//!
//! | module | one idea |
//! | --- | --- |
//! | [`extents`] | immutable, reference-counted runs of bytes |
//! | [`regions`] | memory that extents lie in, and whose it is |
//! | [`view`] | these program bytes are those extent bytes |
//! | [`views`] | all of them |
//! | [`sorted`] | the map under it |
//! | [`excluded`] | what has to stay resident |
//! | [`memory`] | what the tracker asks of the machine |
//! | [`plan`] | what it asks of its caller |
//! | [`tracker`] | input, copy, output, touch, free: what each does to views |
#![forbid(unsafe_code)]

pub mod excluded;
pub mod extents;
pub mod memory;
pub mod plan;
pub mod regions;
pub mod sorted;
pub mod tracker;
pub mod view;
pub mod views;
