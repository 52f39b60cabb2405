//! Numbers per customer: each customer's limit is a row of a database, read through a small cache, and changed while the service runs.
//! Run it, and try the `curl` lines that it prints.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use rusqlite::{Connection, OptionalExtension};
use sluicegate::key::{OnMissingKey, RequestView, key_fn};
use sluicegate::limits::ChosenQuotas;
use sluicegate::{ConfigError, Limit, MemoryStore, Policy, Quota, RateLimitExt};
use sluicegate_examples::listen;

/// How long a row is remembered: a change takes effect within this time.
const FRESH: Duration = Duration::from_millis(500);

/// The customers of the database.
#[derive(Clone)]
pub(crate) struct Customers {
    database: Arc<Mutex<Connection>>,
}

impl Customers {
    /// A new database at this place, with customers 1 to 300.
    pub(crate) fn create(file: &FilePath) -> rusqlite::Result<Self> {
        let database = Connection::open(file)?;
        database.execute_batch(
            "DROP TABLE IF EXISTS customers;
             CREATE TABLE customers (id INTEGER PRIMARY KEY, per_hour INTEGER NOT NULL);
             WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 300)
             INSERT INTO customers SELECT id, 3 + id % 7 FROM n;",
        )?;
        Ok(Self { database: Arc::new(Mutex::new(database)) })
    }

    /// The quota of a customer; 401 for an unknown number.
    async fn quota(self, customer: u32) -> Result<ChosenQuotas, Box<dyn Error + Send + Sync>> {
        let row = tokio::task::spawn_blocking(move || {
            let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
            let row = database.query_row("SELECT per_hour FROM customers WHERE id = ?", [customer], |row| {
                row.get::<_, u32>(0)
            });
            row.optional()
        });
        Ok(match row.await?? {
            Some(per_hour) => Quota::per_hour(per_hour.into()).into(),
            None => ChosenQuotas::Refuse(StatusCode::UNAUTHORIZED),
        })
    }

    /// Changes a row, and returns whether it exists. Instances see the change when they next read the row.
    fn change(&self, customer: u32, per_hour: u32) -> rusqlite::Result<bool> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "UPDATE customers SET per_hour = ? WHERE id = ?";
        Ok(database.execute(sql, [per_hour, customer])? > 0)
    }
}

/// The number in `x-api-key: customer-17`. A real service looks up keys that cannot be guessed.
fn customer_of(request: RequestView<'_>) -> Option<u32> {
    request.headers.get("x-api-key")?.to_str().ok()?.strip_prefix("customer-")?.parse().ok()
}

pub(crate) fn app(store: &MemoryStore, customers: Customers) -> Result<Router, ConfigError> {
    // One policy for all customers: its quota is the default, and each customer brings its own.
    let api = Policy::sliding_log("api", "3/h").on(store)?;
    // A client that tries keys still has one address.
    let address = Policy::gcra("address", "3000/min").on(store)?;

    let rows = customers.clone();
    let per_customer = Limit::new(api)
        .key(key_fn(|request| customer_of(request).map(u64::from)))
        .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED))
        .quota_by_cached(FRESH, customer_of, move |customer| rows.clone().quota(customer));
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }).rate_limit(per_customer))
        // A real service checks who may do this.
        .route("/customers/{n}", post(change))
        .with_state(customers)
        .rate_limit(address))
}

/// `POST /customers/17?limit=9`
async fn change(
    State(customers): State<Customers>,
    Path(customer): Path<u32>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<String, (StatusCode, String)> {
    let limit = query.get("limit").map(String::as_str).unwrap_or_default();
    let per_hour = limit.parse().ok().filter(|per_hour| (1..=100_000).contains(per_hour));
    let Some(per_hour) = per_hour else {
        return Err((StatusCode::BAD_REQUEST, format!("limit is {limit:?}, and must be 1 to 100000\n")));
    };
    match customers.change(customer, per_hour) {
        Ok(true) => Ok(format!("customer {customer} has {per_hour} an hour, within a second\n")),
        Ok(false) => Err((StatusCode::NOT_FOUND, format!("there is no customer {customer}\n"))),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = listen().await?;
    let address = listener.local_addr()?;
    let file = std::env::temp_dir().join(format!("sluicegate-customers-{}.sqlite", address.port()));
    let customers = Customers::create(&file)?;
    println!(
        "\
Customers 1 to 300 of {file}: customer n has 3 + n % 7 requests an hour. Try:

  for i in $(seq 5); do curl -si -H 'x-api-key: customer-7' http://{address} | grep -iE '^(HTTP|x-ratelimit)'; done
  curl -s -X POST 'http://{address}/customers/7?limit=10'
  curl -si -H 'x-api-key: customer-7' http://{address} | grep -iE '^(HTTP|x-ratelimit)'
  curl -si -H 'x-api-key: customer-999' http://{address} | grep -i '^HTTP'

Ctrl-C ends it.",
        file = file.display()
    );
    axum::serve(
        listener,
        app(&MemoryStore::new(), customers)?.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await })
    .await?;
    Ok(())
}
