//! Fallbacks that are no handlers, that need a state which their handler does not take, or of which there are two.

use axum::extract::State;
use sluicegate::rate_limited;

#[derive(Clone)]
struct App;

async fn busy() {}

async fn with_state(_: State<App>) {}

fn not_async() {}

#[rate_limited("5/min", fallback)]
async fn nothing() {}

#[rate_limited("5/min", fallback = not_async)]
async fn no_handler() {}

#[rate_limited("5/min", fallback = with_state)]
async fn no_state() {}

#[rate_limited("5/min", name = "a", fallback = busy)]
#[rate_limited("9/h", name = "b", fallback = busy)]
async fn two() {}

fn main() {}
