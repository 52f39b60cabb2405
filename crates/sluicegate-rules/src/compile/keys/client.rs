//! Finds the address of a client: the section `clients`.

use sluicegate_tower::ClientIp;
use sluicegate_tower::key::Networks;

use crate::at::At;
use crate::compile::{networks, number};
use crate::error::Problems;
use crate::read::short;
use crate::schema::Clients;

pub(super) fn client(section: &At<Clients>, problems: &mut Problems<'_>) -> Option<ClientIp> {
    let given = &section.value;
    let mut client = match (&given.proxies, &given.hops) {
        (Some(proxies), None) => {
            let all = proxies.all();
            let before = problems.errors();
            let together = networks::of(&all, problems);
            for network in &all {
                if let Some(everything) =
                    Networks::new([&network.value]).ok().and_then(|one| one.everything())
                {
                    problems.error(network.place, everybody(everything));
                }
            }
            let together = together.filter(|_| problems.errors() == before)?;
            if let Some(everything) = together.everything() {
                problems.error(proxies.place, everybody(everything));
                return None;
            }
            ClientIp::behind(all.iter().map(|network| &network.value))
        }
        (None, Some(hops)) => ClientIp::hops(
            usize::try_from(number(hops, "a number of proxies", 1..=32, problems)?).unwrap_or(32),
        ),
        _ => {
            problems.error(
                section.place,
                "say either \"proxies\", by their networks, or \"hops\", by their number",
            );
            return None;
        }
    };
    if let Some(header) = &given.header {
        if header.value.parse::<http::HeaderName>().is_err() {
            let text = format!("{:?} is not the name of a header field", short(&header.value));
            problems.error(header.place, text);
            return None;
        }
        client = match &*header.value.to_ascii_lowercase() {
            "forwarded" => client.map(ClientIp::forwarded),
            "x-forwarded-for" => client,
            other => client.and_then(|client| client.header(other)),
        };
    }
    if let Some(bits) = &given.ipv6_prefix {
        let bits = number(bits, "a number of bits", 1..=128, problems)?;
        client = client.and_then(|client| client.ipv6_prefix(u8::try_from(bits).unwrap_or(128)));
    }
    client.map_err(|error| problems.error(section.place, error.problem())).ok()
}

fn everybody(network: &str) -> String {
    format!(
        "{network} would let every client choose its address: name the networks of the proxies; if nobody reaches the service past them, their number does as well, as hops: 1"
    )
}
