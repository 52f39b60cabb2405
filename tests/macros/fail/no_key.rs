//! Keys of a limit that are none.

use sluicegate::Limit;
use sluicegate::key::HeaderKey;

fn limits([one, other]: [Limit; 2]) -> [Limit; 2] {
    [one.key("x-api-key"), other.key(HeaderKey::new("x-api-key"))]
}

fn main() {}
