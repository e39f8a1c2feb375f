//! Questions and orders to systemd, by `systemctl`.

use std::process::{Command, Output};

use uncopy_measure::{Failure, failure};

use super::Unit;

const PROPERTIES: &str = "Id,LoadState,LoadError,ExecStart,User,DynamicUser,Environment,EnvironmentFiles,UnsetEnvironment,\
    PrivateDevices,DevicePolicy,DeviceAllow,SystemCallFilter,RootDirectory,RootImage,ProtectHome,PrivateTmp,NoExecPaths,\
    ExecPaths,InaccessiblePaths,TemporaryFileSystem,LimitNOFILE,LimitAS,MainPID,ActiveState";

fn systemctl(words: &[&str]) -> Result<Output, Failure> {
    let output = Command::new("systemctl").args(words).output();
    let output = output.map_err(|e| {
        Failure::new("cannot run systemctl").because(e).advise("is this a machine with systemd?")
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("no reason was given");
    Err(failure!("'systemctl {}' failed", words.first().unwrap_or(&"")).because(said))
}

/// The unit, if it is loaded.
pub fn show(name: &str) -> Result<Unit, Failure> {
    let output = systemctl(&["show", "--property", PROPERTIES, "--", name])?;
    let unit = read(&String::from_utf8_lossy(&output.stdout));
    match unit.get("LoadState") {
        "loaded" => Ok(unit),
        "not-found" => {
            Err(failure!("there is no unit {name}")
                .advise("'systemctl list-unit-files' lists them"))
        }
        "" => Err(failure!("systemctl says nothing about {name}").advise("is systemd running?")),
        other => Err(failure!("{name} is {other}, so it cannot be started")),
    }
}

fn read(text: &str) -> Unit {
    let properties: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let unit = Unit { name: String::new(), properties };
    Unit { name: unit.get("Id").to_owned(), ..unit }
}

/// Has drop-ins read anew.
pub fn reload() -> Result<(), Failure> {
    systemctl(&["daemon-reload"]).map(drop)
}

/// Restarts the unit, if it runs.
pub fn restart(name: &str) -> Result<(), Failure> {
    systemctl(&["try-restart", "--", name]).map(drop)
}

/// The service's main process, if it runs.
pub fn main_process(name: &str) -> Result<Option<u32>, Failure> {
    let unit = show(name);
    // (Where the unit is gone, nothing of it runs.)
    Ok(unit.ok().and_then(|unit| unit.get("MainPID").parse().ok()).filter(|pid| *pid != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_that_systemctl_prints_are_read_by_name() {
        let unit = read(
            "Id=redis-server.service\nLoadState=loaded\nUser=redis\nPrivateDevices=yes\n\
             Environment=A=1 \"LD_PRELOAD=/x.so\"\nEnvironmentFiles=/a (ignore_errors=no)\n\
             EnvironmentFiles=/b (ignore_errors=yes)\n\
             ExecStart={ path=/usr/bin/redis-server ; argv[]=/usr/bin/redis-server /etc/redis.conf ; ignore_errors=no }\n",
        );
        assert_eq!(unit.name, "redis-server.service");
        assert!(unit.is("PrivateDevices") && !unit.is("PrivateTmp"));
        assert_eq!(unit.variable("LD_PRELOAD").unwrap(), "/x.so");
        assert_eq!(unit.variable("LD_PRE"), None);
        assert_eq!(unit.all("EnvironmentFiles").count(), 2);
        assert_eq!(unit.program().unwrap().to_str(), Some("/usr/bin/redis-server"));
    }
}
