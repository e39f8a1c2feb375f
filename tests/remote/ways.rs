//! How a service reaches its device: by a TAP beside it where it copies anyway (as in all other tests), by AF_XDP, by the other where one is refused; by several queues,
//! carried by several threads or by fewer.

use std::collections::BTreeSet;

use crate::network::{Kind, Network, Service, USUAL};
use crate::{Named, Outcome, connecting};
use uncopy_tests::verdict::Stop;

/// Those of this file.
pub const ALL: [Named; 9] = [
    ("redis_answers_other_hosts_by_af_xdp", redis_by_xdp),
    ("nginx_sends_every_byte_by_af_xdp", nginx_by_xdp),
    ("programs_connect_by_af_xdp", echoes_by_xdp),
    ("a_killed_server_resets_its_clients_by_af_xdp", server_killed_by_xdp),
    ("a_killed_service_by_af_xdp_resets_its_connections", service_killed_by_xdp),
    ("a_device_that_cannot_have_a_tap_is_reached_by_af_xdp", no_tap),
    ("a_device_that_has_an_xdp_program_is_reached_by_a_tap", has_a_program),
    ("several_queues_are_carried_by_as_many_threads", several_queues),
    ("several_queues_by_af_xdp_are_carried_by_fewer_threads_if_so_told", fewer_threads),
];

const XDP: Kind = Kind { queues: 1, offloads: false, options: &["--by", "xdp"] };

fn by_xdp(which: &str) -> Result<Network, Stop> {
    Network::of(which, XDP)
}

fn redis_by_xdp() -> Outcome {
    crate::redis_answers_over(&by_xdp("xr")?)
}

fn nginx_by_xdp() -> Outcome {
    crate::nginx_sends_over(&by_xdp("xn")?)
}

fn echoes_by_xdp() -> Outcome {
    connecting::echoes_over(&by_xdp("xe")?)
}

fn server_killed_by_xdp() -> Outcome {
    crate::server_killed_over(&by_xdp("xk")?)
}

fn service_killed_by_xdp() -> Outcome {
    crate::service_killed_over(&by_xdp("xs")?)
}

/// Three connections go over the wire.
fn carries(network: &Network, service: &Service) -> Outcome {
    let _redis = crate::redis(network)?;
    network.until_steered(crate::REDIS)?;
    let _clients = crate::hold(network, 3)?;
    match service.count_flows()? {
        3.. => Ok(()),
        few => Err(format!("{few} of 3 connections over the wire: {}", service.flows()?).into()),
    }
}

fn says(service: &Service, what: &str) -> Outcome {
    if service.reached.contains(what) {
        return Ok(());
    }
    Err(format!("the service says '{}', not '{what}'", service.reached).into())
}

fn no_tap() -> Outcome {
    let network = Network::of("xt", Kind { options: &[], ..XDP })?;
    let service = network.serve_without_tun()?;
    says(&service, "by AF_XDP on inner")?;
    carries(&network, &service)
}

fn has_a_program() -> Outcome {
    let network = Network::of("xx", USUAL)?;
    // (Whose program it is does not matter: here it is another service's.)
    let _first = network.serve_as("uncopy-tcp-another", &["--by", "xdp"])?;
    let service = network.serve()?;
    says(&service, "by a TAP device beside inner")?;
    carries(&network, &service)
}

fn several_queues() -> Outcome {
    let kind = Kind { queues: 4, ..USUAL };
    carried("q4", kind, "(4 queues, carried by 4 threads at most)", 4)
}

fn fewer_threads() -> Outcome {
    let options = &["--by", "xdp", "--cores", "2"];
    let kind = Kind { queues: 4, options, ..XDP };
    carried("q2", kind, "(4 queues, carried by 2 threads at most)", 2)
}

/// All that redis does; and its connections are so many lanes'.
fn carried(which: &str, kind: Kind, queues: &str, lanes: usize) -> Outcome {
    let network = Network::of(which, kind)?;
    crate::redis_answers_over(&network)?;
    let service = network.serve()?;
    says(&service, queues)?;
    let _redis = crate::redis(&network)?;
    network.until_steered(crate::REDIS)?;
    let _clients = crate::hold(&network, 40)?;
    let flows = service.wired()?;
    let lane = |flow: &String| Some(flow.split("\"lane\":").nth(1)?.split(',').next()?.to_owned());
    let seen: BTreeSet<String> = flows.iter().filter_map(lane).collect();
    if seen.len() == lanes { Ok(()) } else { Err(format!("lanes {seen:?}: {flows:?}").into()) }
}
