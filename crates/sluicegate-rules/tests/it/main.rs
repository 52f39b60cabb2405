//! Rules files as users write them: what they limit, and what is said of their mistakes.

mod adaptive;
mod agreement;
mod bandwidth;
mod by_name;
mod catalogue;
mod choice;
mod descriptors;
mod forms;
mod language;
mod limits;
mod migrated;
mod mistakes;
mod mixed;
mod news;
mod own;
mod paths;
mod patterns;
mod reload;
mod schema;
mod sections;
mod settling;
mod size;
mod support;
mod tiers;
mod waits;
