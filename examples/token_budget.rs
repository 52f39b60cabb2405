//! A budget of LLM tokens: a request reserves its highest possible cost, and settles its actual cost when its answer has
//! been streamed, or when its client is gone. Run it, and try the `curl` lines that it prints.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::stream::unfold;
use http::header::CONTENT_LENGTH;
use sluicegate::key::{ApiKey, RequestView};
use sluicegate::{ConfigError, KeyExtractor, Limit, MemoryStore, Meter, PeerIp, Policy};
use sluicegate::{RateLimitExt, RateLimitLayer};
use sluicegate_examples::listen;

const LONGEST_PROMPT_BYTES: usize = 2048;
const LONGEST_ANSWER_TOKENS: usize = 256;

/// `pace` is the time that the model takes for a token.
pub(crate) fn app(store: &MemoryStore, pace: Duration) -> Result<Router, ConfigError> {
    let tokens = Limit::new(Policy::token_bucket("tokens", "1000/min").on(store)?)
        .key(ApiKey::header("x-api-key")?.or(PeerIp::new()))
        .cost_fn(estimate)
        .refund_if(|head| !head.status.is_success());
    // A client that makes up API keys still has one address.
    let address = Policy::gcra("address", "1000/min").on(store)?;
    let limit = RateLimitLayer::builder(tokens).and(address).meter().build()?;
    Ok(Router::new()
        .route("/complete", post(complete).rate_limit(limit))
        .layer(DefaultBodyLimit::max(LONGEST_PROMPT_BYTES))
        .with_state(pace))
}

/// The highest cost of a request. A request without the length of its prompt reserves for the longest prompt.
fn estimate(request: RequestView<'_>) -> u64 {
    let length = request.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let longest = length.unwrap_or(LONGEST_PROMPT_BYTES).min(LONGEST_PROMPT_BYTES);
    (longest.div_ceil(4) + LONGEST_ANSWER_TOKENS) as u64
}

/// Stands in for a model: it repeats the prompt in upper case. A token is four bytes of a prompt, or a word of an answer.
async fn complete(State(pace): State<Duration>, Extension(meter): Extension<Meter>, prompt: String) -> Body {
    let used = Used { meter: meter.of("tokens"), tokens: prompt.len().div_ceil(4) as u64 };
    let words = prompt.split_whitespace().take(LONGEST_ANSWER_TOKENS);
    let words: Vec<String> = words.map(|word| word.to_uppercase() + "\n").collect();
    Body::from_stream(unfold((words.into_iter(), used), move |(mut words, mut used)| async move {
        let word = words.next()?;
        tokio::time::sleep(pace).await;
        used.tokens += 1;
        Some((Ok::<_, Infallible>(word), (words, used)))
    }))
}

/// The cost of an answer so far.
struct Used {
    meter: Meter,
    tokens: u64,
}

/// The answer's stream owns it, so it settles however the stream ends.
impl Drop for Used {
    fn drop(&mut self) {
        // The store is asked at once, and its answer need not be awaited.
        drop(self.meter.settle(self.tokens));
    }
}

pub(crate) fn guide(address: SocketAddr) -> String {
    format!(
        "\
1000 tokens a minute for each API key or address on http://{address}. A prompt of 20 bytes reserves 5 + 256 of
them. When it is answered, all but 5 + 5 of them are back.

Try:

  curl -siN -d 'why is the sky blue?' http://{address}/complete
  for i in 1 2 3; do curl -si -d 'why is the sky blue?' http://{address}/complete | grep -iE '^(HTTP|x-ratelimit-rem)'; done
  seq 5 | xargs -P 5 -I{{}} curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'x-api-key: k' -d 'why is the sky blue?' http://{address}/complete

Ctrl-C ends it."
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = listen().await?;
    println!("{}", guide(listener.local_addr()?));
    let app = app(&MemoryStore::new(), Duration::from_millis(100))?;
    Ok(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}
