//! `sluicegate explain`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Uri};
use sluicegate_core::MemoryStore;
use sluicegate_rules::{Explained, Rules, RulesFile, Variables};
use sluicegate_tower::key::PeerAddr;

use crate::explain_json;

/// A request that is only thought of.
#[derive(Args)]
pub(crate) struct Request {
    /// The rules file.
    #[arg(long, value_name = "RULES")]
    rules: PathBuf,
    /// The method.
    method: Method,
    /// The URL, or its path.
    url: Uri,
    /// A header field; may be given several times.
    #[arg(short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The address of the peer of the connection.
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// Ask the Redis of the rules file where each quota stands; nothing is spent.
    #[arg(long)]
    store: bool,
    /// Print JSON, of a shape that says its version.
    #[arg(long)]
    json: bool,
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as \"name: value\"")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not the name of a header field"))?;
    let value = value.trim().parse().map_err(|_| "no header field can have this value".to_owned())?;
    Ok((name, value))
}

pub(crate) fn run(asked: &Request) -> Result<String, String> {
    let variables = Variables::environment().or_placeholders();
    let file = RulesFile::read(&asked.rules, &variables).map_err(|error| error.to_string())?;
    let mut request = http::Request::new(());
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = asked.url.clone();
    request.headers_mut().extend(asked.header.iter().cloned());
    if let Some(peer) = asked.peer {
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer, 0)));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime can be started: {error}"))?;
    let explained = runtime.block_on(explain(file, &request, asked.store))?;
    if asked.store && !is_answered(&explained) {
        return Err(format!("{}: error: its store gave no answer in time", asked.rules.display()));
    }
    if asked.json {
        return Ok(format!("{:#}\n", explain_json::document(&explained)));
    }
    // The service would be told how to serve with it; whoever asks here says it.
    let lacks_peer = asked.peer.is_none() && explained.to_string().contains("no peer address");
    let hint = if lacks_peer { "say --peer IP: a rule goes by the address of the connection\n" } else { "" };
    Ok(format!("{explained}\n{hint}"))
}

/// By the store of the file, or as if nothing had been spent; then nothing is connected to.
async fn explain(
    file: RulesFile,
    request: &http::Request<()>,
    asks_store: bool,
) -> Result<Explained, String> {
    let store = match asks_store {
        true => file.connected_store(CONNECTS_WITHIN).await,
        false => Ok((&MemoryStore::new()).into()),
    };
    // It asks about one key: however many the service has room for.
    let rules =
        store.and_then(|store| Rules::new(store, file.without_store().without_rooms().with_table_size(1)));
    Ok(rules.map_err(|error| error.to_string())?.explain(request).await)
}

/// Long enough for TLS to another continent.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// A limit that got no answer stands nowhere.
fn is_answered(explained: &Explained) -> bool {
    let mut asks =
        explained.rules.iter().flat_map(|rule| &rule.limits).filter_map(|limit| limit.asks.as_ref().ok());
    asks.all(|asks| !asks.quotas.is_empty())
}
