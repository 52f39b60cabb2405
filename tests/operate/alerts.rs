//! The alerts and the dashboard of `examples/monitoring/`, by Prometheus' own tool.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use sluicegate::observed::{METRICS, MetricKind};
use sluicegate_tests::process::alone;

use crate::support::{Client, serve};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

/// Runs `promtool` with these arguments and this input.
pub(crate) fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("promtool is installed: tests/run operate does that");
    running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "promtool {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The code of the cookbook, which `build.rs` has put together.
#[allow(dead_code, unreachable_pub, reason = "other tests run the other recipes")]
mod cookbook {
    include!(concat!(env!("OUT_DIR"), "/cookbook.rs"));
}

/// Asserts that the alert on slow decisions fires when all the timed decisions of these exported series take between 5 and 10 ms, and does
/// not while they take less.
pub(crate) fn assert_slow_decisions_alert(metrics: &str, store: &str) {
    let of_store = format!("store=\"{store}\"");
    let buckets = metrics.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(series, _)| {
        series.starts_with("rate_limit_duration_seconds_bucket{") && series.contains(&of_store)
    });
    let series = buckets.map(|(series, _)| {
        let bound = series.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let is_fast = bound.parse::<f64>().is_ok_and(|bound| bound <= 0.005);
        let values = if is_fast { "0+10x40 400x40" } else { "0+10x80" };
        format!("      - series: '{series}'\n        values: '{values}'\n")
    });
    let series: String = series.collect();
    assert!(series.contains("le=\"0.005\"") && series.contains("le=\"0.01\""), "{metrics}");
    let tests = format!(
        "rule_files: ['{}']
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
{series}    alert_rule_test:
      - {{ alertname: RateLimitDecisionsAreSlow, eval_time: 9m }}
      - alertname: RateLimitDecisionsAreSlow
        eval_time: 18m
        exp_alerts:
          - exp_labels: {{ store: {store}, severity: warning }}
            exp_annotations:
              summary: 'One decision of store {store} in a hundred takes longer than 9.95ms.'
              description: 'Each request waits for its decision. Look at the load of the store and at the network to it.'
",
        file("alerts.yml").display()
    );
    let path = std::env::temp_dir().join(format!("sluicegate-slow-{store}-{}.yml", std::process::id()));
    std::fs::write(&path, tests).unwrap();
    promtool(&["test", "rules", path.to_str().unwrap()], "");
    std::fs::remove_file(path).unwrap();
}

/// The recipe had no buckets: its durations were summaries, on which the alert never fires, and two panels stayed empty. In a process
/// without another recorder.
#[test]
fn the_alert_on_slow_decisions_fires_on_the_series_that_the_recipe_exports() {
    alone(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let app = cookbook::metrics_for_prometheus::router().unwrap();
            let mut client = Client::connect(serve(app).await).await;
            // One decision in memory in 64 is timed.
            for _ in 0..1_000 {
                let _ = client.get("/").await;
            }
            let body = client.get("/metrics").await.into_body();
            let metrics = std::str::from_utf8(&body).unwrap();
            promtool(&["check", "metrics"], metrics);
            assert_slow_decisions_alert(metrics, "memory");
            // Each histogram that the dashboard draws has buckets.
            for metric in METRICS.iter().filter(|metric| metric.kind == MetricKind::Histogram) {
                assert!(!metrics.contains(&format!("# TYPE {} summary", metric.name)), "{metrics}");
            }
        });
    });
}

/// The queries of all panels, as they are when no policy and no store is chosen.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let of = |panel: &Value| panel["targets"].as_array().cloned().unwrap_or_default();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(of);
    let query = |target: Value| target["expr"].as_str().unwrap().to_owned();
    let filled = |query: String| {
        query.replace("$__rate_interval", "1m").replace("$policy", ".*").replace("$store", ".*")
    };
    targets.map(query).map(filled).collect()
}

#[test]
fn every_alert_fires_and_clears() {
    promtool(&["check", "config", file("prometheus.yml").to_str().unwrap()], "");
    promtool(&["test", "rules", file("alerts_test.yml").to_str().unwrap()], "");
}

/// The tests of rules pass when an alert is left out.
#[test]
fn every_alert_is_tested_before_while_and_after_it_fires() {
    let (rules, tests) = (read("alerts.yml"), read("alerts_test.yml"));
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(alerts.len(), 13);
    for alert in alerts {
        let cases = tests.split("- alertname: ").skip(1).filter(|case| case.lines().next() == Some(alert));
        let cases: Vec<bool> = cases.map(|case| case.contains("exp_alerts:")).collect();
        let fires = cases.iter().position(|fires| *fires).unwrap_or_else(|| panic!("{alert} never fires"));
        assert!(fires > 0, "{alert} is not tested before it fires");
        assert!(cases[fires..].contains(&false), "{alert} never clears");
    }
}

#[test]
fn every_query_of_the_dashboard_is_one() {
    let queries = queries();
    assert!(!queries.is_empty());
    let rules = queries.iter().enumerate().map(|(index, query)| {
        assert!(!query.contains('$'), "{query}");
        format!("      - record: query_{index}\n        expr: {}\n", Value::from(&**query))
    });
    let rules: String = rules.collect();
    promtool(
        &["check", "rules", "/dev/stdin"],
        &format!("groups:\n  - name: dashboard\n    rules:\n{rules}"),
    );
}

/// The metrics that a text names, histograms by the name that they have without the ending of a series.
fn named(text: &str) -> BTreeSet<&str> {
    let begins = text.match_indices("rate_limit_").map(|(at, _)| &text[at..]);
    let names = begins.map(|rest| {
        rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_').next().unwrap_or(rest)
    });
    let histograms = METRICS.iter().filter(|metric| metric.kind == MetricKind::Histogram);
    let histograms: Vec<_> = histograms.map(|metric| metric.name).collect();
    names
        .map(|name| {
            let whole = histograms.iter().find(|of| name.starts_with(**of));
            whole
                .copied()
                .filter(|of| ["_bucket", "_count", "_sum"].contains(&&name[of.len()..]))
                .unwrap_or(name)
        })
        .collect()
}

#[test]
fn alerts_name_metrics_that_are_told_and_the_dashboard_shows_all_of_them() {
    let told: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    for file in ["alerts.yml", "alerts_test.yml"] {
        let text = read(file);
        let unknown: Vec<_> = named(&text).difference(&told).copied().collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
    assert_eq!(named(&read("dashboard.json")), told);
}
