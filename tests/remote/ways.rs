//! How a service reaches its device: by a TAP beside it, as by AF_XDP; by several queues, carried by several threads or by fewer.

use std::collections::BTreeSet;

use crate::network::{Kind, Network};
use crate::{Named, Outcome, connecting};
use uncopy_tests::verdict::Stop;

/// Those of this file.
pub const ALL: [Named; 9] = [
    ("redis_answers_other_hosts_by_a_tap", redis_by_tap),
    ("nginx_sends_every_byte_by_a_tap", nginx_by_tap),
    ("programs_connect_by_a_tap", echoes_by_tap),
    ("a_server_that_is_killed_resets_its_clients_by_a_tap", server_killed_by_tap),
    ("a_service_that_is_killed_leaves_no_tap_and_one_started_anew_takes_over", service_killed_by_tap),
    ("a_device_that_has_an_xdp_program_is_reached_by_a_tap", has_a_program),
    ("several_queues_are_carried_by_as_many_threads", several_queues),
    ("several_queues_are_carried_by_fewer_threads_where_fewer_are_allowed", fewer_cores),
    ("a_tap_has_as_many_queues_as_its_device", several_queues_by_tap),
];

/// As devices are; the service's end has a TAP.
const TAP: Kind = Kind { queues: 1, offloads: true, options: &["--by", "tap"] };

fn by_tap(which: &str) -> Result<Network, Stop> {
    Network::of(which, TAP)
}

fn redis_by_tap() -> Outcome {
    crate::redis_answers_over(&by_tap("tr")?)
}

fn nginx_by_tap() -> Outcome {
    crate::nginx_sends_over(&by_tap("tn")?)
}

fn echoes_by_tap() -> Outcome {
    connecting::echoes_over(&by_tap("te")?)
}

fn server_killed_by_tap() -> Outcome {
    crate::server_killed_over(&by_tap("tk")?)
}

fn service_killed_by_tap() -> Outcome {
    let network = by_tap("ts")?;
    crate::service_killed_over(&network)?;
    let links = network.inside(&["ip", "-br", "link"])?;
    match links.matches("uncopytap").count() {
        0 => Ok(()),
        left => Err(format!("{left} TAPs are left: {links}").into()),
    }
}

fn has_a_program() -> Outcome {
    let network = Network::of("tx", Kind { options: &[], ..TAP })?;
    // (Whose program it is does not matter: here it is another service's.)
    let _first = network.serve_as("uncopy-tcp-another", &["--by", "xdp"])?;
    let service = network.serve()?;
    if !service.reached.contains("by a TAP device beside inner") {
        return Err(format!("the second service says: {}", service.reached).into());
    }
    let _redis = crate::redis(&network)?;
    network.until_steered(crate::REDIS)?;
    let _clients = crate::hold(&network, 3)?;
    match service.count_flows()? {
        3.. => Ok(()),
        few => Err(format!("{few} of 3 connections over the wire: {}", service.flows()?).into()),
    }
}

fn several_queues() -> Outcome {
    carried("q4", &[], "(4 queues, carried by 4 threads at most)", 4)
}

fn fewer_cores() -> Outcome {
    carried("q2", &["--cores", "2"], "(4 queues, carried by 2 threads at most)", 2)
}

fn several_queues_by_tap() -> Outcome {
    let options = &["--by", "tap", "--cores", "3"];
    carried("qt", options, "(4 queues, carried by 3 threads at most)", 3)
}

/// By four queues: all that redis does, and its connections are so many lanes'.
fn carried(which: &str, options: &'static [&'static str], says: &str, lanes: usize) -> Outcome {
    let network = Network::of(which, Kind { queues: 4, offloads: false, options })?;
    crate::redis_answers_over(&network)?;
    let service = network.serve()?;
    if !service.reached.contains(says) {
        return Err(format!("the service says: {}", service.reached).into());
    }
    let _redis = crate::redis(&network)?;
    network.until_steered(crate::REDIS)?;
    let _clients = crate::hold(&network, 40)?;
    let flows = service.wired()?;
    let lane = |flow: &String| Some(flow.split("\"lane\":").nth(1)?.split(',').next()?.to_owned());
    let seen: BTreeSet<String> = flows.iter().filter_map(lane).collect();
    if seen.len() == lanes { Ok(()) } else { Err(format!("lanes {seen:?}: {flows:?}").into()) }
}
