//! `sluicegate explain`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Uri};
use sluicegate_core::MemoryStore;
use sluicegate_rules::{Descriptor, Descriptors, Explained, Rules, RulesFile, Variables};
use sluicegate_tower::key::PeerAddr;

use crate::explain_json;

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
    /// The address of the peer of the connection.
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// A descriptor of Envoy's rate limit protocol instead of a request, as
    /// remote_address=192.0.2.7,path=/login; several form one call.
    #[arg(long, value_name = "KEY=VALUE,..", requires = "domain", value_parser = descriptor, conflicts_with_all = ["method", "url", "header", "peer"])]
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
    let requests = asked.requests();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime can be started: {error}"))?;
    let explained = runtime.block_on(explain(file, &requests, asked.store))?;
    if asked.store && !explained.iter().all(is_answered) {
        return Err(format!("{}: error: its store gave no answer in time", asked.rules.display()));
    }
    if asked.json {
        let documents: String =
            explained.iter().map(|one| format!("{:#}\n", explain_json::document(one))).collect();
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
    requests: &[http::Request<()>],
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
        explained.push(rules.explain(request).await);
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
