//! Files that are kept: what is read again and again is read into extents once.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`files`] | the side of the program's threads |
//! | `leases` | the thread that holds their changes off |
//! | `shelf` | the shelf and the lock around it |

pub mod files;
mod leases;
mod shelf;
