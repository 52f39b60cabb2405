//! Load that is too much for now, and is neither refused nor lost: a waiting room, lines that instances share, and deferred jobs.

mod deferred;
mod deferred_files;
mod files;
mod four;
mod killed;
mod lines;
mod room;
mod support;
mod upset;
