//! A program's environment, in the order in which it was given to us.

use std::ffi::{OsStr, OsString};

/// Names and values.
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// This process's own.
    pub fn own() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_os_str())
    }

    /// Sets `name`, in its old place if it has one.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        let value = value.into();
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.into(), value)),
        }
    }

    /// Takes `name` away.
    pub fn remove(&mut self, name: &OsStr) {
        self.0.retain(|(n, _)| n != name);
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(n, v)| (n.as_os_str(), v.as_os_str()))
    }
}
