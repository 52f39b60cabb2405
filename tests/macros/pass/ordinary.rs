//! Handlers in an ordinary crate, by what they need. One program, because each takes as long to build as all of them.
#![deny(warnings)]

#[path = "ordinary/algorithms.rs"]
mod algorithms;
#[path = "ordinary/arguments.rs"]
mod arguments;
#[path = "ordinary/closures.rs"]
mod closures;
#[path = "ordinary/debug_handler.rs"]
mod debug_handler;
#[path = "ordinary/generics.rs"]
mod generics;
#[path = "ordinary/instrument.rs"]
mod instrument;
#[path = "ordinary/keys.rs"]
mod keys;
#[path = "ordinary/parameters.rs"]
mod parameters;
#[path = "ordinary/patterns.rs"]
mod patterns;
#[path = "ordinary/quotas.rs"]
mod quotas;
#[path = "ordinary/returns.rs"]
mod returns;
#[path = "ordinary/routers.rs"]
mod routers;
#[path = "ordinary/several.rs"]
mod several;

fn main() {
    algorithms::main();
    arguments::main();
    closures::main();
    debug_handler::main();
    generics::main();
    instrument::main();
    keys::main();
    parameters::main();
    patterns::main();
    quotas::main();
    returns::main();
    routers::main();
    several::main();
}
