//! `sluicegate explain`.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Uri};
use serde_json::{Map, Value, json};
use sluicegate_core::MemoryStore;
use sluicegate_core::support::ceil_millis;
use sluicegate_rules::{
    DeferralExplained, Descriptor, Descriptors, Explained, RoomExplained, RuleExplained, Rules, RulesFile,
    Variables,
};
use sluicegate_tower::in_flight::InFlightExplained;
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::limits::{LimitExplained, WouldBe};

/// A hypothetical request.
#[derive(Args)]
pub(crate) struct ExplainedRequest {
    /// The rules file.
    #[arg(long, value_name = "RULES")]
    rules: PathBuf,
    /// The method.
    #[arg(required_unless_present = "descriptor")]
    method: Option<Method>,
    /// The URL, or its path.
    #[arg(required_unless_present = "descriptor")]
    url: Option<Uri>,
    /// A header field; may be given several times.
    #[arg(short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The body, from a file or, as "-", from standard input, for rules that look at
    /// bodies; say its Content-Type by -H if it is a form.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// The address of the peer of the connection.
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// A descriptor of Envoy's rate limit protocol instead of a request, as
    /// remote_address=192.0.2.7,path=/login; several form one call.
    #[arg(long, value_name = "KEY=VALUE,..", requires = "domain", value_parser = descriptor, conflicts_with_all = ["method", "url", "header", "body", "peer"])]
    descriptor: Vec<Descriptor>,
    /// The domain of the descriptors.
    #[arg(long, value_name = "DOMAIN", requires = "descriptor")]
    domain: Option<String>,
    /// Read the state of each quota from the Redis of the rules file.
    #[arg(long)]
    store: bool,
    /// Print JSON, with the version of its format.
    #[arg(long)]
    json: bool,
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as \"name: value\"")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not the name of a header field"))?;
    let value = value.trim().parse().map_err(|_| "no header field can have this value".to_owned())?;
    Ok((name, value))
}

fn descriptor(text: &str) -> Result<Descriptor, String> {
    let entries = text.split(',').map(|entry| entry.split_once('=').ok_or("write each entry as key=value"));
    let entries: Result<Vec<_>, _> = entries.collect();
    Ok(Descriptor::new(entries?))
}

pub(crate) fn run(asked: &ExplainedRequest) -> Result<String, String> {
    let variables = Variables::environment().or_placeholders();
    let file = RulesFile::read(&asked.rules, &variables).map_err(|error| error.to_string())?;
    let (mut requests, body) = (asked.requests(), asked.read_body()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime can be started: {error}"))?;
    let explained = runtime.block_on(explain(file, &mut requests, body.as_deref(), asked.store))?;
    if asked.store && !explained.iter().all(is_answered) {
        return Err(format!("{}: error: its store gave no answer in time", asked.rules.display()));
    }
    if asked.json {
        let documents: String = explained.iter().map(|one| format!("{:#}\n", document(one))).collect();
        return Ok(documents);
    }
    let texts: Vec<String> = explained.iter().map(ToString::to_string).collect();
    // The message tells a service how to pass on the peer address; here the caller has to give it.
    let lacks_peer = texts.iter().any(|text| text.contains("no peer address"));
    let hint = match (lacks_peer, &asked.domain, asked.peer) {
        (true, Some(_), _) => "name the entry remote_address: a rule goes by the address of the client\n",
        (true, None, None) => "say --peer IP: a rule goes by the address of the connection\n",
        _ => "",
    };
    Ok(format!("{}\n{hint}", texts.join("\n\n")))
}

impl ExplainedRequest {
    fn read_body(&self) -> Result<Option<Vec<u8>>, String> {
        let Some(path) = &self.body else { return Ok(None) };
        let read = match path.as_os_str() == "-" {
            true => {
                let mut body = Vec::new();
                io::stdin().read_to_end(&mut body).map(|_| body)
            }
            false => std::fs::read(path),
        };
        read.map(Some).map_err(|error| format!("{}: error: the body cannot be read: {error}", path.display()))
    }

    /// The request, or one for each descriptor.
    fn requests(&self) -> Vec<http::Request<()>> {
        if let Some(domain) = &self.domain {
            return Descriptors::new(domain, self.descriptor.clone()).requests().collect();
        }
        let mut request = http::Request::new(());
        *request.method_mut() = self.method.clone().unwrap_or_default();
        *request.uri_mut() = self.url.clone().unwrap_or_default();
        request.headers_mut().extend(self.header.iter().cloned());
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer, 0)));
        }
        vec![request]
    }
}

/// Explains with the state in the file's store, or, without connecting, as if nothing had been spent.
async fn explain(
    file: RulesFile,
    requests: &mut [http::Request<()>],
    body: Option<&[u8]>,
    asks_store: bool,
) -> Result<Vec<Explained>, String> {
    let store = match asks_store {
        true => file.connected_store(CONNECTS_WITHIN).await,
        false => Ok((&MemoryStore::new()).into()),
    };
    // It asks about only one key, so a small table is enough.
    let rules =
        store.and_then(|store| Rules::new(store, file.without_store().without_rooms().with_table_size(1)));
    let rules = rules.map_err(|error| error.to_string())?;
    let mut explained = Vec::with_capacity(requests.len());
    for request in requests {
        if let Some(body) = body {
            rules.read_body(request, body);
        }
        explained.push(rules.explain(&*request).await);
    }
    Ok(explained)
}

/// The time to connect: long enough for TLS to another continent.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// Whether the store has answered about every limit.
fn is_answered(explained: &Explained) -> bool {
    let mut asks =
        explained.rules.iter().flat_map(|rule| &rule.limits).filter_map(|limit| limit.asks.as_ref().ok());
    asks.all(|asks| !asks.quotas.is_empty())
}

// An explanation as JSON, for programs: `sluicegate explain --json`.
//
// ```json
// { "version": 1,
//   "outcome": "refused", "status": 429, "retry_after_ms": 12000, "why": "...",
//   "rules": [
//     { "section": "rules", "name": "login", "group": "endpoint", "applies": true, "why_not": null,
//       "limits": [
//         { "asks": { "policy": "login", "quotas": "login: 5/min (gcra)", "mode": "enforce", "counts_rejected": false,
//             "tier": null,
//             "key": "203.0.113.9", "cost": 1, "bandwidth": null,
//             "stands": [ { "capacity": 5, "remaining": 0, "room_after_ms": 12000, "reset_after_ms": 60000 } ] } },
//         { "why_not": "the request costs nothing" } ],
//       "in_flight": { "name": "logins", "permits": 2, "shared": false, "wait_ms": 10000,
//         "asks": { "key": "203.0.113.9", "remaining": 2 } },
//       "rooms": [ { "name": "sale", "rate": "50/s" } ],
//       "deferring": [ { "policy": "orders", "longest_body": null } ] } ] }
// ```
//
// `rooms` are the waiting rooms that the request meets first. `deferring` are the policies whose excess the program keeps in its queue
// although `outcome` says that the request is refused; `longest_body` is the most bytes of a body that the queue keeps, and null in a tool
// without a queue. `bandwidth` is `down`, `up` or `both` for a limit on bodies. `in_flight` is null in a rule that names none, and has
// `why_not` instead of `asks` if the request takes no permit.
// `outcome` is `exempt`, `unlimited`, `uncounted`, `allowed`, `delayed` (with `wait_ms`) or `refused`. Times are whole milliseconds,
// rounded up; times until there is room are lower bounds if `counts_rejected` says that refused requests count. Fields may be added within a
// version; a version that changes a field has another number.

/// The version of the shape.
const VERSION: u64 = 1;

pub(crate) fn document(explained: &Explained) -> Value {
    let mut document = outcome(&explained.outcome);
    document.insert("version".to_owned(), VERSION.into());
    document.insert("rules".to_owned(), explained.rules.iter().map(rule).collect());
    document.into()
}

fn outcome(outcome: &WouldBe) -> Map<String, Value> {
    let value = match outcome {
        WouldBe::Exempt => json!({ "outcome": "exempt" }),
        WouldBe::Unlimited => json!({ "outcome": "unlimited" }),
        WouldBe::Uncounted => json!({ "outcome": "uncounted" }),
        WouldBe::Delayed(wait) => json!({ "outcome": "delayed", "wait_ms": ceil_millis(*wait) }),
        WouldBe::Refused { status, retry_after, why } => json!({
            "outcome": "refused",
            "status": status.as_u16(),
            "retry_after_ms": retry_after.map(ceil_millis),
            "why": why,
        }),
        _ => json!({ "outcome": "allowed" }),
    };
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn rule(rule: &RuleExplained) -> Value {
    let RuleExplained { section, name, group, why_not, limits, in_flight, rooms, deferring, .. } = rule;
    let room = |room: &RoomExplained| json!({ "name": room.name, "rate": room.rate.to_string() });
    let deferral = |to: &DeferralExplained| json!({ "policy": to.policy, "longest_body": to.longest_body });
    json!({
        "section": section.to_string(),
        "name": name,
        "group": group,
        "applies": why_not.is_none(),
        "why_not": why_not,
        "limits": limits.iter().map(limit).collect::<Vec<_>>(),
        "in_flight": in_flight.as_ref().map(permit),
        "rooms": rooms.iter().map(room).collect::<Vec<_>>(),
        "deferring": deferring.iter().map(deferral).collect::<Vec<_>>(),
    })
}

fn permit(permit: &InFlightExplained) -> Value {
    let InFlightExplained { name, permits, is_shared, longest_wait, asks, .. } = permit;
    let (what, of) = match asks {
        Ok(asks) => ("asks", json!({ "key": asks.key.shown().to_string(), "remaining": asks.remaining })),
        Err(why) => ("why_not", json!(why)),
    };
    let wait_ms = longest_wait.map(ceil_millis);
    json!({ "name": name, "permits": permits, "shared": is_shared, "wait_ms": wait_ms, what: of })
}

fn limit(limit: &LimitExplained) -> Value {
    let asks = match &limit.asks {
        Ok(asks) => asks,
        Err(why) => return json!({ "why_not": why }),
    };
    let stands = asks.quotas.iter().map(|status| {
        json!({
            "capacity": status.capacity(),
            "remaining": status.remaining(),
            "room_after_ms": ceil_millis(status.available_after()),
            "reset_after_ms": ceil_millis(status.reset_after()),
        })
    });
    json!({ "asks": {
        "policy": asks.policy.name(),
        "quotas": asks.policy.to_string(),
        "mode": asks.policy.mode().to_string(),
        "counts_rejected": asks.policy.counts_rejected(),
        "tier": asks.tier,
        "key": asks.key.shown().to_string(),
        "cost": asks.cost,
        "bandwidth": asks.bandwidth.map(|direction| direction.to_string()),
        "stands": stands.collect::<Vec<_>>(),
    } })
}
