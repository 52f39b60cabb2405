//! The monitoring example over a socket: its metrics, its page, and the webhook that is told of suspensions.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use http::StatusCode;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use sluicegate::observed::Observed;
use sluicegate::redis::RedisStore;
use sluicegate::{MemoryStore, RateLimiter, Resilient, Store};
use sluicegate_tests::process::alone;
use sluicegate_tests::servers::Server;
use tokio::sync::{Semaphore, mpsc};

use crate::invented::monitoring as example;
use crate::invented::monitoring::webhook::{MOST_WAITING, post_suspensions};
use crate::operate::alerts::assert_slow_decisions_alert;
use crate::operate::browser::Page;
use crate::support::{Client, serve};

/// A server that is told of suspensions. It answers as often as it is let.
struct Receiver {
    address: SocketAddr,
    told: mpsc::UnboundedReceiver<Value>,
    answers: Arc<Semaphore>,
}

impl Receiver {
    async fn new(answers: usize) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let answers = Arc::new(Semaphore::new(answers));
        let state = (sender, Arc::clone(&answers));
        let hook = async |State((sender, answers)): State<(mpsc::UnboundedSender<Value>, Arc<Semaphore>)>,
                          body: String| {
            sender.send(serde_json::from_str(&body).unwrap()).unwrap();
            answers.acquire().await.unwrap().forget();
            StatusCode::NO_CONTENT
        };
        let address = serve(Router::new().route("/hook", post(hook)).with_state(state)).await;
        Self { address, told, answers }
    }

    async fn next(&mut self) -> Value {
        let told = tokio::time::timeout(Duration::from_secs(20), self.told.recv()).await;
        told.expect("it is told").unwrap()
    }
}

fn post_to(receiver: &Receiver, store: &Observed) {
    post_suspensions(store, format!("http://{}/hook", receiver.address).parse().unwrap()).unwrap();
}

fn login(store: &Observed) -> RateLimiter {
    Arc::<dyn Store>::from(store).limiters().get("login").expect("the example has it open")
}

/// In a process that nobody else's recorder is in.
#[test]
fn the_example_tells_a_webhook_of_a_suspension_and_its_metrics_have_buckets() {
    alone(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut receiver = Receiver::new(100).await;
            let store = Observed::named("memory", MemoryStore::new()).unwrap();
            post_to(&receiver, &store);
            let server = serve(example::app(&store, example::recorder().unwrap()).unwrap()).await;
            let mut client = Client::connect(server).await;
            let mut answers = Vec::new();
            for _ in 0..30 {
                answers.push(client.post("/login").await.status().as_u16());
            }
            assert_eq!((&answers[..5], &answers[5..]), (&[200; 5][..], &[429; 25][..]));
            assert_eq!(
                receiver.next().await,
                json!({
                    "text": "login: 127.0.0.1 is suspended for 30min",
                    "policy": "login", "key": "127.0.0.1", "seconds": 1800, "by": null, "missed": 0
                })
            );
            // A release by hand is told, too; a key of which it is not known what it is, is a digest.
            let _ = login(&store).suspensions().by("ada").release(Ipv4Addr::LOCALHOST).await.unwrap();
            let told = receiver.next().await;
            assert_eq!((&told["text"], &told["by"]), (&json!("login: 127.0.0.1 is released"), &json!("ada")));
            let _ = login(&store).suspensions().suspend("sk_live_51Hx7planted", Duration::from_secs(60)).await.unwrap();
            let told = receiver.next().await;
            assert!(!told.to_string().contains("planted"), "{told}");

            // One decision in memory in 64 is timed, whichever.
            for _ in 0..2_000 {
                drop(login(&store).peek("eve").await.unwrap());
            }
            let body = client.get("/metrics").await.into_body();
            let metrics = std::str::from_utf8(&body).unwrap();
            for line in [
                r#"rate_limit_requests_total{policy="login",result="rejected",decided_by="store",mode="enforce"} 20"#,
                r#"rate_limit_requests_total{policy="login",result="suspended",decided_by="store",mode="enforce"} 5"#,
                r#"rate_limit_suspensions_total{policy="login"} 2"#,
                r#"rate_limit_remaining_ratio{policy="login",watched="local"} 0"#,
            ] {
                assert!(metrics.contains(line), "{line}: {metrics}");
            }
            for le in ["0.00005", "0.005", "1", "+Inf"] {
                let of = r#"store="memory",policy="login",decided_by="store""#;
                let bucket = format!(r#"rate_limit_duration_seconds_bucket{{{of},le="{le}"}}"#);
                assert!(metrics.contains(&bucket), "{bucket}: {metrics}");
            }
            assert_slow_decisions_alert(metrics, "memory");
            assert_eq!(client.get("/status").await.status(), StatusCode::OK);
            assert_eq!(client.get("/status.json").await.status(), StatusCode::OK);
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_does_not_answer_holds_no_request_up_and_hears_how_many_it_has_missed() {
    let mut receiver = Receiver::new(0).await;
    let store = Observed::named("webhook", MemoryStore::new()).unwrap();
    post_to(&receiver, &store);
    let policy = sluicegate::Policy::gcra("login", "5/min").suspend(100, "10min", "30min");
    let login = policy.on(&store).unwrap();
    let suspend = |key: u64| login.suspensions().suspend(key, Duration::from_secs(60));
    let _ = suspend(0).await.unwrap();
    assert_eq!(receiver.next().await["missed"], 0);
    // It does not answer that one, the queue holds some, and the rest are missed.
    let missed = 10;
    for key in 1..=(MOST_WAITING + missed) as u64 {
        assert!(suspend(key).now().is_ok(), "memory answers at once, whatever the webhook does");
    }
    receiver.answers.add_permits(1_000);
    assert_eq!(receiver.next().await["missed"], missed);
    for _ in 1..MOST_WAITING {
        assert_eq!(receiver.next().await["missed"], 0);
    }
    let _ = suspend(0).await.unwrap();
    assert_eq!(receiver.next().await["missed"], 0);
}

/// The example on this store, without its recorder.
async fn serve_example(store: &Observed) -> SocketAddr {
    serve(example::app(store, PrometheusBuilder::new().build_recorder().handle()).unwrap()).await
}

/// Sends this many logins and searches, one after the other.
async fn attack(client: &mut Client, requests: usize) {
    for _ in 0..requests {
        _ = client.post("/login").await;
        _ = client.get("/search").await;
    }
}

/// Loads the page until its text has this in it, and returns the text.
async fn shown(page: &mut Page, url: &str, wanted: &str) -> String {
    let looks = async {
        loop {
            page.open(url).await;
            let text = page.text().await;
            if text.contains(wanted) {
                return text;
            }
        }
    };
    let text = tokio::time::timeout(Duration::from_secs(30), looks).await;
    text.unwrap_or_else(|_| panic!("{url} does not come to say {wanted:?}"))
}

/// It signed in whoever was on this machine, showed digests, and had no button at any key.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_example_shows_keys_and_acts_on_them_in_a_browser_on_this_machine() {
    let store = Observed::named("example-here", MemoryStore::new()).unwrap();
    let server = serve_example(&store).await;
    let mut client = Client::connect(server).await;
    attack(&mut client, 30).await;
    let mut page = Page::new("example").await;
    page.looks(1200, "light").await;
    let url = format!("http://{server}/status");
    assert_eq!(page.open(&url).await, 200);
    let text = page.text().await;
    assert!(text.contains("signed in as local") && text.contains("127.0.0.1 refused"), "{text}");
    assert!(!text.contains("digest "), "{text}");
    page.click("[...document.querySelectorAll('.offenders button')].find(it => it.ariaLabel === 'release: 127.0.0.1 of login')").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(text.contains("the key is released") && text.contains("127.0.0.1 is refused with 429"), "{text}");
    assert!(!text.contains("suspended until"), "{text}");
    page.click("document.querySelector('.found button[value=reset]')").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(text.contains("the key is reset") && text.contains("127.0.0.1 passes"), "{text}");
    assert!(text.contains("refused here 25 times in the last 10 minutes, when it asked for more"), "{text}");
    assert_eq!(client.post("/login").await.status(), StatusCode::OK);
}

/// The pictures are for whoever changes the page.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_example_says_what_is_so_at_rest_in_an_attack_in_an_outage_and_after_it() {
    let mut redis = Server::start();
    let store = RedisStore::builder().deadline(Duration::from_millis(500)).connect(&redis.url()).unwrap();
    store.connected(Duration::from_secs(20)).await.unwrap();
    let store =
        Observed::named("example-redis", Resilient::builder(store).replicas(2).build().unwrap()).unwrap();
    let server = serve_example(&store).await;
    let mut client = Client::connect(server).await;
    let mut page = Page::new("states").await;
    page.looks(1200, "light").await;
    let url = format!("http://{server}/status");

    assert_eq!(client.get("/search").await.status(), StatusCode::OK);
    let text = shown(&mut page, &url, "Nothing is refused; ").await;
    assert!(text.contains("example-redis: OK, 99 of 100 answers within"), "{text}");
    page.picture("example-quiet").await;

    attack(&mut client, 60).await;
    let text = shown(&mut page, &url, "refuses ").await;
    assert!(text.contains("one address, 127.0.0.1"), "{text}");
    page.picture("example-attack").await;

    redis.stop();
    attack(&mut client, 30).await;
    let text = shown(&mut page, &url, "does not answer (it last did at ").await;
    for said in [
        "now: this instance's half of 10/s burst 20",
        "in fallback",
        "until then 99 of 100 answers within",
        "gives no answers",
        "outage, which lasts",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("Look-ups are answered by the store"), "{text}");
    page.picture("example-outage").await;

    redis.restart();
    // Requests are the trials that find it.
    while store.snapshot().events.iter().any(|event| event.what == "outage" && event.until.is_none()) {
        attack(&mut client, 1).await;
    }
    let text = shown(&mut page, &url, "nothing else is unusual").await;
    assert!(
        text.contains("example-redis: OK") && text.contains("Look-ups are answered by the store"),
        "{text}"
    );
    assert_eq!((text.matches("outage until").count(), text.matches("which lasts").count()), (1, 0), "{text}");
    assert!(text.contains(" decisions without the store"), "{text}");
    assert_eq!(store.snapshot().stores[0].opened, 1);
    page.picture("example-after").await;
}
