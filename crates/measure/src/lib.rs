//! The library that the command and the tools share: what they measure with, and how they speak.
//!
//! | file | one idea |
//! | --- | --- |
//! | `side` | what is compared, and how a process is put on each side |
//! | `medians`, `cores`, `pace` | numbers of samples; who runs where; time shared out among rows |
//! | `server_process`, `own_process` | a child seen from outside; a process seen from within |
//! | `facts` | what a side is, to be compared: its threads, its sockets |
//! | `echo/` | the echo server, what drives it, and its rows: `uncopy demo` and most figures |
//! | `tracker_alone` | the tracker's books on memory that does not exist |
//! | `machine`, `cache`, `userfaultfd` | this machine; its prices; whether anything can be elided |
//! | `library`, `elf` | the library that is put in front |
//! | `words`, `values`, `bad_value` | the command line; options' values; texts that are none |
//! | `variables`, `nearest` | the environment; misspelt names |
//! | `failure` | why something cannot be done, in the one form of an error line |
//! | `outcome`, `printable`, `units`, `progress` | what is said, and how |
//! | `build` | what this was built from |

pub mod bad_value;
pub mod build;
pub mod cache;
pub mod cores;
pub mod echo;
pub mod elf;
pub mod facts;
pub mod failure;
pub mod library;
pub mod machine;
pub mod medians;
pub mod nearest;
pub mod outcome;
pub mod own_process;
pub mod pace;
pub mod printable;
pub mod progress;
pub mod server_process;
pub mod side;
pub mod tracker_alone;
pub mod units;
pub mod userfaultfd;
pub mod values;
pub mod variables;
pub mod words;

pub use failure::Failure;
pub use outcome::{complain, print};
