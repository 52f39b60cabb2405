//! `#[rate_limited]` as the compiler sees it: handlers that it accepts, each with a `main` that is run, and mistakes,
//! each with the message that it gets.

#[test]
fn the_attribute_takes_every_handler_and_names_every_mistake() {
    let cases = trybuild::TestCases::new();
    cases.pass("pass/*.rs");
    cases.compile_fail("fail/*.rs");
}
